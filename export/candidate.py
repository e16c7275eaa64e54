"""A converted file that was proven: of the precision it is called by, with its model's answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from compressor.core.artifact import IOSpec, ModelStatistics, Precision
from compressor.core.errors import StageError
from compressor.data.dataset import Split
from compressor.evaluation import Evaluation
from compressor.quantize.plan import QuantizationPlan
from compressor.tasks import HEADS
from export.backend import Backend
from export.parity import Parity, compare, require_parity
from export.source import ExportRequest, ExportSource
from export.text_predictor import TextPredictor, open_predictors

HALF_FLOOR = 0.5
"""Least share of matrix products in half of a file that is asked for in FP16 and keeps FP32 islands."""


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


def require_precision(statistics: ModelStatistics, name: str, precision: Precision, plan: QuantizationPlan) -> None:
    """Refuses a file that holds another precision than it is called by; what it holds is read from it alone.

    ``mixed`` is what a file with modules in a safer precision reads as. Integers may be mixed where the policy says so.
    Half precision may be, whether a policy or measured ranges keep modules in FP32, while at least ``HALF_FLOOR`` of
    its matrix products are half; with fewer it is no FP16 file by any name.

    Raises:
        StageError: the file holds another precision.
    """
    found, products = statistics.precision, statistics.gemm_types
    half = products.get("fp16", 0) / max(sum(products.values()), 1)
    mixed = found == "mixed" and (half >= HALF_FLOOR if precision == "fp16" else len(plan.policy) > 1)
    if found != precision and not mixed:
        share = f"; {half:.0%} of its products are half, expected at least {HALF_FLOOR:.0%}"
        raise StageError(
            f"{name}: the file holds {found} ({products}){share if precision == 'fp16' else ''}; expected {precision}",
            remedy="choose another precision, keep fewer modules in FP32, or report this model",
        )


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
    require_precision(statistics, name, precision, plan)
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
