"""What a gate reads beside artifact and budget: the baseline, the revision, the length mix, why a time is over."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from benchmarks.budget import Budget
from benchmarks.explain import Evidence, explain
from benchmarks.gate import check_buckets, in_bucket, matches, needs_of
from benchmarks.gate_run import GateRun, Hint
from benchmarks.length_mix import lengths_of
from benchmarks.looks import Need
from benchmarks.operator_time import operator_shares
from benchmarks.report.data import ArtifactRow, ReportData
from compressor.core.artifact import MANIFEST, Artifact
from compressor.core.errors import RecipeError, UsageError
from compressor.core.measurement import Measurement
from compressor.core.schema import Text
from devices.profiles import HOST, DeviceAddress

_LOG = logging.getLogger(__name__)
_REVISIONS = ("GITHUB_SHA", "CI_COMMIT_SHA", "GIT_COMMIT", "BUILD_SOURCEVERSION")
"""Where GitHub Actions, GitLab, Jenkins and Azure Pipelines say what is being built."""
_GIT_SECONDS = 10


def read_baseline(path: Path | None, address: DeviceAddress, threads: int) -> Artifact | Measurement | None:
    """Reads a baseline: an artifact folder, or a measurement file.

    Raises:
        UsageError: neither, or a measurement of another device or thread count.
        ArtifactError: a damaged artifact.
    """
    if path is None:
        return None
    if (path / MANIFEST).is_file():
        return Artifact.load(path)
    if not path.is_file():
        raise UsageError(
            f"--baseline {path} is neither an artifact's folder nor a measurement file",
            remedy="name an artifact to measure both interleaved, or a file that 'compressor bench -o DIR' wrote",
        )
    stored = Measurement.load(path)
    if (stored.device, stored.threads) != (address.name, threads):
        raise UsageError(
            f"the stored baseline {path} was measured on {stored.device} with {stored.threads} thread(s); expected "
            f"{address.name} with {threads}",
            remedy="measure the baseline on this device, or pass its artifact folder",
        )
    return stored


def plan_needs(
    artifacts: Sequence[Artifact], budgets: Sequence[Budget], sentences: Sequence[Text], timed: Sequence[Artifact]
) -> tuple[Need, ...]:
    """Returns every percentile that the gate will judge, with the share of the sentences it is judged on.

    Raises:
        RecipeError: a limit for a length bucket that the artifact does not have, or that no sentence runs at.
    """
    names = {artifact.name for artifact in timed}
    found: set[Need] = set()
    for budget, artifact in matches(artifacts, budgets):
        check_buckets(budget, artifact)
        if artifact.name not in names:
            continue
        lengths = lengths_of(artifact, sentences) if budget.by_length else []
        parts = {bucket: float(np.mean(in_bucket(lengths, bucket, artifact))) for bucket in budget.by_length}
        empty = [bucket for bucket, part in parts.items() if part == 0]
        if empty:
            raise RecipeError(
                f"a budget for {artifact.name} limits length {empty[0]}, at which none of the {len(sentences)} "
                "sentences runs; expected some",
                remedy="name sentences of that length (--sentences), or remove the limit",
            )
        found |= needs_of(budget, parts)
    return tuple(sorted(found, key=lambda need: (need.share, need.part)))


def revision(given: str | None = None) -> str:
    """Returns the source revision: what is given, what the CI system says, or git's HEAD; empty where none is known."""
    named = given or next((os.environ[name] for name in _REVISIONS if os.environ.get(name)), None)
    git = shutil.which("git")
    if named is not None or git is None:
        return named or ""
    done = subprocess.run([git, "rev-parse", "HEAD"], capture_output=True, text=True, check=False, timeout=_GIT_SECONDS)
    return done.stdout.strip() if done.returncode == 0 else ""


def hints_for(run: GateRun, artifacts: Sequence[Artifact], address: DeviceAddress, *, threads: int) -> tuple[Hint, ...]:
    """Returns what to try for every time that is over its budget."""
    by_name = {artifact.name: artifact for artifact in artifacts}
    measured = {item.subject: item for item in run.measurements}
    pairs = {name: (by_name[name], item) for name, item in measured.items() if name in by_name}
    hints: list[Hint] = []
    shares: dict[str, dict[str, float]] = {}
    for check in run.verdict.checks:
        if check.verdict != "over_budget" or check.artifact not in measured or check.over_budget_runs is None:
            continue
        artifact, measurement = pairs[check.artifact]
        if artifact.name not in shares:
            shares[artifact.name] = _operators(artifact, measurement, address, threads)
        evidence = Evidence(
            measurement=measurement,
            profile=address.profile,
            operators=shares[artifact.name],
            siblings={name: pair for name, pair in pairs.items() if name != artifact.name},
            reported=_reported(artifact),
        )
        hints += explain(check, artifact, evidence)
    return tuple(hints)


def _operators(artifact: Artifact, measurement: Measurement, address: DeviceAddress, threads: int) -> dict[str, float]:
    """Profiles an ONNX artifact at the length that takes most of its time, where this machine is the device."""
    if artifact.manifest.format != "onnx" or address.profile.name != HOST or address.transport != "local":
        return {}
    lengths, times = np.array(measurement.runs.length), np.array(measurement.runs.inference_ms)
    known = np.unique(lengths)
    longest = int(known[np.argmax([times[lengths == length].sum() for length in known])])
    try:
        return operator_shares(artifact, longest, threads=threads)
    except Exception as error:  # a profile is an extra: without it the verdict stands
        _LOG.warning("%s could not be profiled: %s", artifact.name, error)
        return {}


def _reported(artifact: Artifact) -> tuple[ArtifactRow, ...]:
    """Returns the rows of the run's report that the artifact belongs to; none where there is no such report."""
    try:
        text = (artifact.path.parent.parent / "report.json").read_bytes()
        return ReportData.model_validate_json(text).artifacts
    except (OSError, ValidationError):
        return ()
