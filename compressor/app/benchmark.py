"""The ``benchmark`` stage: per-sentence latency of every artifact, with the teacher beside it in the same run."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from benchmarks.measure import measure, measurement_name
from benchmarks.subject import Subject, subject_of, torch_subject
from compressor.core.artifact import Artifact
from compressor.core.checkpoint import Checkpoint
from compressor.core.device import DeviceProfile
from compressor.core.errors import AcceptanceError, ParityError, StageError, UsageError
from compressor.core.measurement import Measurement
from compressor.core.schema import Text
from compressor.stage import Context, Stage, StageConfig, register
from devices.affinity import resolve_cpus
from devices.legality import legality, other_target
from devices.profiles import DeviceAddress, parse_device
from devices.targets import target_for
from export.build import export_artifacts
from export.source import ExportRequest
from export.stage import PARITY_TEXTS

logger = logging.getLogger(__name__)


class BenchmarkConfig(StageConfig):
    """Settings of the benchmark stage."""

    devices: tuple[str, ...] = Field(default=("host",), min_length=1)
    threads: int = Field(default=1, ge=1)
    cpus: str | Annotated[int, Field(ge=0)] | None = None
    """Cores that the processes are pinned to: ``4-7``, ``0,2``, ``big``, ``little``, or a core of the profiles."""
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

    def check(self, teacher: Checkpoint, earlier: tuple[str, ...]) -> None:
        """Checks that every device is known and can be reached, and has the cores that are named."""
        for name in self.config.devices:
            address = parse_device(name)
            with target_for(address) as target:
                if self._cpus is not None:
                    resolve_cpus(self._cpus, address, target.conditions(), threads=self.config.threads)

    def requires(self, context: Context) -> None:
        """Checks that there is something to measure."""
        chosen = [self._chosen(context, parse_device(name)) for name in self.config.devices]
        if not any(artifacts for artifacts, _ in chosen):
            reasons = dict.fromkeys(reason for _, refused in chosen for reason in refused.values())
            raise UsageError(
                f"none of the artifacts ({', '.join(item.name for item in context.artifacts) or 'none made'}) "
                f"can be measured on {', '.join(self.config.devices)}{''.join(f'; {reason}' for reason in reasons)}",
                remedy="export a format the device runs before the benchmark stage",
            )

    def run(self, context: Context, output: Path) -> dict[str, Any]:
        """Measures all artifacts and baselines interleaved, one measurement file a subject and device."""
        sentences = context.data.sentences or tuple(context.data.test.texts)
        baselines = Baselines.of(context, sentences) if self.config.baselines else Baselines()
        skipped: dict[str, str] = {}
        for name in self.config.devices:
            device = parse_device(name)
            artifacts, refused = self._chosen(context, device)
            skipped |= {f"{artifact} on {device.profile.name}": reason for artifact, reason in refused.items()}
            subjects = [*map(subject_of, artifacts), *baselines.subjects]
            context.progress(1, 2, f"measuring {len(subjects)} models on {device.name}")
            for item in measure(
                subjects, sentences, device=device, threads=self.config.threads, runs=self.config.runs,
                processes=self.config.processes, seed=context.seed, cpus=self._cpus,
            ):  # fmt: skip
                item.save(output / f"{measurement_name(item)}.json")
        context.progress(2, 2, "measured")
        return {"skipped": skipped, "baselines": baselines.facts}

    def ensures(self, context: Context, output: Path) -> None:
        """Every file reads back and holds every run asked for."""
        for file in output.glob("*.json"):
            found = len(Measurement.load(file).runs)
            if found != self.config.runs:
                raise StageError(f"{file.name} holds {found} runs; expected {self.config.runs}", remedy="report this")

    @property
    def _cpus(self) -> str | None:
        return None if self.config.cpus is None else str(self.config.cpus)

    def _chosen(self, context: Context, device: DeviceAddress) -> tuple[list[Artifact], dict[str, str]]:
        """Returns the artifacts the device runs and, for the others, why not."""
        wanted = [item for item in context.artifacts if fnmatchcase(item.name, self.config.artifacts)]
        reasons = {item.name: _refusal(item, device.profile) for item in wanted}
        refused = {name: reason for name, reason in reasons.items() if reason is not None}
        return [item for item in wanted if item.name not in refused], refused


def _refusal(artifact: Artifact, profile: DeviceProfile) -> str | None:
    """Returns why a device does not run an artifact: its format or precision, or the SoC it was compiled for."""
    manifest = artifact.manifest
    rule = legality(profile, manifest.format, manifest.precision, family=artifact.family)
    return other_target(profile, manifest.target) if rule is None else rule.reason


@dataclass(frozen=True)
class Baselines:
    """The teacher as people run it today: in PyTorch padded to one length, and as dynamic-INT8 ONNX."""

    subjects: tuple[Subject, ...] = ()
    facts: dict[str, dict[str, float]] = field(default_factory=dict)
    """Name to ``size_mb`` and ``accuracy``; a baseline that could not be made is left out."""

    @classmethod
    def of(cls, context: Context, sentences: tuple[Text, ...]) -> Baselines:
        """Prepares the baselines in the stage's scratch folder."""
        context.progress(0, 2, "teacher as baseline")
        teacher = context.trained_teacher
        longest = max(artifact.io.max_tokens for artifact in context.artifacts)
        request = ExportRequest(
            formats=("onnx",), precisions=("int8",), lengths=(longest,), parity_texts=sentences[:PARITY_TEXTS],
            parity_source="test texts", report=context.data.test, name="teacher", threads=context.threads,
            task=context.data.task,
        )  # fmt: skip
        padded = f"teacher-torch-fp32-padded-{longest}"
        subjects = [torch_subject(teacher, name=padded, max_tokens=longest, pad_to=longest)]
        facts = {padded: {"size_mb": teacher.size_bytes / 1e6}}
        try:
            (artifact,) = export_artifacts(teacher, request, context.scratch / "teacher").artifacts
        except (ParityError, StageError, AcceptanceError) as error:
            logger.warning("no INT8 baseline: %s", error.message)
        else:
            subjects.append(replace(subject_of(artifact), name="teacher-onnx-int8"))
            reference = artifact.manifest.reference
            facts[padded]["accuracy"] = reference["checkpoint"]
            facts["teacher-onnx-int8"] = {"size_mb": artifact.size_mb, "accuracy": reference["artifact"]}
        return cls(tuple(subjects), facts)
