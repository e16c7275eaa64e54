"""The ``benchmark`` stage: per-sentence latency of every artifact, with the teacher beside it in the same run."""

from __future__ import annotations

import logging
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pydantic import Field

from benchmarks.measure import measure
from benchmarks.statistics import summary
from benchmarks.subject import Subject, subject_of, torch_subject
from compressor.core.artifact import Artifact
from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import StageError, UsageError
from compressor.core.folders import swap
from compressor.core.measurement import Measurement
from compressor.core.schema import Text
from compressor.stage import Context, Stage, StageConfig, register
from devices.legality import legality
from devices.profiles import DeviceAddress, parse_device
from export.build import export_artifacts
from export.source import ExportRequest
from export.stage import PARITY_TEXTS

logger = logging.getLogger(__name__)


class BenchmarkConfig(StageConfig):
    """Settings of the benchmark stage."""

    devices: tuple[str, ...] = Field(default=("host",), min_length=1)
    threads: int = Field(default=1, ge=1)
    runs: int = Field(default=200, ge=1)
    """Timed runs of each artifact, over all processes together; 59 can pass a p95 budget, 200 judge it well."""
    processes: int = Field(default=4, ge=1)
    """Fresh processes of each artifact, interleaved."""
    artifacts: str = "*"
    """Which artifact folders, as a glob over their names."""
    baselines: bool = True
    """Measure the trained teacher too: in PyTorch padded to the longest length, and as dynamic-INT8 ONNX."""


@register
class BenchmarkStage(Stage[BenchmarkConfig]):
    """Times what the devices can run; what they cannot is told, with the reason."""

    name = "benchmark"
    config_type = BenchmarkConfig
    produces = "measurements"
    packages = ("torch", "onnxruntime", "ai-edge-litert", "tokenizers")

    def requires(self, context: Context) -> None:
        """Checks that there is something to measure and that every device is known."""
        devices = [parse_device(name) for name in self.config.devices]
        if not any(self._chosen(context, device)[0] for device in devices):
            raise UsageError(
                f"none of the artifacts ({', '.join(item.name for item in context.artifacts) or 'none made'}) "
                f"can be measured on {', '.join(self.config.devices)}",
                remedy="export a format the device runs before the benchmark stage",
            )

    def run(self, context: Context, output: Path) -> dict[str, Any]:
        """Measures all artifacts and baselines interleaved, one measurement file a subject and device."""
        sentences = context.data.sentences or context.data.test.texts
        facts: dict[str, Any] = {"skipped": {}, "summaries": {}, "baselines": []}
        baselines: list[Subject] = []
        if self.config.baselines and context.artifacts:
            context.progress(0, 2, "teacher as baseline")
            baselines = _baselines(context, context.reference or context.teacher, sentences)
            facts["baselines"] = [subject.name for subject in baselines]
        for name in self.config.devices:
            device = parse_device(name)
            artifacts, skipped = self._chosen(context, device)
            facts["skipped"] |= {f"{device.profile.name}/{key}": reason for key, reason in skipped.items()}
            context.progress(1, 2, f"measuring {len(artifacts) + len(baselines)} models on {device.name}")
            measured = measure(
                [*map(subject_of, artifacts), *baselines], sentences, device=device, threads=self.config.threads,
                runs=self.config.runs, processes=self.config.processes, seed=context.seed,
            )  # fmt: skip
            for item in measured:
                item.save(output / f"{device.profile.name}-{item.subject}.json")
                facts["summaries"][f"{device.profile.name}/{item.subject}"] = summary(item).model_dump(mode="json")
        context.progress(2, 2, "measured")
        return facts

    def ensures(self, context: Context, output: Path) -> None:
        """Every file reads back and holds every run asked for."""
        for file in output.glob("*.json"):
            found = len(Measurement.load(file).runs)
            if found != self.config.runs:
                raise StageError(f"{file.name} holds {found} runs; expected {self.config.runs}", remedy="report this")

    def _chosen(self, context: Context, device: DeviceAddress) -> tuple[list[Artifact], dict[str, str]]:
        """Returns the artifacts the device runs and, for the others, why not."""
        wanted = [item for item in context.artifacts if fnmatchcase(item.name, self.config.artifacts)]
        refused = {
            item.name: rule.reason
            for item in wanted
            if (rule := legality(device.profile, item.manifest.format, item.manifest.precision))
        }
        return [item for item in wanted if item.name not in refused], refused


def _baselines(context: Context, teacher: Checkpoint, sentences: tuple[Text, ...]) -> list[Subject]:
    """Returns the teacher as people run it today: PyTorch padded to one length, and dynamic-INT8 ONNX."""
    lengths = tuple(sorted({length for artifact in context.artifacts for length in artifact.io.lengths})) or (128,)
    request = ExportRequest(
        formats=("onnx",), precisions=("int8",), lengths=lengths, parity_texts=sentences[:PARITY_TEXTS],
        parity_source="test texts", report=context.data.test, name="teacher", threads=context.threads,
    )  # fmt: skip
    (artifact,) = export_artifacts(teacher, request, context.scratch / "teacher")
    kept = context.workdir / "baselines" / "teacher-onnx-int8"
    kept.parent.mkdir(exist_ok=True)
    swap(artifact.path, kept)
    onnx = subject_of(Artifact.load(kept))
    longest = lengths[-1]
    torch = torch_subject(teacher, name=f"teacher-torch-fp32-padded-{longest}", max_tokens=longest, pad_to=longest)
    return [torch, onnx]
