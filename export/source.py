"""The checkpoint that is exported, with everything that is computed from it once for all formats."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from torch import nn

from compressor.core.artifact import Artifact, Format, IOSpec, Precision, Signature
from compressor.core.checkpoint import Checkpoint
from compressor.core.device import CPU_LADDER, DeviceProfile, LadderStep
from compressor.core.errors import ModelError, UsageError
from compressor.core.schema import Text
from compressor.core.spread import spread
from compressor.core.task import Task
from compressor.data.batches import encode_split
from compressor.data.dataset import Split, sampled
from compressor.evaluation import SIMULATED_EXAMPLES, Evaluation, check_reference, evaluate_checkpoint
from compressor.families import adapter_for
from compressor.families.heads import LABELLED, find_task
from compressor.families.pooling import read_pooling
from compressor.models import load_compressed, load_config
from compressor.quantize.plan import QuantizationPlan, Sensitivity
from compressor.quantize.sensitivity import analyse_cached
from compressor.tasks import HEADS
from compressor.text import SentenceEncoder
from compressor.train.runtime import torch_threads
from export.backend import ConversionSpec, Predictor
from export.calibration import Calibration
from export.calibration_check import check_calibration
from export.parity import ParityCase, parity_cases
from export.texts import texts_for

_LOG = logging.getLogger(__name__)
MIN_LENGTH = 3
"""Two special tokens and one piece of text."""
SENSITIVITY_SENTENCES = 256
"""Sentences on which each module's own cost is found."""
SIMULATED_SENTENCES = 4
"""Parity sentences a length where a simulator runs them."""


@dataclass(frozen=True, kw_only=True)
class ExportRequest:
    """What to make of one checkpoint."""

    formats: tuple[Format, ...]
    precisions: tuple[Precision, ...]
    lengths: tuple[int, ...]
    profiles: tuple[tuple[int, int, int], ...] = ()
    """See :class:`export.backend.ConversionSpec`."""
    tensorrt: str | None = None
    """See :class:`export.backend.ConversionSpec`."""
    plan: QuantizationPlan = field(default_factory=QuantizationPlan)
    parity_texts: tuple[Text, ...]
    """Real sentences for parity; the checkpoint's own test texts where there are any."""
    parity_source: str
    """Where the parity texts come from, for ``parity.json``."""
    calibration_texts: tuple[Text, ...] = ()
    """Unlabelled text on which ranges of activations are observed; never the text that is reported on."""
    selection: Split | None = None
    """The split the ladder selects on (validation)."""
    report: Split | None = None
    """The split whose metric goes into the manifest (test)."""
    teacher: Evaluation | None = None
    """The trained teacher on ``report``."""
    tune: bool = False
    """Whether an ONNX file is also tried with ONNX Runtime's fused operators (:mod:`export.onnx.tune`)."""
    tune_ratio: Callable[[Predictor, Predictor, Sequence[ParityCase]], float] | None = None
    """How a tuned file's time is measured, as a multiple of the plain one's; None: interleaved on this machine."""
    name: str
    threads: int = 1
    ladder: tuple[LadderStep, ...] = CPU_LADDER
    """What is tried, in order, where the plan limits the accuracy."""
    start: LadderStep | None = None
    """The way of INT8 that is tried first; None: the plan's."""
    device: DeviceProfile | None = None
    """What the files are for; a try that it cannot run is refused before any work. Formats that are compiled ahead of
    time need one."""
    measure: Callable[[Artifact], float] | None = None
    """Returns the time of a candidate per sentence in milliseconds (p95). With it the fastest candidate within the
    limit is taken, the untouched FP32 file among them; without it the first one."""
    cache: Path | None = None
    """Where sensitivities are kept between runs; None: they are computed again."""
    task: Task | None = None
    """What the head answers; found from the checkpoint where None."""


