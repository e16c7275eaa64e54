"""A commented ``budgets.yaml`` for an artifact: every key there is, and the ones that can be proposed set."""

from __future__ import annotations

from benchmarks.statistics import LatencySummary
from compressor.core.artifact import Artifact

HEADROOM = 1.25
"""A proposed limit is this much above what was found, so that the noise of a shared machine does not break it."""
_DROP_HEADROOM = 0.5
"""Percentage points."""


def budget_example(artifact: Artifact, device: str, times: LatencySummary | None = None) -> str:
    """Returns the text of a budget file that the artifact passes.

    Args:
        artifact: sizes and accuracy are its manifest's; its lengths appear as buckets.
        device: a profile's name.
        times: its times there; where it is None, limits on times stand as comments.
    """
    reference = artifact.manifest.reference
    against = reference.get("teacher", reference.get("checkpoint"))
    drop = None
    if against is not None and "artifact" in reference:
        drop = _rounded(max(100 * (against - reference["artifact"]), 0.0) + _DROP_HEADROOM)
    length = artifact.io.lengths[0] if artifact.io.lengths else 32
    p95 = None if times is None else _rounded(HEADROOM * times.p95_ms)
    lines = [
        "# What artifacts may cost. Every key but 'device' is optional; units stand in the names, values are numbers.",
        "# An unknown key is an error. Checked by: compressor gate ARTIFACT --budget budgets.yaml --device DEVICE",
        "version: 1",
        "budgets:",
        f"  - device: {device}    # a profile's name: compressor devices list",
        f'    artifact: "{artifact.name}"    # which artifact folders: a name, or a pattern with * and ?',
        "    # Inference per sentence, each at its own length, in milliseconds. p99 needs at least 299 runs.",
        _key("p50_ms", None if times is None else _rounded(HEADROOM * times.p50_ms), 2.5, active=False),
        _key("p95_ms", p95, 5.0, active=p95 is not None),
        "    # p90_ms: 4.0",
        "    # p99_ms: 8.0",
        "    # total_p95_ms: 5.5          # tokenisation included",
        "    # by_length:                 # limits for the sentences that run at one length bucket (tokens)",
        f"    #   {length}: {{p95_ms: 2.0}}",
        "    # First inference of a fresh process, milliseconds.",
        _key("cold_ms", None if times is None else _rounded(2 * times.cold_ms), 40.0, active=False),
        "    # Model files only, in units of 10^6 bytes.",
        _key("size_mb", _rounded(1.05 * artifact.size_mb), 20.0, active=True),
        "    # peak_memory_mb: 150.0      # resident memory of the measuring process, runtime included (10^6 bytes)",
        "    # The metric on the evaluation data, from the manifest: points below the teacher, or a fraction.",
        _key("accuracy_drop_points", drop, 1.0, active=drop is not None),
        "    # accuracy_floor: 0.90",
        "    # For a file compiled for an NPU: least share of operators that run on it, a fraction.",
        "    # delegated: 1.0",
        "    # Percent slower than a baseline (--baseline ARTIFACT_OR_MEASUREMENT).",
        "    # p50_regression_percent: 5.0",
        "    # p95_regression_percent: 10.0",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _key(name: str, value: float | None, example: float, *, active: bool) -> str:
    return f"    {'' if active else '# '}{name}: {example if value is None else value}"


def _rounded(value: float) -> float:
    """Returns a value to three digits, never zero."""
    return max(float(f"{value:.3g}"), 0.001)
