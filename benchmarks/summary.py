"""A verdict as a Markdown table, for a CI step's summary or a pull request."""

from __future__ import annotations

from benchmarks.gate_run import GateReport
from compressor.core.verdict import Outcome, Verdict

WORDS: dict[Outcome, str] = {
    "pass": "pass",
    "over_budget": "**over budget**",
    "inconclusive": "inconclusive",
    "invalid": "invalid",
}


def markdown_summary(verdict: Verdict) -> str:
    """Returns a heading with the verdict, one row a check and, of a gate, its plan and what to try."""
    lines = [
        f"### Latency and size gate: {WORDS[verdict.verdict]}",
        "",
        "| artifact | device | limit | budget | found | runs over | verdict | why |",
        "|---|---|---|---:|---:|---:|---|---|",
    ]
    for check in verdict.checks:
        value = "-" if check.value is None else f"{check.value:.4g}"
        over = "-" if check.over_budget_runs is None else f"{check.over_budget_runs} / {check.runs}"
        cells = [check.artifact, check.device, f"`{check.name}`", f"{check.budget:g}", value, over]
        lines.append("| " + " | ".join(map(_cell, [*cells, WORDS[check.verdict], check.detail])) + " |")
    if isinstance(verdict, GateReport):
        if verdict.plan:
            lines += ["", verdict.plan[0].upper() + verdict.plan[1:] + f"; looks taken: {verdict.looks}."]
        if verdict.hints:
            lines += ["", "What to try:", ""]
            lines += [f"- {hint.artifact}, `{hint.limit}`: {hint.text}" for hint in verdict.hints]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
