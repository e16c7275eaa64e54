"""Parity: a converted file against the checkpoint it came from, on text, at every length, with padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from compressor.core.artifact import Precision
from compressor.core.errors import ParityError
from compressor.core.schema import Record, Text
from compressor.text import TOKEN_TYPE_IDS, Batch, SentenceEncoder
from export.backend import Predictor

TOLERANCE: dict[Precision, float] = {"fp32": 1e-4, "fp16": 1e-2}
"""Largest error in units of the logits' spread. INT8 is judged by signal-to-noise here and by its task score later."""
NPU_TOLERANCE: dict[Precision, float] = {"fp32": 1e-4, "fp16": 5e-2}
"""The same where half precision is also what sums are kept in, as Hexagon does it."""
MIN_SIGNAL_TO_NOISE_DB = 10.0
"""Below it a quantised file does not follow its model at all: the error has a third of the signal's amplitude."""
SENTENCES_PER_LENGTH = 16


class LengthParity(Record):
    """Errors at one length, in units of the spread of the reference logits."""

    length: int
    sentences: int
    max_error: float
    mean_error: float
    p50_error: float
    p99_error: float
    label_agreement: float


class Parity(Record):
    """``parity.json``: what was compared and what was found."""

    precision: Precision
    runtime: str
    text: str
    """Where the sentences come from."""
    spread: float
    """Standard deviation of the reference logits over all sentences and labels: the unit of every error."""
    max_error: float
    tolerance: float | None
    signal_to_noise_db: float
    label_agreement: float
    sentences: int
    finite: bool
    repeatable: bool
    """The same bits when the same inputs are handed over again, in another order of names."""
    lengths: tuple[LengthParity, ...]


