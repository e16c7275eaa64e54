"""What all tests share: one thread a library, no network, tiny checkpoints made once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["COMPRESSOR_CACHE"] = ""
os.environ["ACCELERATE_USE_CPU"] = "true"
os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import pytest
import torch

from compressor.core.checkpoint import Checkpoint
from tests.models import SENTENCES, tiny_checkpoint, trained_checkpoint

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def checkpoint_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Checkpoint]:
    """Returns the tiny random classifier of a family, made on first use."""
    made: dict[str, Checkpoint] = {}

    def make(family: str) -> Checkpoint:
        if family not in made:
            made[family] = tiny_checkpoint(family, tmp_path_factory.mktemp(family))
        return made[family]

    return make


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """A tiny BERT that tells three keywords apart."""
    return trained_checkpoint(tmp_path_factory.mktemp("trained"))


@pytest.fixture
def simulated_answers(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps the NPU simulator's answers out of the user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="session")
def _onnx_artifacts(tmp_path_factory: pytest.TempPathFactory, checkpoint_of: Callable[[str], Checkpoint]) -> Path:
    """The tiny BERT in ONNX at every precision, made once."""
    from export.build import export_artifacts
    from export.source import ExportRequest

    folder = tmp_path_factory.mktemp("artifacts")
    request = ExportRequest(
        formats=("onnx",), precisions=("fp32", "fp16", "int8"), lengths=(8, 16), parity_texts=SENTENCES,
        parity_source="test sentences", name="tiny-bert",
    )  # fmt: skip
    export_artifacts(checkpoint_of("bert"), request, folder)
    return folder


@pytest.fixture
def onnx_artifacts(_onnx_artifacts: Path, tmp_path: Path) -> Path:
    """A copy of the artifacts that a test may damage."""
    return Path(shutil.copytree(_onnx_artifacts, tmp_path / "artifacts"))


@pytest.fixture
def onnx_artifact(onnx_artifacts: Path) -> Path:
    """A copy of the FP32 artifact that a test may damage."""
    return onnx_artifacts / "onnx-fp32"
