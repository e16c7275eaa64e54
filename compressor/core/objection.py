"""What a schema objects to, in plain words: the place of the value, what was found there and what is expected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

_LONGEST = 60
"""Characters of a value that a message shows."""
_WORDS = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "greater_than": "a number above {gt:g}",
    "greater_than_equal": "a number of at least {ge:g}",
    "less_than": "a number below {lt:g}",
    "less_than_equal": "a number of at most {le:g}",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "string_too_short": "text of at least {min_length} characters",
    "path_type": "a path",
    "tuple_type": "a list",
    "list_type": "a list",
    "sequence_str": "a list, not one text",
    "dict_type": "a mapping of keys",
    "model_type": "a mapping of keys",
    "model_attributes_type": "a mapping of keys",
    "too_short": "at least {min_length}, not {actual_length}",
    "too_long": "at most {max_length}, not {actual_length}",
    "literal_error": "{expected}",
    "union_tag_invalid": "one of {expected_tags}",
    "union_tag_not_found": "a mapping with the key {discriminator}",
}
"""Kinds of pydantic's errors whose own words are those of a program, with the figures each comes with."""


@dataclass(frozen=True, kw_only=True)
class Objection:
    """The first thing that does not follow a schema."""

    kind: str
    """pydantic's word for it, e.g. ``extra_forbidden`` for an unknown key."""
    keys: tuple[int | str, ...]
    """Keys and positions that lead to it, as pydantic has them."""
    place: str
    """The same as a reader of the file writes it, e.g. ``stages[1].to``; empty for the whole."""
    text: str
    """What was found and what is expected."""

    def at(self, where: str, below: str = "") -> str:
        """Returns the whole message: the file, the place in it (``below`` leads to the value), and what is wrong."""
        place = ".".join(filter(None, (below, self.place)))
        return ": ".join(filter(None, (where, place, self.text)))


def objection(error: ValidationError, value: Any) -> Objection:
    """Returns the first objection to ``value``; an unknown key goes before all others.

    A misspelt required key would otherwise be reported as missing.
    """
    first = min(error.errors(), key=lambda item: item["type"] != "extra_forbidden")
    return Objection(kind=first["type"], keys=first["loc"], place=_place(first, value), text=_text(first))


def _place(item: ErrorDetails, value: Any) -> str:
    """Leaves out what stands in no file: the kinds among which a union chooses."""
    place = ""
    for number, part in enumerate(item["loc"], 1):
        absent = number == len(item["loc"]) and item["type"] == "missing"
        if isinstance(value, Mapping) and (part in value or absent):
            place, value = f"{place}.{part}", value.get(part)
        elif isinstance(value, list | tuple) and isinstance(part, int):
            place, value = f"{place}[{part}]", value[part] if part < len(value) else None
    return place.removeprefix(".")


def _text(item: ErrorDetails) -> str:
    kind, figures = item["type"], item.get("ctx", {})
    if kind == "extra_forbidden":
        return "unknown key"
    if kind == "missing":
        return "the key is missing"
    if kind == "value_error":  # the words of our own validators
        return str(figures["error"])
    if kind == "json_invalid":
        return f"not valid JSON: {figures['error']}"
    expected = item["msg"].removeprefix("Input should be ")
    if kind in _WORDS:
        expected = _WORDS[kind].format(**figures)
    return f"found {_shown(item['input'])}; expected {expected}"


def _shown(value: Any) -> str:
    """Returns a value as a message names it; a long one by its beginning."""
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
