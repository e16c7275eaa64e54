"""How each result looks in a terminal; one function a result, nothing decided here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from compressor.app import console
from compressor.core.wording import paragraphs, plain, reading, step, threads, words

if TYPE_CHECKING:  # A command loads only what it shows.
    from benchmarks.statistics import LatencySummary
    from benchmarks.trend import Series
    from compressor.app.doctor import Diagnosis, Part
    from compressor.app.inspection import Inspection
    from compressor.app.judge import Comparison
    from compressor.app.latency import Probe
    from compressor.app.planning import Plan
    from compressor.app.runs import RunOutcome
    from compressor.core.artifact import Artifact
    from compressor.core.device import DeviceProfile
    from compressor.core.verdict import Verdict
    from compressor.evaluation import Evaluation
    from compressor.tasks.answers import Answer
    from export.android.bundle import Bundle
    from export.onnx.text_bundle import TextBundle

_MOST_FLIPS = 20
_WIDE = 110
"""Columns from which a table has room for sentences."""
_STYLES = {"pass": "bold green", "over_budget": "bold red", "inconclusive": "bold yellow", "invalid": "bold yellow"}
_CLOCK = "clock_s"
"""A reading's own time, which means nothing to people."""


def mb(size_bytes: int) -> str:
    """Returns bytes as a number of 10^6 bytes."""
    return f"{size_bytes / 1e6:.2f}"


def run(outcome: RunOutcome) -> None:
    """The table of a run: stage by stage, then artifact by artifact, what is fastest, then the verdict."""
    from benchmarks.report.headline import headline_lines

    report = outcome.report
    console.table(
        ("stage", ">parameters", ">MB", f">{report.metric_name} %", ">seconds", "status"),
        [
            (row.id, None if row.parameters is None else f"{row.parameters:,}",
             None if row.size_mb is None else f"{row.size_mb:.2f}",
             _percent(row.metric), f"{row.seconds:.0f}", row.status)
            for row in report.stages
        ],
    )  # fmt: skip
    console.stdout.print()
    console.table(
        ("artifact", "precision", ">MB", f">{report.metric_name} %", ">p50 ms", ">p95 ms", "status"),
        [
            (row.name, row.precision, f"{row.size_mb:.2f}", _percent(row.accuracy), _ms(row.p50_ms), _ms(row.p95_ms),
             words(row.status) if row.p50_ms else ", ".join(filter(None, (words(row.status), row.note))))
            for row in report.artifacts
        ]
        + [
            (row.name, row.runtime, f"{row.size_mb:.2f}" if row.size_mb is not None else None,
             _percent(row.accuracy), _ms(row.p50_ms), _ms(row.p95_ms), "baseline")
            for row in report.baselines
        ],
    )  # fmt: skip
    console.stdout.print()
    for line in headline_lines(report):
        console.stdout.print(line)
    console.stdout.print()
    if outcome.verdict is not None:
        verdict(outcome.verdict)
    console.stdout.print(f"report: {outcome.folder / 'report.html'}")


def plan(planned: Plan) -> None:
    """What would be done."""
    console.table(
        ("stage", ">parameters", ">MB fp32", "would", "settings"),
        [
            (stage.id, f"{stage.parameters:,}", mb(4 * stage.parameters), "keep" if stage.cached else "run",
             ", ".join(f"{name}: {plain(value)}" for name, value in stage.settings.items()))
            for stage in planned.stages
        ],
        whole=("stage",),
    )  # fmt: skip
    for line in planned.artifacts:
        console.stdout.print(f"{line.name}: about {mb(line.estimated_bytes)} MB")
    for refusal in planned.refused:
        reason = f"{refusal.reason}; use {refusal.instead}"
        console.stdout.print(f"not on {refusal.device}: {refusal.what}: {reason}")


def artifact(made: Artifact) -> None:
    """One artifact with what was proven of it."""
    from compressor.tasks import HEADS
    from export.bundle import read_parity

    manifest, parity = made.manifest, read_parity(made)
    rows: list[tuple[str, object]] = [
        ("artifact", made.path),
        ("precision found", f"{manifest.precision} ({_counts(manifest.statistics.gemm_types)})"),
        ("size", f"{made.size_mb:.2f} MB"),
        ("parity", f"largest error {parity.max_error:.1e} of the outputs' spread, "
                   f"{parity.agrees_on}: {parity.label_agreement:.1%}, on {parity.sentences} sentences"),
    ]  # fmt: skip
    if "artifact" in manifest.reference:
        rows.append((HEADS[made.io.task].measures, f"{manifest.reference['artifact']:.2%} "
                                 f"(checkpoint {manifest.reference['checkpoint']:.2%})"))  # fmt: skip
    if "artifact_ece" in manifest.reference:
        rows.append(("calibration error", f"{manifest.reference['artifact_ece']:.4f} "
                                          f"(checkpoint {manifest.reference['checkpoint_ece']:.4f})"))  # fmt: skip
    rows += [("tried", f"{attempt['rung']}: {attempt['reason']}") for attempt in manifest.attempts]
    rows += [("note", note) for note in manifest.notes]
    console.table(("", ""), rows)


