"""A verdict as GitHub workflow commands: one annotation a limit that did not pass.

Format: "Workflow commands for GitHub Actions", section "Setting an error message"; its escapes are those of the
``@actions/core`` toolkit (``%``, carriage return and line feed; in properties also colon and comma).
"""

from __future__ import annotations

from compressor.core.verdict import Verdict

_LEVELS = {"over_budget": "error", "inconclusive": "warning", "invalid": "warning"}


def github_annotations(verdict: Verdict) -> str:
    """Returns one line a limit that did not pass; empty where all passed."""
    lines = []
    for check in verdict.checks:
        if check.verdict in _LEVELS:
            found = "not known" if check.value is None else f"{check.value:.4g}"
            title = f"{check.artifact} on {check.device}: {check.name} {check.verdict.replace('_', ' ')}"
            text = f"found {found}, budget {check.budget:g}: {check.detail}"
            lines.append(f"::{_LEVELS[check.verdict]} title={_property(title)}::{_data(text)}\n")
    return "".join(lines)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
