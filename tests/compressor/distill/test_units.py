"""Parts of a batch, weighed by what each loss says it is a mean over, give the loss of the whole batch."""

import pytest
import torch
from pydantic import TypeAdapter

from compressor.distill.losses import LossConfig
from compressor.distill.outputs import Outputs, Projections, Shape

LENGTHS = (3, 9, 2, 6, 5)
PARTS = ((0, 3), (1,), (2, 4))
SHAPE = Shape(layers=2, hidden_size=8, heads=(2, 2), head_size=4)
LOSSES = (
    {"name": "logits"}, {"name": "logits", "kind": "mse"}, {"name": "labels"}, {"name": "hidden"},
    {"name": "embeddings"}, {"name": "cosine"}, {"name": "attention"}, {"name": "attention", "kind": "kl"},
    {"name": "minilm"}, {"name": "minilmv2"}, {"name": "mobilebert"},
)  # fmt: skip


def outputs(seed: int) -> Outputs:
    generator = torch.Generator().manual_seed(seed)

    def drawn() -> torch.Tensor:
        return torch.randn(len(LENGTHS), max(LENGTHS), 8, generator=generator)

    return Outputs(
        torch.randn(len(LENGTHS), 3, generator=generator),
        {state: drawn() for state in range(3)},
        {layer: Projections(drawn(), drawn(), drawn()) for layer in range(2)},
    )


def part(whole: Outputs, rows: tuple[int, ...]) -> Outputs:
    """Some sentences, padded no further than the longest of them."""
    tokens = max(LENGTHS[row] for row in rows)
    chosen = list(rows)
    return Outputs(
        whole.logits[chosen],
        {state: tensor[chosen, :tokens] for state, tensor in whole.hidden_states.items()},
        {layer: Projections(*(it[chosen, :tokens] for it in three)) for layer, three in whole.projections.items()},
    )


@pytest.mark.parametrize("settings", LOSSES, ids=lambda it: "-".join(it.values()))
def test_weighed_parts_are_the_whole(settings: dict[str, str]) -> None:
    loss = TypeAdapter(LossConfig).validate_python(settings)
    term = loss.term(SHAPE, SHAPE)
    student, teacher, labels = outputs(0), outputs(1), torch.tensor([0, 2, 1, 1, 0])

    def value(rows: tuple[int, ...]) -> float:
        lengths = torch.tensor([LENGTHS[row] for row in rows])
        mask = (torch.arange(int(lengths.max()))[None] < lengths[:, None]).long()
        return float(term(part(student, rows), part(teacher, rows), mask, labels[list(rows)]))

    whole = loss.units(LENGTHS)
    weighed = sum(value(rows) * loss.units([LENGTHS[row] for row in rows]) / whole for rows in PARTS)
    assert weighed == pytest.approx(value((0, 1, 2, 3, 4)), rel=1e-4)
    assert sum(loss.units([LENGTHS[row] for row in rows]) for rows in PARTS) == whole