def text_bundle(made: TextBundle) -> None:
    """A model that takes text, and on which texts it is not its tokenizer's equal."""
    same = made.checked_texts - len(made.other_answers)
    console.table(
        ("", ""),
        [
            ("model", f"{made.model_file}, {made.precision}, takes text, {made.max_tokens} tokens of it at most"),
            ("checked", f"{same} of {made.checked_texts} sentences have the artifact's answer to the bit"),
            ("cut otherwise", "\n".join(text[:60] for text in (*made.other_answers[:5], *made.other_probes)) or "none"),
            ("files", ", ".join(made.files)),
        ],
    )


def bundle(made: Bundle | TextBundle) -> None:
    """A bundle's files, and what delegates would do with its model."""
    from export.onnx.text_bundle import TextBundle

    if isinstance(made, TextBundle):
        text_bundle(made)
        return
    mediapipe = f"{made.mediapipe_file} ({made.mediapipe_length} tokens)" if made.mediapipe_file else "none: "
    console.table(
        ("", ""),
        [
            ("model", f"{made.model_file}, {made.precision}, {', '.join(map(str, made.lengths))} tokens"),
            ("MediaPipe", mediapipe + (made.mediapipe_refusal or "")),
            ("tokenizer test vectors", made.tokenizer_cases),
            ("files", ", ".join(made.files)),
            *([("delegates", paragraphs(made.delegates))] if made.delegates else ()),
        ],
    )


def latency(summary: LatencySummary) -> None:
    """Per-sentence latency."""
    pinned = "" if summary.cpus is None else f" on cores {summary.cpus}"
    console.stdout.print(
        f"{summary.artifact} on {summary.device}, {summary.runtime}, {threads(summary.threads)}{pinned}, "
        f"{summary.runs} runs in {summary.processes} processes"
    )
    console.table(
        ("", ">p50 ms", ">p90 ms", ">p95 ms", ">p99 ms"),
        [
            ("inference", *map(_ms, (summary.p50_ms, summary.p90_ms, summary.p95_ms, summary.p99_ms))),
            ("with tokenisation", _ms(summary.total_p50_ms), None, _ms(summary.total_p95_ms), None),
        ],
    )
    console.table(
        (">tokens", ">runs", ">p50 ms", ">p95 ms"),
        [(length, row.runs, _ms(row.p50_ms), _ms(row.p95_ms)) for length, row in summary.by_length.items()],
    )
    for note in (*summary.notes, *filter(None, (summary.invalid_reason,))):
        console.say(f"note: {note}")


def written(made: dict[str, str]) -> None:
    """What was written where."""
    for what, path in made.items():
        console.stdout.print(f"{what}: {path}")


def history(found: Sequence[Series]) -> None:
    """Each series with its measurements and where its level changed."""
    from benchmarks.report.text import moment

    for number, series in enumerate(found):
        if number:
            console.stdout.print()
        console.table(
            ("recorded", "revision", ">p50 ms", ">p95 ms", ">runs", "verdict"),
            [
                (moment(entry.recorded), entry.commit_id[:10] or None, _ms(entry.p50_ms), _ms(entry.p95_ms), entry.runs,
                 words(entry.verdict or "") or None)
                for entry in series.entries
            ],
            title=f"{series.name}, {series.setting}",
        )  # fmt: skip
        for change in series.changes:
            console.stdout.print(f"changed {change.text}")
    if not found:
        console.stdout.print("nothing was measured")


def verdict(found: Verdict) -> None:
    """Every check, then the verdict; on a narrow terminal the reasons of what did not pass stand below the table."""
    is_wide = console.stdout.width >= _WIDE
    head = ("artifact", "device", "limit", ">budget", ">found", "verdict")
    rows = [
        (check.artifact, check.device, check.name, f"{check.budget:g}",
         None if check.value is None else f"{check.value:.4g}", words(check.verdict), check.detail)
        for check in found.checks
    ]  # fmt: skip
    console.table(
        (*head, "why") if is_wide else head, rows if is_wide else [row[:-1] for row in rows], whole=("limit",)
    )
    if not is_wide:
        for check in found.checks:
            if check.verdict != "pass":
                place = f"{check.artifact} on {check.device}, {check.name}"
                console.stdout.print(f"{place} is {words(check.verdict)}: {check.detail}")
    for hint in getattr(found, "hints", ()):
        console.stdout.print(f"{hint.artifact}, {hint.limit}: {hint.text}")
    console.stdout.print(f"verdict: {words(found.verdict)}", style=_STYLES[found.verdict])


def evaluation(found: Evaluation) -> None:
    """Task metrics."""
    rows: list[tuple[str, object]] = [(words(found.metric), _score(found))]
    if found.macro_f1 is not None:
        rows.append(("macro F1", f"{found.macro_f1:.4f}"))
    if found.expected_calibration_error is not None:
        rows.append(("calibration error", f"{found.expected_calibration_error:.4f}"))
    rows += [(words(name), f"{value:.4f}") for name, value in found.details.items()]
    floor = "majority class" if found.metric == "accuracy" else "without looking at the text"
    rows += [(floor, f"{found.majority_class:.2%}"), ("truncated sentences", found.truncated)]
    if found.sampled_from:
        rows.append(("sample", f"{found.examples} of {found.sampled_from}, seeded"))
    if found.simulated:
        rows.append(("answered by", "the vendor's simulator of the device, not hardware"))
    console.table(("", ""), rows)


