"""Named errors: each says what was found, what was expected and what to do, and knows its exit code."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, ClassVar


class CompressorError(Exception):
    """An error that a user can cause or mend.

    Args:
        message: what was found and what was expected, in one sentence.
        remedy: what to do about it.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 2

    def __init__(self, message: str, *, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} ({self.remedy})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Lets an error travel between processes, whatever its constructor takes."""
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[CompressorError], args: tuple[Any, ...], state: dict[str, Any]) -> CompressorError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class UsageError(CompressorError):
    """An option or argument that makes no sense."""

    code = "usage"


class RecipeError(CompressorError):
    """A recipe or budget file that does not follow its schema."""

    code = "recipe"


class DataError(CompressorError):
    """Labelled text that cannot be read as such; the message names file and row."""

    code = "data"


class ModelError(CompressorError):
    """A folder that holds no model this project loads, or one whose files disagree."""

    code = "model"


class ArtifactError(CompressorError):
    """An artifact that is damaged, foreign or asked for something it cannot do."""

    code = "artifact"


class FolderError(CompressorError):
    """An output folder that this project did not write, or that cannot be written."""

    code = "folder"


class MissingExtraError(CompressorError):
    """An optional package that is needed and not installed."""

    code = "missing_extra"

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"the package '{package}' is not installed; it was expected for this step",
            remedy=f"pip install 'compressor[{extra}]'",
        )
        self.extra = extra


class IllegalOnDeviceError(CompressorError):
    """A format or precision that the device has no way to run."""

    code = "illegal_on_device"


class StageError(CompressorError):
    """A stage whose result breaks the promise it made (a defect, or weights that are not finite)."""

    code = "stage"
    exit_code = 1


class ParityError(CompressorError):
    """A converted file whose outputs are not those of the checkpoint it came from."""

    code = "parity"
    exit_code = 1


class AcceptanceError(CompressorError):
    """A converted file that works but misses an acceptance limit (accuracy, size, latency)."""

    code = "acceptance"
    exit_code = 1


class DeviceError(CompressorError):
    """A device that cannot be reached or is not in a condition in which a time means anything."""

    code = "device"
    exit_code = 4


def nearest(word: str, known: Iterable[str]) -> str:
    """Returns ``"did you mean 'x'?"`` for the closest known word, else the list of all known words."""
    names = sorted(known)
    close = get_close_matches(word, names, n=1, cutoff=0.5)
    return f"did you mean '{close[0]}'?" if close else f"known: {', '.join(names)}"
