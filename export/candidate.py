"""A converted file that was proven: of the precision it is called by, with its model's answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from compressor.core.artifact import IOSpec, Precision
from compressor.core.errors import StageError
from compressor.data.dataset import Split
from compressor.evaluation import Evaluation
from compressor.quantize.plan import QuantizationPlan
from compressor.tasks import HEADS
from export.backend import Backend
from export.parity import Parity, compare, require_parity
from export.source import ExportRequest, ExportSource
from export.text_predictor import TextPredictor, open_predictors


@dataclass(frozen=True)
class Candidate:
    """A converted file that kept parity."""

    folder: Path
    precision: Precision
    """As found in the file."""
    io: IOSpec
    parity: Parity
    predictor: TextPredictor
    labels: tuple[str, ...] = ()
    scores: dict[Split, Evaluation] = field(default_factory=dict)

    def score(self, split: Split) -> Evaluation:
        """Returns the task metrics on a split, run once."""
        if split not in self.scores:
            head = HEADS[self.io.task]
            found = self.predictor.run(head.texts(split))
            self.scores[split] = head.evaluate(found, split, self.predictor.encoder, self.labels)
        return self.scores[split]


def prove(
    backend: Backend,
    source: ExportSource,
    request: ExportRequest,
    folder: Path,
    precision: Precision,
    plan: QuantizationPlan,
) -> Candidate:
    """Proves that a converted file is of its precision and gives its model's answers.

    Raises:
        StageError: the file holds another precision.
        ParityError: it gives other answers, or answers that do not repeat.
    """
    statistics = backend.inspect(folder / backend.model_file)
    name = f"{request.name} as {backend.format} {precision}"
    # A policy that leaves modules in a safer precision, or measured ranges that do, make a mixed file, and it is
    # called so.
    mixed = statistics.precision == "mixed" and (len(plan.policy) > 1 or precision == "fp16")
    if statistics.precision != precision and not mixed:
        raise StageError(
            f"{name}: the file holds {statistics.precision} ({statistics.gemm_types}); expected {precision}",
            remedy="choose another precision, or report this model",
        )
    signatures = backend.signatures(folder)
    io = source.io(signatures, dynamic_lengths=backend.dynamic_lengths)
    predictors = open_predictors(backend, folder, io, threads=request.threads)
    parity = compare(
        source.cases, predictors[0], precision, text=request.parity_source,
        simulated=backend.simulated, task=source.spec.task,
    )  # fmt: skip
    require_parity(parity, name)
    predictor = TextPredictor(source.encoder, io, *predictors)
    return Candidate(folder, statistics.precision, io, parity, predictor, source.labels)
