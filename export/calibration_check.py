"""Whether text is fit to find ranges on: a range observed on another language is a range for another language."""

from __future__ import annotations

from pathlib import Path

from compressor.core.errors import DataError, ModelError
from compressor.text import load_tokenizer
from export.calibration import Calibration

MOST_UNKNOWN = 0.1
"""Share of unknown pieces above which text is not in the tokenizer's language; ordinary text has well under 0.01."""
_UNKNOWN = ("[UNK]", "<unk>")


def check_calibration(calibration: Calibration, folder: Path, *, rows: int) -> None:
    """Looks at every sentence once, as the model will get it.

    Args:
        calibration: the text and its encoder.
        folder: checkpoint folder with the tokenizer.
        rows: rows of the model's table of word embeddings.

    Raises:
        DataError: more than 10 % of the pieces are unknown to the tokenizer.
        ModelError: the tokenizer gives ids that the model has no rows for.
    """
    tokenizer = load_tokenizer(folder)
    specials = {piece: tokenizer.token_to_id(piece) for piece in _UNKNOWN}
    unknown = next((number for number in specials.values() if number is not None), None)
    total = strange = 0
    for start in range(0, len(calibration.texts), 256):
        for item in calibration.encoder.encode(calibration.texts[start : start + 256]):
            if (largest := max(item.ids)) >= rows:
                raise ModelError(
                    f"the tokenizer gives the id {largest}; the model's word embeddings have {rows} rows",
                    remedy="put the tokenizer files that belong to the model beside its weights",
                )
            total += max(0, len(item) - 2)
            strange += sum(number == unknown for number in item.ids)
    if strange > MOST_UNKNOWN * max(total, 1):
        raise DataError(
            f"{strange / max(total, 1):.0%} of the calibration text's pieces are unknown to the tokenizer; expected at "
            f"most {MOST_UNKNOWN:.0%}: it is not in the model's language",
            remedy="pass --calibrate sentences like those the model will read",
        )
