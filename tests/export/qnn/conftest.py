"""Simulated answers of these tests stay out of the user's cache; artifacts are made once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from compressor.core.artifact import Artifact
from compressor.core.checkpoint import Checkpoint
from tests.export.qnn import helpers


@pytest.fixture(autouse=True)
def _cache(simulated_answers: None) -> None:
    """Every test here simulates."""


@pytest.fixture(scope="session")
def _two_lengths(tmp_path_factory: pytest.TempPathFactory, trained: Checkpoint) -> Path:
    helpers.needs_qnn()
    folder = tmp_path_factory.mktemp("two")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
        return helpers.one(helpers.export(trained, folder, "w8a16", lengths=(8, 12))).path


@pytest.fixture
def two_lengths(_two_lengths: Path, tmp_path: Path) -> Artifact:
    """A copy, which a test may damage, of a tiny trained BERT in W8A16 with two lengths in one context."""
    return Artifact.load(Path(shutil.copytree(_two_lengths, tmp_path / "onnx-qnn-w8a16")))
