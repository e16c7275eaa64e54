"""Each loss against a slow reference written from its formula, and its gradient against finite differences."""

import math

import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from compressor.distill.losses import HiddenLoss, LabelsLoss, LogitsLoss, LossConfig
from compressor.distill.losses.hidden import hidden_loss
from compressor.distill.losses.labels import labels_loss
from compressor.distill.losses.logits import logits_loss
from compressor.distill.outputs import Outputs, Shape


def softmax(row: list[float], temperature: float = 1.0) -> list[float]:
    powers = [math.exp(value / temperature) for value in row]
    return [power / sum(powers) for power in powers]


def numbers(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 2


@pytest.mark.parametrize("temperature", [1.0, 2.0, 7.0])
def test_logits(temperature: float) -> None:
    student, teacher = numbers(5, 4, seed=1), numbers(5, 4, seed=2)
    expected = 0.0
    for ours, theirs in zip(student.tolist(), teacher.tolist(), strict=True):
        q, p = softmax(ours, temperature), softmax(theirs, temperature)
        expected += temperature**2 * sum(a * math.log(a / b) for a, b in zip(p, q, strict=True)) / 5
    assert logits_loss(student, teacher, temperature=temperature).item() == pytest.approx(expected, rel=1e-5)
    assert logits_loss(teacher, teacher, temperature=temperature).item() == pytest.approx(0, abs=1e-6)


def test_labels() -> None:
    logits, labels = numbers(4, 3, seed=3), [0, 2, 1, 1]
    expected = -sum(math.log(softmax(row)[label]) for row, label in zip(logits.tolist(), labels, strict=True)) / 4
    assert labels_loss(logits, torch.tensor(labels)).item() == pytest.approx(expected, rel=1e-5)


MASK = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0]])


def slow_hidden(student: torch.Tensor, teacher: torch.Tensor) -> float:
    squares = [
        (student[row, token, column] - teacher[row, token, column]).item() ** 2
        for row in range(2)
        for token in range(4)
        for column in range(student.shape[2])
        if MASK[row, token]
    ]
    return sum(squares) / len(squares)


def test_hidden_counts_no_padding() -> None:
    student, teacher = numbers(2, 4, 3, seed=4), numbers(2, 4, 3, seed=5)
    expected = slow_hidden(student, teacher)
    assert hidden_loss(student, teacher, MASK).item() == pytest.approx(expected, rel=1e-5)
    teacher[0, 3] = float("nan")
    student[1, 2] = 1e9
    assert hidden_loss(student, teacher, MASK).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    "loss",
    [
        lambda x: logits_loss(x, numbers(3, 4, seed=6), temperature=2.0),
        lambda x: labels_loss(x, torch.tensor([0, 3, 1])),
        lambda x: hidden_loss(x[None], numbers(1, 3, 4, seed=7), torch.tensor([[1, 1, 0]])),
    ],
    ids=["logits", "labels", "hidden"],
)
def test_gradient_is_the_slope(loss) -> None:
    point = numbers(3, 4, seed=8).requires_grad_()
    loss(point).backward()
    step = 1e-2
    for row in range(3):
        for column in range(4):
            shift = torch.zeros(3, 4)
            shift[row, column] = step
            with torch.no_grad():
                slope = (loss(point + shift) - loss(point - shift)).item() / (2 * step)
            assert point.grad[row, column].item() == pytest.approx(slope, abs=2e-3)


def test_hidden_term_pairs_layers_and_projects_only_where_widths_differ() -> None:
    config = HiddenLoss(map=[0, 3])
    assert config.state_pairs(Shape(2, 8), Shape(4, 8)) == ((0, 0), (1, 1), (2, 4))
    assert not list(config.term(Shape(2, 8), Shape(4, 8)).parameters())
    term = config.term(Shape(2, 3), Shape(4, 5))
    assert [tuple(p.shape) for p in term.parameters()] == [(5, 3)] * 3
    ours = {state: numbers(2, 4, 3, seed=state) for state in (0, 1, 2)}
    theirs = {state: numbers(2, 4, 5, seed=state + 10) for state in (0, 1, 4)}
    found = term(Outputs(numbers(2, 2, seed=0), ours), Outputs(numbers(2, 2, seed=1), theirs), MASK, torch.zeros(2))
    projected = [p(ours[mine]) for p, mine in zip(term.projections, (0, 1, 2), strict=True)]
    expected = sum(slow_hidden(x, theirs[y]) for x, y in zip(projected, (0, 1, 4), strict=True)) / 3
    assert found.item() == pytest.approx(expected, rel=1e-5)


def test_a_recipe_entry_becomes_a_typed_loss() -> None:
    parse = TypeAdapter(LossConfig).validate_python
    assert parse({"name": "logits", "temperature": 4.0}) == LogitsLoss(temperature=4.0)
    assert parse({"name": "hidden", "map": [1, 3]}) == HiddenLoss(map=(1, 3))
    assert parse({"name": "labels", "weight": 0.5}) == LabelsLoss(weight=0.5)
    for wrong in ({"name": "logit"}, {"name": "labels", "temperature": 2}, {"name": "logits", "temperature": 0}):
        with pytest.raises(ValidationError):
            parse(wrong)
