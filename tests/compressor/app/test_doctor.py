"""``doctor`` knows every optional part that the package declares."""

import tomllib
from pathlib import Path

from compressor.app.doctor import doctor

PROJECT = Path(__file__).parents[3] / "pyproject.toml"


def test_every_extra_is_told_with_how_to_install_it() -> None:
    extras = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    remedies = {part.remedy for part in doctor().optional}
    assert {f"pip install 'compressor[{extra}]'" for extra in extras if extra != "dev"} <= remedies


def test_what_is_missing_has_no_version(monkeypatch) -> None:
    monkeypatch.setattr("compressor.app.doctor.find_spec", lambda module: None)
    found = {part.name: part.found for part in doctor().optional}
    assert found["onnxruntime-qnn"] is found["datasets"] is None
    assert doctor().healthy
