"""Compress a BERT-family model and prove the result on the device it is for.

The verbs of the command line are here as functions: :func:`run`, :func:`plan`, :func:`convert`, :func:`bundle`,
:func:`evaluate`, :func:`predict`, :func:`inspect`, :func:`compare`, :func:`bench`,
:func:`gate` and :func:`load_compressed`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compressor.app.api import (
        bench,
        bundle,
        compare,
        convert,
        evaluate,
        gate,
        inspect,
        load_compressed,
        plan,
        predict,
        run,
    )

__all__ = [
    "bench",
    "bundle",
    "compare",
    "convert",
    "evaluate",
    "gate",
    "inspect",
    "load_compressed",
    "plan",
    "predict",
    "run",
]


def __getattr__(name: str) -> Any:
    """Imports the verbs when first asked for, so that ``compressor.core`` alone stays light."""
    if name not in __all__:
        raise AttributeError(f"module 'compressor' has no attribute '{name}'")
    from compressor.app import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
