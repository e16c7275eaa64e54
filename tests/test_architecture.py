"""The import rules of the design: data flows one way, and nothing lower reaches up."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OURS = {"compressor", "export", "devices", "benchmarks", "tests"}


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} uses a relative import"
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in found if name.partition(".")[0] in OURS}


def allowed(folder: str, name: str) -> bool:
    top = name.partition(".")[0]
    is_app = name == "compressor.app" or name.startswith("compressor.app.")
    is_core = name in {"compressor", "compressor.core"} or name.startswith("compressor.core.")
    return {
        "core": is_core,
        "compressor": top == "compressor" and not is_app,
        "export": top == "export" or (top == "compressor" and not is_app),
        "devices": top == "devices" or is_core,
        "benchmarks": top in {"benchmarks", "export", "devices"} or is_core,
        "app": top != "tests",
    }[folder]


def folder_of(path: Path) -> str | None:
    parts = path.relative_to(ROOT).parts
    if parts[0] == "compressor":
        # The package's own __init__ and __main__ hand over to the application.
        return parts[1] if parts[1] in {"core", "app"} else "app" if parts[1].startswith("__") else "compressor"
    return None if parts[1] in {"studies", "peers"} else parts[0]


@pytest.mark.parametrize("package", ["compressor", "export", "devices", "benchmarks"])
def test_every_module_imports_only_what_its_folder_may(package):
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in (ROOT / package).rglob("*.py")
        if (folder := folder_of(path)) is not None
        for name in sorted(imports(path))
        if not allowed(folder, name)
    ]
    assert wrong == []


def test_the_runner_for_boards_imports_nothing_of_ours():
    assert imports(ROOT / "devices" / "runners" / "python_runner.py") == set()
