"""One adapter per architecture family, found by the ``model_type`` of a config. Adding a family is adding a file."""

from __future__ import annotations

from typing import Any

from compressor.core.errors import ModelError, nearest
from compressor.families import albert, bert, deberta_v2, distilbert, electra, mobilebert, roberta, xlm_roberta
from compressor.families.adapter import FamilyAdapter, LayerPaths

_MODULES = (albert, bert, deberta_v2, distilbert, electra, mobilebert, roberta, xlm_roberta)
ADAPTERS: dict[str, FamilyAdapter] = {module.ADAPTER.model_type: module.ADAPTER for module in _MODULES}


def adapter_for(config: Any) -> FamilyAdapter:
    """Returns the adapter for a transformers config.

    Raises:
        ModelError: the family is not one of those supported.
    """
    model_type = str(config.model_type)
    if model_type not in ADAPTERS:
        raise ModelError(
            f"model family '{model_type}' is not supported; expected one of {', '.join(sorted(ADAPTERS))}",
            remedy=nearest(model_type, ADAPTERS),
        )
    return ADAPTERS[model_type]


__all__ = ["ADAPTERS", "FamilyAdapter", "LayerPaths", "adapter_for"]
