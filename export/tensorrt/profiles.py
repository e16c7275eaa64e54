"""Length buckets as TensorRT optimisation profiles."""

from __future__ import annotations

from collections.abc import Sequence

from compressor.core.errors import ArtifactError
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
