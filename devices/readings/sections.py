"""The form in which a device answers: parts of text, each under a line that names it."""

from __future__ import annotations

MARK = "=====compressor "


def section(name: str, command: str) -> str:
    """Returns the shell lines that print what ``command`` says under ``name``; its failure is an empty part."""
    return f"echo '{MARK}{name}'\n{{ {command} ; }} 2>/dev/null\n"


def sections(text: str) -> dict[str, str]:
    """Returns {name: text} of an answer."""
    found: dict[str, str] = {}
    for part in text.split(MARK)[1:]:
        name, _, body = part.partition("\n")
        found[name.strip()] = body.replace("\r\n", "\n")
    return found


def number(text: str | None) -> float | None:
    """Returns a text as a number, or None where it is none."""
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None
