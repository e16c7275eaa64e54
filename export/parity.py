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
from compressor.core.spread import spread
from compressor.core.task import Task, is_per_token, outputs_of
from compressor.tasks import HEADS
from compressor.tasks.base import Outputs
from compressor.text import ATTENTION_MASK, TOKEN_TYPE_IDS, Batch, SentenceEncoder
from export.backend import Predictor

TOLERANCE: dict[Precision, float] = {"fp32": 1e-4, "fp16": 1e-2}
"""Largest error in units of the logits' spread. INT8 is judged by signal-to-noise here and by its task score later."""
NPU_TOLERANCE: dict[Precision, float] = {"fp32": 1e-4, "fp16": 5e-2}
"""The same where half precision is also what sums are kept in, as Hexagon does it."""
MIN_SIGNAL_TO_NOISE_DB = 10.0
"""Below it a quantised file does not follow its model at all: the error has a third of the signal's amplitude."""
SENTENCES_PER_LENGTH = 16


class OutputParity(Record):
    """Errors of one output over all lengths."""

    name: str
    spread: float
    """Standard deviation of the reference's values over everything that is compared: the unit of every error."""
    max_error: float
    signal_to_noise_db: float
    values: int
    """Numbers that were compared; those at padding positions are not."""


class LengthParity(Record):
    """Errors at one length, in units of the spread of the reference's output; over all outputs together."""

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
    """Standard deviation of the reference logits (of the first output) over all sentences and labels."""
    max_error: float
    """The largest of all outputs, each in units of its own spread."""
    tolerance: float | None
    signal_to_noise_db: float
    """The smallest of all outputs."""
    label_agreement: float
    """Mean over all answers of how far they are the same; ``agrees_on`` says what that means for the task."""
    agrees_on: str = "same label"
    outputs: tuple[OutputParity, ...] = ()
    sentences: int
    finite: bool
    repeatable: bool
    """The same bits when the same inputs are handed over again, in another order of names."""
    lengths: tuple[LengthParity, ...]


@dataclass(frozen=True)
class ParityCase:
    """Padded sentences of one length and the reference's outputs, e.g. logits of shape (sentences, labels)."""

    length: int
    batch: Batch
    reference: Outputs

    def first(self, count: int) -> ParityCase:
        """Returns ``count`` of the sentences, from all over the case: half leave padding, half fill the length."""
        rows = spread(len(self.batch[ATTENTION_MASK]), count)
        batch, reference = ({n: array[rows] for n, array in side.items()} for side in (self.batch, self.reference))
        return ParityCase(self.length, batch, reference)


