"""A verdict as JUnit XML, which every CI system shows: over budget is a failure, anything undecided an error."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from compressor.core.verdict import Check, Verdict

_FORBIDDEN = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ELEMENTS = {"over_budget": "failure", "inconclusive": "error", "invalid": "error"}


def junit_xml(verdict: Verdict) -> str:
    """Returns the XML document. Nothing is ever reported as skipped: what was not decided was not proven."""
    outcomes = [check.verdict for check in verdict.checks]
    failures = outcomes.count("over_budget")
    errors = outcomes.count("inconclusive") + outcomes.count("invalid")
    counts = {"tests": str(len(outcomes)), "failures": str(failures), "errors": str(errors), "skipped": "0"}
    root = ElementTree.Element("testsuites", {"name": "compressor gate", **counts})
    suite = ElementTree.SubElement(root, "testsuite", {"name": "compressor gate", **counts})
    for check in verdict.checks:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            {"classname": _clean(f"{check.device}.{check.artifact}"), "name": check.name},
        )
        if check.verdict in _ELEMENTS:
            problem = ElementTree.SubElement(
                case, _ELEMENTS[check.verdict], {"type": check.verdict, "message": _clean(_message(check))}
            )
            problem.text = _clean(check.detail)
        else:
            ElementTree.SubElement(case, "system-out").text = _clean(f"{_message(check)}\n{check.detail}")
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _message(check: Check) -> str:
    found = "not known" if check.value is None else f"{check.value:.4g}"
    return f"{check.name} is {found}, budget {check.budget:g} ({check.verdict.replace('_', ' ')})"


def _clean(text: str) -> str:
    """Drops what XML 1.0 cannot hold."""
    return _FORBIDDEN.sub("", text)
