"""Content hashes: the identity of files, folders and settings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def sha256_bytes(data: bytes) -> str:
    """Returns the hexadecimal SHA-256 of ``data``."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """Returns the hexadecimal SHA-256 of a file, read in blocks."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sha256_json(value: Any) -> str:
    """Returns the SHA-256 of a value's canonical JSON (sorted keys, no spaces); paths count as their text."""
    return sha256_bytes(json.dumps(value, sort_keys=True, separators=(",", ":"), default=str).encode())


def file_hashes(folder: Path, *, exclude: Iterable[str] = ()) -> dict[str, str]:
    """Returns {relative posix path: SHA-256} of every file below ``folder`` whose name is not in ``exclude``."""
    skip = frozenset(exclude)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in skip)
    return {path.relative_to(folder).as_posix(): sha256_file(path) for path in files}


def sha256_folder(folder: Path, *, exclude: Iterable[str] = ()) -> str:
    """Returns one hash over names and contents of the files below ``folder``."""
    return combine(file_hashes(folder, exclude=exclude))


def combine(parts: Mapping[str, str]) -> str:
    """Returns one hash for a mapping of names to hashes."""
    return sha256_json(dict(parts))