def parity_cases(
    model: nn.Module,
    encoder: SentenceEncoder,
    texts: Sequence[Text],
    lengths: Sequence[int],
    *,
    token_types: bool,
    task: Task = "text-classification",
) -> tuple[ParityCase, ...]:
    """Runs the PyTorch model in eager FP32 on padded real text.

    Every length gets sentences that leave padding and, made by joining neighbours, some that fill it.

    Args:
        model: the checkpoint's model, eager, in evaluation mode.
        encoder: its tokenizer.
        texts: real sentences (or pairs).
        lengths: the lengths to check.
        token_types: whether the model takes ``token_type_ids``.
        task: decides which outputs are compared.
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
            output = model(**feeds)
        reference = {name: getattr(output, name).float().numpy() for name in outputs_of(task)}
        cases.append(ParityCase(length, batch, reference))
    return tuple(cases)


def compare(
    cases: Sequence[ParityCase],
    predictor: Predictor,
    precision: Precision,
    *,
    text: str,
    simulated: bool = False,
    task: Task = "text-classification",
) -> Parity:
    """Returns the error statistics of a file over all cases; decides nothing.

    An output with a value a token is compared at real tokens only: what a model says of padding means nothing.
    ``simulated``: the predictor stands for an NPU, which accumulates in half precision too.
    """
    found = [predictor.run(case.batch) for case in cases]
    outputs = tuple(_output_parity(name, cases, found, task) for name in outputs_of(task))
    agreement = [_agreement(case, answer, task) for case, answer in zip(cases, found, strict=True)]
    backwards: Batch = dict(reversed(list(cases[0].batch.items())))
    again = predictor.run(backwards)
    return Parity(
        precision=precision,
        runtime=predictor.runtime,
        text=text,
        spread=outputs[0].spread,
        max_error=float(np.max([item.max_error for item in outputs])),
        tolerance=(NPU_TOLERANCE if simulated else TOLERANCE).get(precision),
        signal_to_noise_db=float(np.min([item.signal_to_noise_db for item in outputs])),
        label_agreement=float(np.concatenate(agreement).mean()),
        agrees_on=HEADS[task].agrees_on,
        outputs=outputs,
        sentences=sum(len(case.batch[ATTENTION_MASK]) for case in cases),
        finite=all(bool(np.isfinite(_compared(case, answer[item.name], task)).all())
                   for case, answer in zip(cases, found, strict=True) for item in outputs),
        repeatable=all(bool(np.array_equal(again[item.name], found[0][item.name])) for item in outputs),
        lengths=tuple(
            _at_length(case, answer, agreed, outputs, task)
            for case, answer, agreed in zip(cases, found, agreement, strict=True)
        ),
    )  # fmt: skip


def require_parity(parity: Parity, name: str) -> None:
    """Raises ParityError when a file does not give its model's answers.

    Finiteness comes first (a NaN compares as nothing), then repeatability, then the size of the error.
    """
    if not parity.finite:
        raise ParityError(
            f"{name} gives NaN or infinite outputs; expected finite ones as PyTorch gives",
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
            f"{name} differs from PyTorch by {parity.max_error:.2e} of the outputs' spread (at {worst.length} tokens); "
            f"expected at most {parity.tolerance:.0e}",
            remedy="choose a safer precision, or report this model",
        )
    if parity.tolerance is None and not parity.signal_to_noise_db >= MIN_SIGNAL_TO_NOISE_DB:
        raise ParityError(
            f"{name} has a signal-to-noise ratio of {parity.signal_to_noise_db:.1f} dB against PyTorch; "
            f"expected at least {MIN_SIGNAL_TO_NOISE_DB:.0f} dB",
            remedy="choose a safer precision",
        )


def _compared(case: ParityCase, values: np.ndarray, task: Task) -> np.ndarray:
    """Returns the values that mean something: of an output with a value a token, those of real tokens."""
    return values[case.batch[ATTENTION_MASK].astype(bool)] if is_per_token(task) else values


def _output_parity(name: str, cases: Sequence[ParityCase], found: Sequence[Outputs], task: Task) -> OutputParity:
    reference = np.concatenate([_compared(case, case.reference[name], task) for case in cases])
    pairs = zip(cases, found, strict=True)
    everything = np.concatenate([_compared(case, answer[name], task) for case, answer in pairs])
    spread = float(reference.std()) or 1.0
    noise = float(np.square(everything - reference).mean())
    signal = float(np.square(reference - reference.mean()).mean())
    return OutputParity(
        name=name,
        spread=spread,
        max_error=float(np.abs(everything - reference).max()) / spread,
        signal_to_noise_db=round(10 * float(np.log10(signal / noise)), 2) if noise and signal else 999.0,
        values=reference.size,
    )


def _agreement(case: ParityCase, found: Outputs, task: Task) -> np.ndarray:
    return HEADS[task].agreement(found, case.reference, case.batch[ATTENTION_MASK])


def _at_length(
    case: ParityCase, found: Outputs, agreement: np.ndarray, outputs: Sequence[OutputParity], task: Task
) -> LengthParity:
    error = np.concatenate([
        np.abs(_compared(case, found[item.name] - case.reference[item.name], task)).ravel() / item.spread
        for item in outputs
    ])  # fmt: skip
    return LengthParity(
        length=case.length,
        sentences=len(case.batch[ATTENTION_MASK]),
        max_error=float(error.max()),
        mean_error=float(error.mean()),
        p50_error=float(np.quantile(error, 0.5)),
        p99_error=float(np.quantile(error, 0.99)),
        label_agreement=float(agreement.mean()),
    )


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