@dataclass(frozen=True, kw_only=True)
class ExportSource:
    """A loaded checkpoint, its conversion spec, its reference logits and its own metrics."""

    checkpoint: Checkpoint
    model: nn.Module
    encoder: SentenceEncoder
    spec: ConversionSpec
    labels: tuple[str, ...]
    text_columns: int
    cases: tuple[ParityCase, ...]
    selection: Evaluation | None
    report: Evaluation | None

    @classmethod
    def load(cls, checkpoint: Checkpoint, request: ExportRequest) -> ExportSource:
        """Loads the checkpoint and runs the PyTorch reference.

        Raises:
            UsageError: lengths the model cannot take.
            ModelError: the checkpoint does not load, names other labels than it has logits, or does not itself beat the
                majority class.
        """
        config = load_config(checkpoint)
        task = request.task or find_task(checkpoint)
        adapter = adapter_for(config)
        lengths = check_lengths(request.lengths, config)
        if task == "sentence-embedding":
            _check_cut(checkpoint, lengths)
        model = load_compressed(checkpoint.path, task=task)
        labelled = task in LABELLED
        labels = checkpoint.labels if labelled else ()
        num_labels = int(config.num_labels) if labelled else adapter.hidden_size(config)
        if labelled and len(labels) != num_labels:
            raise ModelError(
                f"config.json names {len(labels)} labels for {num_labels} logits", remedy="set id2label in config.json"
            )
        encoder = SentenceEncoder.load(checkpoint.path, max_tokens=lengths[-1])
        token_types = adapter.takes_token_types(config)
        spec = ConversionSpec(
            lengths=lengths, max_tokens=lengths[-1], takes_token_types=token_types, pad_id=encoder.pad_id,
            num_labels=num_labels, model_type=adapter.model_type, profiles=request.profiles, tensorrt=request.tensorrt,
            device=request.device,
            task=task,
        )  # fmt: skip
        texts = texts_for(task, 1, request.parity_texts)
        _check_shortest(encoder, texts[0], lengths)
        return cls(
            checkpoint=checkpoint, model=model, encoder=encoder, spec=spec, labels=labels,
            text_columns=2 if isinstance(texts[0], tuple) else 1,
            cases=parity_cases(model, encoder, texts, lengths, token_types=token_types, task=task),
            selection=_evaluate(checkpoint, request.selection, request, spec),
            report=_evaluate(checkpoint, request.report, request, spec),
        )  # fmt: skip

    def __reduce__(self) -> tuple[Any, ...]:
        """Travels to another process without its model, which is read again from the checkpoint where it arrives."""
        values = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "model"}
        return _arrived, (values,)

    def calibration(self, request: ExportRequest, precision: Precision) -> Calibration | None:
        """Returns the text on which ranges are observed; None where the request brings none.

        Half precision only has to know how far values reach, so the parity texts serve where there is nothing else.

        Raises:
            DataError: calibration text that the tokenizer does not know.
            ModelError: ids that the model has no rows for.
        """
        if request.calibration_texts:
            found = Calibration(encoder=self.encoder, texts=request.calibration_texts, lengths=self.spec.lengths)
            config: Any = self.model.config
            check_calibration(found, self.checkpoint.path, rows=int(config.vocab_size))
            return found
        texts = request.parity_texts if precision == "fp16" else ()
        return Calibration(encoder=self.encoder, texts=texts, lengths=self.spec.lengths) if texts else None

    def sensitivities(self, request: ExportRequest, plan: QuantizationPlan) -> tuple[Sensitivity, ...]:
        """Returns each module's cost: of the plan where an analysis ran before, else found on the selection split."""
        if plan.sensitivities or request.selection is None or self.spec.task != "text-classification":
            return plan.sensitivities
        part = request.selection
        rows = spread(len(part), SENSITIVITY_SENTENCES)
        chosen = Split(tuple(part.texts[row] for row in rows), tuple(part.labels[row] for row in rows))
        data = encode_split(self.checkpoint, chosen, max_tokens=self.spec.max_tokens)
        with torch_threads(request.threads), _folder(request.cache) as folder:
            return analyse_cached(self.model, data, folder, self.checkpoint.hash, method=plan.method)

    def simulated(self, request: ExportRequest) -> tuple[ExportSource, ExportRequest]:
        """Returns source and request cut to what a simulator answers in minutes.

        Parity gets SIMULATED_SENTENCES a length, each split a seeded sample of SIMULATED_EXAMPLES, and the checkpoint
        is evaluated on those same sentences; a teacher that was evaluated on others is left out.
        """
        small = replace(request, selection=_sampled(request.selection), report=_sampled(request.report))
        if small.report != request.report:
            small = replace(small, teacher=None)
        return replace(
            self,
            cases=tuple(case.first(SIMULATED_SENTENCES) for case in self.cases),
            selection=_evaluate(self.checkpoint, small.selection, small, self.spec),
            report=_evaluate(self.checkpoint, small.report, small, self.spec),
        ), small

    def io(self, signatures: tuple[Signature, ...], *, dynamic_lengths: bool) -> IOSpec:
        """Returns the ``io.json`` of a converted file with these entry points."""
        return IOSpec(
            task=self.spec.task,
            activation=HEADS[self.spec.task].activation,
            text_columns=self.text_columns,
            max_tokens=self.spec.max_tokens,
            lengths=() if dynamic_lengths else self.spec.lengths,
            pad_id=self.spec.pad_id,
            signatures=signatures,
        )