def predictions(found: Sequence[Answer]) -> None:
    """Answers with their probability."""
    rows = []
    for item in found:
        answer, score = item.shown
        text = item.text if isinstance(item.text, str) else " | ".join(item.text)
        rows.append((answer, None if score is None else f"{score:.3f}", text))
    console.table(("answer", ">probability", "text"), rows)


def inspection(found: Inspection) -> None:
    """What is in one file."""
    console.table(("", ""), _inspection_rows(found))


def comparison(found: Comparison) -> None:
    """Two files side by side."""
    left, right = (dict(_inspection_rows(side, is_brief=True)) for side in (found.left, found.right))
    for side, result in ((left, found.left_evaluation), (right, found.right_evaluation)):
        if result is not None:
            side[words(result.metric)] = _score(result)
    console.table(("", "left", "right"), [(name, left.get(name), right.get(name)) for name in {**left, **right}])
    if found.left_evaluation is None or found.left_evaluation.metric != "accuracy":
        return
    console.stdout.print(f"\n{len(found.flips)} of {found.left_evaluation.examples} answers differ")
    if found.flips:
        console.table(
            ("expected", "left", "right", "text"),
            [(flip.expected, flip.left, flip.right, flip.text) for flip in found.flips[:_MOST_FLIPS]],
        )


def profiles(found: Sequence[DeviceProfile]) -> None:
    """Kinds of device."""
    console.table(
        ("device", "what it is", "formats", "precisions, in the order tried"),
        [(item.name, item.title, ", ".join(item.formats), ", ".join(item.ladder)) for item in found],
        whole=("device",),
    )


def probe(found: Probe) -> None:
    """Fingerprint and condition of a device."""
    told = {
        name: value
        for name, value in found.conditions.model_dump(exclude_none=True, exclude={_CLOCK}).items()
        if value not in ((), {})
    }
    facts = {**found.fingerprint, **told}
    console.table(("", ""), [("device", found.device), *(reading(name, value) for name, value in facts.items())])
    for note in found.judgement.notes:
        console.say(f"note: {note}")
    reason = found.judgement.invalid_reason
    console.stdout.print("measurable" if reason is None else f"not measurable: {reason}")


def diagnosis(found: Diagnosis) -> None:
    """What is installed."""

    def row(part: Part) -> tuple[str, str, str]:
        return (
            part.name,
            part.found or "missing",
            part.needed_for if part.found else f"{part.needed_for}: {part.remedy}",
        )

    console.table(("", ""), [reading(name, value) for name, value in found.machine.items()])
    console.stdout.print()
    console.table(("package", "found", "for"), [row(part) for part in (*found.required, *found.optional)])


def _inspection_rows(found: Inspection, *, is_brief: bool = False) -> list[tuple[str, object]]:
    rows: list[tuple[str, object]] = [
        ("format", found.format),
        ("precision found", f"{found.precision} ({_counts(found.gemm_types)})"),
        ("size", f"{mb(found.size_bytes)} MB"),
        ("unique parameters", f"{found.parameters:,} in {mb(found.unique_parameter_bytes)} MB"),
        ("lengths", _lengths(found)),
    ]
    if found.parameter_bytes:
        stored = (f"{mb(size)} MB {name}" for name, size in sorted(found.parameter_bytes.items(), key=lambda x: -x[1]))
        rows.append(("stored as", ", ".join(stored)))
    if found.operator_types:
        rows.append(("weights by operator", "; ".join(f"{n}: {_counts(t)}" for n, t in found.operator_types.items())))
    if found.opset is not None:
        rows.append(("opset", found.opset))
    if found.operators:
        most = sorted(found.operators.items(), key=lambda item: -item[1])
        rows.append(("operators", ", ".join(f"{name} {count}" for name, count in most)))
    if found.labels:
        rows.append(("labels", ", ".join(found.labels)))
    if found.delegates and is_brief:
        taken = {item.title: f"takes {item.taken} of {item.operators} operators" for item in found.delegates}
        rows.append(("delegates, by rule", paragraphs(taken)))
    elif found.delegates:
        from export.tflite.delegates import delegate_lines

        rows.append(("delegates", paragraphs(delegate_lines(found.delegates))))
    if found.history:
        rows.append(("made by", "\n".join(map(step, found.history))))
    return rows


def _lengths(found: Inspection) -> str:
    if found.lengths:
        return ", ".join(map(str, found.lengths))
    return "any" if found.max_tokens is None else f"any up to {found.max_tokens} tokens"


def _counts(types: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in types.items() if count) or "no matrix products"


def _score(found: Evaluation) -> str:
    right = f"{found.correct} of {found.examples}" if found.metric == "accuracy" else f"{found.examples} examples"
    return f"{found.value:.2%} ({right})"


def _ms(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{100 * value:.2f}"
