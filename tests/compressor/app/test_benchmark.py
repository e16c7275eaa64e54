"""What the benchmark stage measures on a device, and what it leaves out."""

from dataclasses import replace
from pathlib import Path

import pytest

from compressor.app.benchmark import BenchmarkConfig, BenchmarkStage
from compressor.core.artifact import Artifact
from compressor.core.errors import UsageError
from tests.benchmarks.artifacts import tiny_artifact
from tests.compressor.tiny_data import context


def compiled(artifact: Artifact) -> Artifact:
    """The artifact as if it had been compiled for the Snapdragon 8 Gen 3."""
    target = {"device": "snapdragon-8gen3", "soc_model": "57", "hexagon": "v75"}
    changes = {"format": "onnx-qnn", "precision": "w8a16", "target": target}
    return replace(artifact, manifest=artifact.manifest.model_copy(update=changes))


def test_a_file_for_another_soc_is_not_taken_to_a_phone(checkpoint_of, tmp_path: Path) -> None:
    artifact = compiled(tiny_artifact(tmp_path / "onnx-qnn-w8a16"))
    where = context(tmp_path, checkpoint_of("bert"), artifacts=(artifact,))
    BenchmarkStage(BenchmarkConfig(devices=("snapdragon-8gen3@adb:R5",))).requires(where)
    with pytest.raises(UsageError, match=r"compiled for snapdragon-8gen3 \(SoC 57.*expected one for snapdragon-8elite"):
        BenchmarkStage(BenchmarkConfig(devices=("snapdragon-8elite@adb:R5",))).requires(where)
    both = BenchmarkStage(BenchmarkConfig(devices=("snapdragon-8elite@adb:R5", "snapdragon-8gen3@adb:R5")))
    both.requires(where)
