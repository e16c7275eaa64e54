"""Calls from Python are checked as options of the command line are: paths may be text, and wrong values are named."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from compressor.core.errors import UsageError
from compressor.core.objection import objection

P = ParamSpec("P")
R = TypeVar("R")


def checked(verb: Callable[P, R]) -> Callable[P, R]:
    """Returns ``verb`` with every argument made the type that its signature states.

    Raises:
        UsageError: when the result is called with a value that cannot be one; the message names the argument.
    """
    signature = inspect.signature(verb)

    @wraps(verb)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        bound = signature.bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            if not callable(value):  # what tells progress has no values to check
                bound.arguments[name] = _checked(verb, name, value)
        return verb(*bound.args, **bound.kwargs)

    return call


def _checked(verb: Callable[..., Any], name: str, value: Any) -> Any:
    try:
        return _adapter(verb, name).validate_python(value)
    except ValidationError as error:
        raise UsageError(
            objection(error, value).at(f"{verb.__name__}({name}=…)"), remedy=f"see help(compressor.{verb.__name__})"
        ) from None


@cache
def _adapter(verb: Callable[..., Any], name: str) -> TypeAdapter[Any]:
    return TypeAdapter(get_type_hints(verb)[name])
