"""The hash of our own code behind a stage: its module and every module of ours that it imports, directly or not."""

from __future__ import annotations

import ast
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from compressor.core.hashing import combine, sha256_file

OURS = ("compressor", "export", "devices", "benchmarks")
BY_PATH = {"devices.runner": ("devices.runners.python_runner",)}
"""Modules that another one runs as files instead of importing them."""
DATA_SUFFIXES = frozenset({".yaml", ".jinja", ".sh"})


@cache
def source_hash(module: str) -> str:
    """Returns one hash over ``module``, all modules of ours that it reaches, and their packages' data files."""
    return combine({name: sha256_file(path) for name, path in reached(module).items()})


def reached(module: str) -> dict[str, Path]:
    """Returns the files behind a module: {module name, or path of a data file below its package: file}."""
    files: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        path = _file(name)
        if name in files or path is None:
            continue
        files[name] = path
        waiting.extend(_imports(name, path))
        waiting.extend(BY_PATH.get(name, ()))
    for folder in {path.parent for path in files.values()}:
        data = (path for path in folder.rglob("*") if path.suffix in DATA_SUFFIXES)
        files |= {f"{folder.name}/{path.relative_to(folder).as_posix()}": path for path in data}
    return files


@cache
def _file(module: str) -> Path | None:
    if module.partition(".")[0] not in OURS:
        return None
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:
        return None
    return Path(spec.origin) if spec and spec.origin else None


@cache
def _imports(module: str, path: Path) -> tuple[str, ...]:
    """Returns the imported modules, those inside functions included; ``from a import b`` may mean module ``a.b``."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.extend(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            if node.module not in OURS:  # a whole package is not used; its modules that are named follow
                found.append(node.module)
            found.extend(f"{node.module}.{alias.name}" for alias in node.names)
    return tuple(name for name in found if name.partition(".")[0] in OURS)
