import pytest
from pydantic import ValidationError

from compressor.distill.losses.logits import LogitsLoss, logits_loss, logits_mse_loss
from tests.compressor.distill.losses.slow import kl, mean, numbers, softmax


@pytest.mark.parametrize("temperature", [1.0, 2.0, 7.0])
def test_kl(temperature: float) -> None:
    student, teacher = numbers(5, 4, seed=1), numbers(5, 4, seed=2)
    rows = zip(student.tolist(), teacher.tolist(), strict=True)
    expected = temperature**2 * mean([kl(softmax(b, temperature), softmax(a, temperature)) for a, b in rows])
    assert logits_loss(student, teacher, temperature=temperature).item() == pytest.approx(expected, rel=1e-9)


def test_mse() -> None:
    student, teacher = numbers(5, 4, seed=1), numbers(5, 4, seed=2)
    rows = zip(student.tolist(), teacher.tolist(), strict=True)
    expected = mean([(x - y) ** 2 for a, b in rows for x, y in zip(a, b, strict=True)])
    assert logits_mse_loss(student, teacher).item() == pytest.approx(expected, rel=1e-9)


def test_a_temperature_belongs_to_distributions() -> None:
    with pytest.raises(ValidationError, match="softens distributions"):
        LogitsLoss(kind="mse", temperature=3.0)
