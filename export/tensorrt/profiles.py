"""Length buckets as TensorRT optimisation profiles."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from compressor.core.errors import ArtifactError, UsageError
from export.backend import ConversionSpec
from export.tensorrt.device.build_engine import Profile

METADATA_KEY = "compressor.profiles"
"""Where the ONNX file states its profiles, as ``min:opt:max`` token counts joined by commas."""


def profiles_for(lengths: Sequence[int]) -> tuple[Profile, ...]:
    """Returns one profile a bucket, tuned for the full bucket and legal for every length that falls into it.

    Narrow ranges matter: one wide profile makes TensorRT choose kernels that are slow at every length.
    """
    ordered = sorted(lengths)
    starts = [1, *(length + 1 for length in ordered[:-1])]
    return tuple(Profile(start, length, length) for start, length in zip(starts, ordered, strict=True))


def profiles_of(spec: ConversionSpec) -> tuple[Profile, ...]:
    """Returns the profiles of a conversion: those that were asked for, or one a length bucket.

    Raises:
        UsageError: see :func:`check_profiles`.
    """
    if not spec.profiles:
        return profiles_for(spec.lengths)
    return check_profiles(tuple(Profile(*counts) for counts in spec.profiles), max_tokens=spec.max_tokens)


def check_profiles(profiles: Sequence[Profile], *, max_tokens: int | None = None) -> tuple[Profile, ...]:
    """Returns the profiles, checked.

    Args:
        profiles: at least one.
        max_tokens: the most tokens the model takes; None: not known yet.

    Raises:
        UsageError: min <= opt <= max does not hold, a profile ends no later than the one before it or begins earlier,
            or the last one reaches beyond the model's tokens.
    """
    text = to_text(profiles)
    for profile in profiles:
        if not 1 <= profile.min_tokens <= profile.opt_tokens <= profile.max_tokens:
            raise UsageError(
                f"profile {to_text([profile])}: expected 1 <= min <= opt <= max tokens",
                remedy="write min:opt:max, for example 1:16:32",
            )
    for before, after in pairwise(profiles):
        if after.max_tokens <= before.max_tokens or after.min_tokens < before.min_tokens:
            raise UsageError(
                f"profiles {text}: {to_text([after])} does not come after {to_text([before])}",
                remedy="list them by ascending length, for example 1:16:32,33:64:128",
            )
    if not profiles or (max_tokens is not None and profiles[-1].max_tokens > max_tokens):
        raise UsageError(
            f"profiles {text or 'none'}: expected at least one, and none beyond {max_tokens} tokens, the most this "
            "model takes",
            remedy=f"end the last profile at {max_tokens}",
        )
    return tuple(profiles)


def parse_profiles(text: str) -> tuple[Profile, ...]:
    """Reads ``--profiles``: ``min:opt:max`` token counts joined by commas.

    Raises:
        UsageError: the text is something else, or see :func:`check_profiles`.
    """
    try:
        found = from_text(text)
    except ArtifactError:
        raise UsageError(
            f"--profiles {text}: expected min:opt:max token counts joined by commas",
            remedy="pass for example 1:16:32,33:64:128",
        ) from None
    return check_profiles(found)


def whole_range(profiles: Sequence[Profile]) -> Profile:
    """Returns one profile over all lengths, tuned for the middle bucket."""
    ordered = sorted(profiles)
    return Profile(ordered[0].min_tokens, ordered[len(ordered) // 2].opt_tokens, ordered[-1].max_tokens)


def to_text(profiles: Sequence[Profile]) -> str:
    """Returns ``1:16:16,17:32:32``."""
    return ",".join(":".join(map(str, profile)) for profile in profiles)


def from_text(text: str) -> tuple[Profile, ...]:
    """Reads the text of :func:`to_text`; an empty text is no profiles.

    Raises:
        ArtifactError: the text is something else.
    """
    try:
        found = tuple(Profile(*(int(count) for count in part.split(":"))) for part in text.split(",") if part)
    except (ValueError, TypeError) as error:
        raise ArtifactError(
            f"the model states the profiles '{text}'; expected min:opt:max token counts joined by commas",
            remedy="convert again",
        ) from error
    return found
