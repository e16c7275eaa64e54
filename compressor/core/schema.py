"""The one base for every file this project reads or writes as structured data."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

Text = str | tuple[str, str]
"""One text, or a pair for two-text tasks."""


class Record(BaseModel):
    """A frozen, strict, keyword-only record: an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())
