"""A verdict: what a budget says of an artifact, with the numbers that decided it."""

from __future__ import annotations

from typing import Literal

from compressor.core.schema import Record

Outcome = Literal["pass", "over_budget", "inconclusive", "invalid"]

EXIT_CODES: dict[Outcome, int] = {"pass": 0, "over_budget": 1, "inconclusive": 3, "invalid": 4}
_WORST_FIRST: tuple[Outcome, ...] = ("over_budget", "invalid", "inconclusive", "pass")


class Check(Record):
    """One limit and what was found."""

    name: str
    """The budget's key: ``p95_ms``, ``size_mb``, ``accuracy_drop_points``, …"""
    device: str
    artifact: str
    budget: float
    value: float | None
    verdict: Outcome
    runs: int = 0
    """Timed runs behind the value; 0 for what is not a time."""
    over_budget_runs: int | None = None
    """How many of the runs exceeded the budget: what the exact binomial test looks at."""
    detail: str = ""


class Verdict(Record):
    """All checks of one gate run; the worst decides: a limit that is surely missed weighs more than a noisy machine."""

    verdict: Outcome
    checks: tuple[Check, ...]

    @classmethod
    def of(cls, checks: tuple[Check, ...]) -> Verdict:
        """Returns the verdict over ``checks``; no checks at all is ``invalid``: nothing was proven."""
        found = {check.verdict for check in checks}
        return cls(verdict=next((outcome for outcome in _WORST_FIRST if outcome in found), "invalid"), checks=checks)

    @property
    def exit_code(self) -> int:
        """The process exit code that the verdict stands for."""
        return EXIT_CODES[self.verdict]