@dataclass(frozen=True)
class ParityCase:
    """Padded sentences of one length and the reference's logits (sentences, labels)."""

    length: int
    batch: Batch
    reference: np.ndarray

    def first(self, count: int) -> ParityCase:
        """Returns ``count`` of the sentences, from all over the case: half leave padding, half fill the length."""
        step = max(1, len(self.reference) // count)
        rows = slice(0, step * count, step)
        return ParityCase(self.length, {name: array[rows] for name, array in self.batch.items()}, self.reference[rows])


def parity_cases(
    model: nn.Module, encoder: SentenceEncoder, texts: Sequence[Text], lengths: Sequence[int], *, token_types: bool
) -> tuple[ParityCase, ...]:
    """Runs the PyTorch model in eager FP32 on padded real text.

    Every length gets sentences that leave padding and, made by joining neighbours, some that fill it.

    Args:
        model: the checkpoint's model, eager, in evaluation mode.
        encoder: its tokenizer.
        texts: real sentences (or pairs).
        lengths: the lengths to check.
        token_types: whether the model takes ``token_type_ids``.
    """
    cases = []
    for length in lengths:
        chosen = _texts_for(length, encoder, texts)
        shortened = [item if len(item) <= length else None for item in encoder.encode(chosen)]
        batch = encoder.pad([item for item in shortened if item is not None], length)
        feeds = {
            name: torch.from_numpy(value) for name, value in batch.items() if token_types or name != TOKEN_TYPE_IDS
        }
        with torch.inference_mode():
            cases.append(ParityCase(length, batch, model(**feeds).logits.float().numpy()))
    return tuple(cases)


def compare(
    cases: Sequence[ParityCase], predictor: Predictor, precision: Precision, *, text: str, simulated: bool = False
) -> Parity:
    """Returns the error statistics of a file over all cases; decides nothing.

    ``simulated``: the predictor stands for an NPU, which accumulates in half precision too.
    """
    found = [predictor.logits(case.batch) for case in cases]
    reference = np.concatenate([case.reference for case in cases])
    everything = np.concatenate(found)
    spread = float(reference.std()) or 1.0
    noise = float(np.square(everything - reference).mean())
    signal = float(np.square(reference - reference.mean()).mean())
    backwards: Batch = dict(reversed(list(cases[0].batch.items())))
    return Parity(
        precision=precision,
        runtime=predictor.runtime,
        text=text,
        spread=spread,
        max_error=float(np.abs(everything - reference).max()) / spread,
        tolerance=(NPU_TOLERANCE if simulated else TOLERANCE).get(precision),
        signal_to_noise_db=round(10 * float(np.log10(signal / noise)), 2) if noise and signal else 999.0,
        label_agreement=_agreement(everything, reference),
        sentences=len(reference),
        finite=bool(np.isfinite(everything).all()),
        repeatable=bool(np.array_equal(predictor.logits(backwards), found[0])),
        lengths=tuple(_at_length(case, logits, spread) for case, logits in zip(cases, found, strict=True)),
    )


def require_parity(parity: Parity, name: str) -> None:
    """Raises ParityError when a file does not give its model's answers.

    Finiteness comes first (a NaN compares as nothing), then repeatability, then the size of the error.
    """
    if not parity.finite:
        raise ParityError(
            f"{name} gives NaN or infinite logits; expected finite ones as PyTorch gives",
            remedy="choose a safer precision, or report this model",
        )
    if not parity.repeatable:
        raise ParityError(
            f"{name} answers differently when the same inputs are handed over again, in another order of names",
            remedy="report this model: its inputs are fed by position, or its runtime is not deterministic",
        )
    if parity.tolerance is not None and not parity.max_error <= parity.tolerance:
        worst = max(parity.lengths, key=lambda item: item.max_error)
        raise ParityError(
            f"{name} differs from PyTorch by {parity.max_error:.2e} of the logits' spread (at {worst.length} tokens); "
            f"expected at most {parity.tolerance:.0e}",
            remedy="choose a safer precision, or report this model",
        )
    if parity.tolerance is None and not parity.signal_to_noise_db >= MIN_SIGNAL_TO_NOISE_DB:
        raise ParityError(
            f"{name} has a signal-to-noise ratio of {parity.signal_to_noise_db:.1f} dB against PyTorch; "
            f"expected at least {MIN_SIGNAL_TO_NOISE_DB:.0f} dB",
            remedy="choose a safer precision",
        )


def _at_length(case: ParityCase, logits: np.ndarray, spread: float) -> LengthParity:
    error = np.abs(logits - case.reference) / spread
    return LengthParity(
        length=case.length,
        sentences=len(error),
        max_error=float(error.max()),
        mean_error=float(error.mean()),
        p50_error=float(np.quantile(error, 0.5)),
        p99_error=float(np.quantile(error, 0.99)),
        label_agreement=_agreement(logits, case.reference),
    )


def _agreement(found: np.ndarray, reference: np.ndarray) -> float:
    return float((found.argmax(axis=-1) == reference.argmax(axis=-1)).mean())


def _texts_for(length: int, encoder: SentenceEncoder, texts: Sequence[Text]) -> list[Text]:
    """Returns sentences that fit ``length``: half as they are, half joined until the next would not fit."""
    fitting = [text for text, item in zip(texts, encoder.encode(texts), strict=True) if len(item) <= length]
    plain = fitting[: SENTENCES_PER_LENGTH // 2] or [("", "") if isinstance(texts[0], tuple) else ""]
    joined: list[Text] = []
    position = 0
    while len(joined) < SENTENCES_PER_LENGTH // 2 and fitting:
        text = fitting[position % len(fitting)]
        for step in range(1, length):
            longer = _join(text, fitting[(position + step) % len(fitting)])
            if len(encoder.encode([longer])[0]) > length or encoder.encode([longer])[0].truncated:
                break
            text = longer
        joined.append(text)
        position += 3
    return [*plain, *joined]


def _join(left: Text, right: Text) -> Text:
    if isinstance(left, tuple) and isinstance(right, tuple):
        return (f"{left[0]} {right[0]}", f"{left[1]} {right[1]}")
    return f"{left} {right}"
