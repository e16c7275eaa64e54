"""Strict YAML: an unknown key is an error that names the nearest known one, with the path to it."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from compressor.core.errors import RecipeError, nearest
from compressor.core.objection import objection

ModelT = TypeVar("ModelT", bound=BaseModel)


def read_yaml(path: Path) -> Any:
    """Returns the parsed content of a YAML file.

    Raises:
        RecipeError: the file is missing, is not UTF-8 or is not YAML (with the line).
    """
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_StrictLoader)
    except FileNotFoundError as error:
        raise RecipeError(f"{path} does not exist", remedy="check the path") from error
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path} cannot be read: {error}", remedy="expected a UTF-8 YAML file") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        what = f": {error.problem}" if isinstance(error, _RepeatedKeyError) else ""
        raise RecipeError(
            f"{path} is not valid YAML{where}{what}", remedy="check indentation, quotes, colons and repeated keys"
        ) from error


class _RepeatedKeyError(yaml.constructor.ConstructorError):
    """A key that stands twice in one mapping."""


class _StrictLoader(yaml.SafeLoader):
    """Refuses a repeated key, of which YAML's usual loader silently keeps the last."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Builds a mapping whose keys are all different."""
        keys = [self.construct_object(key, deep=deep) for key, _ in node.value]
        for index, key in enumerate(keys):
            if key in keys[:index]:
                raise _RepeatedKeyError(None, None, f"the key '{key}' stands twice", node.value[index][0].start_mark)
        return dict(super().construct_mapping(node, deep=deep))


def parse(model: type[ModelT], value: Any, *, where: str, below: str = "") -> ModelT:
    """Returns ``value`` as ``model``.

    Args:
        model: the pydantic class to fill.
        value: what the YAML said.
        where: the file, as an error names it, e.g. ``recipe.yaml``.
        below: where in the file ``value`` stands, e.g. ``stages[1].distill``; empty for the whole file.

    Raises:
        RecipeError: an unknown key, a missing key or a value of the wrong kind; the first one found is told.
    """
    if not isinstance(value, dict):
        raise RecipeError(
            f"{': '.join(filter(None, (where, below)))} holds no mapping; expected the keys "
            f"{', '.join(model.model_fields)}",
            remedy="write 'key: value' lines; the README shows an example",
        )
    try:
        return model.model_validate(value)
    except ValidationError as error:
        found = objection(error, value)
        if found.kind == "extra_forbidden":
            remedy = nearest(str(found.keys[-1]), _fields_at(model, found.keys[:-1]))
        else:
            remedy = "add the key" if found.kind == "missing" else "correct the value"
        raise RecipeError(found.at(where, below), remedy=remedy) from error


def _fields_at(model: type[BaseModel], loc: tuple[int | str, ...]) -> set[str]:
    """Returns the field names of all models that can stand at ``loc`` below ``model``."""
    candidates = {model}
    for part in loc:
        reached = {
            found
            for candidate in candidates
            if isinstance(part, str) and part in candidate.model_fields
            for found in _models_in(candidate.model_fields[part].annotation)
        }
        # List indices and union tags stay at the same models.
        candidates = reached or candidates
    return {name for candidate in candidates for name in candidate.model_fields}


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in typing.get_args(annotation):
        yield from _models_in(inner)