def _arrived(values: dict[str, Any]) -> ExportSource:
    return ExportSource(model=load_compressed(values["checkpoint"].path, task=values["spec"].task), **values)


@contextmanager
def _folder(cache: Path | None) -> Iterator[Path]:
    """Yields the folder, or one that is gone afterwards."""
    if cache is not None:
        yield cache
        return
    with tempfile.TemporaryDirectory(prefix="compressor-sensitivity-") as name:
        yield Path(name)


def check_lengths(lengths: tuple[int, ...], config: Any) -> tuple[int, ...]:
    """Returns the lengths in ascending order, each once.

    A length below MIN_LENGTH beside longer ones (``1,32,128``, as one writes TensorRT's smallest shape) is no bucket of
    its own: the next one begins at one token anyway.

    Raises:
        UsageError: none, too short for one piece of text, or more tokens than a model of this config takes.
    """
    limit = adapter_for(config).max_tokens(config)
    ordered = tuple(sorted(set(lengths)))
    while len(ordered) > 1 and 0 < ordered[0] < MIN_LENGTH:
        _LOG.warning(
            "no text fits %d tokens with its special ones; it is left out, and the length %d takes all up to it",
            *ordered[:2],
        )
        ordered = ordered[1:]
    if not ordered or ordered[0] < MIN_LENGTH or ordered[-1] > limit:
        raise UsageError(
            f"lengths {', '.join(map(str, ordered)) or 'none'}: expected numbers from {MIN_LENGTH} to {limit}, "
            "the most tokens this model takes",
            remedy=f"pass one or more lengths of {MIN_LENGTH} to {limit} tokens",
        )
    return ordered


def _check_shortest(encoder: SentenceEncoder, text: Text, lengths: tuple[int, ...]) -> None:
    """Refuses a length that not even an empty text, or pair, fits into."""
    needed = len(encoder.encode([("", "") if isinstance(text, tuple) else ""])[0])
    if lengths[0] <= needed:
        raise UsageError(
            f"length {lengths[0]}: expected at least {needed + 1}, {needed} special tokens and one piece of text",
            remedy="pass longer lengths",
        )


def _check_cut(checkpoint: Checkpoint, lengths: tuple[int, ...]) -> None:
    """Refuses lengths at which an artifact would read text that the checkpoint's own tokenisation cuts off."""
    limit = read_pooling(checkpoint).max_tokens
    if limit is not None and lengths[-1] > limit:
        raise UsageError(
            f"lengths {', '.join(map(str, lengths))}: expected at most {limit}, where sentence_bert_config.json cuts",
            remedy=f"pass lengths of at most {limit}, or raise max_seq_length there",
        )


def _evaluate(
    checkpoint: Checkpoint, split: Split | None, request: ExportRequest, spec: ConversionSpec
) -> Evaluation | None:
    if split is None:
        return None
    evaluation = evaluate_checkpoint(
        checkpoint, split, threads=request.threads, max_tokens=spec.max_tokens, task=spec.task
    )
    check_reference(evaluation)
    return evaluation


def _sampled(split: Split | None) -> Split | None:
    return None if split is None else sampled(split, SIMULATED_EXAMPLES)
