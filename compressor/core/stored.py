"""JSON files of ours, read back as the record they were written from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from compressor.core.errors import CompressorError
from compressor.core.objection import objection

ModelT = TypeVar("ModelT", bound=BaseModel)


def read_record(model: type[ModelT], file: Path, *, error: type[CompressorError], remedy: str) -> ModelT:
    """Returns what a JSON file holds.

    Args:
        model: the record.
        file: the file.
        error: what is raised where it cannot be read as one, with the place in the file and what was expected.
        remedy: what to do then.

    Raises:
        CompressorError: of the kind ``error``: no such file, no JSON, or JSON that is no ``model``.
    """
    try:
        content = file.read_bytes()
    except FileNotFoundError as cause:
        raise error(f"{file} does not exist", remedy=remedy) from cause
    except OSError as cause:
        raise error(f"{file} cannot be read: {cause.strerror}", remedy=remedy) from cause
    try:
        return model.model_validate_json(content)
    except ValidationError as cause:
        raise error(objection(cause, _value(content)).at(f"{file} cannot be read"), remedy=remedy) from cause


def _value(content: bytes) -> Any:
    """Returns the parsed JSON, to say where in it something stands; None where it is none."""
    try:
        return json.loads(content)
    except ValueError:
        return None
