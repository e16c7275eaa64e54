import numpy as np
import pytest

from compressor.core.errors import DataError, ModelError
from compressor.evaluation import check_reference, evaluate_checkpoint, evaluate_logits
from compressor.models import load_compressed
from compressor.text import SentenceEncoder
from tests.compressor.tiny_data import tiny_dataset
from tests.models import tiny_checkpoint

LABELS = [0, 1, 2, 2, 1, 0, 2, 2]


def test_metrics_against_sklearn_and_a_slow_reference() -> None:
    sklearn_f1 = pytest.importorskip("sklearn.metrics").f1_score
    logits = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32) * 2
    found = evaluate_logits(logits, LABELS, truncated=3)
    answers = logits.argmax(1).tolist()
    assert found.correct == sum(a == b for a, b in zip(answers, LABELS, strict=True))
    assert found.value == found.correct / 8
    assert found.majority_class == 0.5
    assert found.macro_f1 == pytest.approx(sklearn_f1(LABELS, answers, average="macro"))
    assert found.truncated == 3
    gap = 0.0
    for low in range(15):
        rows = []
        for row, label in zip(logits.astype(float), LABELS, strict=True):
            p = np.exp(row) / np.exp(row).sum()
            if low / 15 <= p.max() < (low + 1) / 15:
                rows.append((p.max(), p.argmax() == label))
        if rows:
            gap += len(rows) / 8 * abs(np.mean([c for c, _ in rows]) - np.mean([h for _, h in rows]))
    assert found.expected_calibration_error == pytest.approx(gap)


def test_what_cannot_be_evaluated() -> None:
    with pytest.raises(DataError, match="no examples"):
        evaluate_logits(np.zeros((0, 2)), [])
    with pytest.raises(ModelError, match="not finite"):
        evaluate_logits(np.array([[1.0, np.nan]]), [0])
    with pytest.raises(ModelError, match="labels up to 2"):
        evaluate_logits(np.zeros((1, 2)), [2])


def test_examples_of_one_class_are_the_data_s_fault_not_the_model_s() -> None:
    right = evaluate_logits(np.eye(2, dtype=np.float32)[[1, 1, 1]], [1, 1, 1])
    with pytest.raises(DataError, match=r"all 3 examples .* have the same label; expected at least two") as caught:
        check_reference(right)
    assert "two classes" in caught.value.remedy


def test_batching_changes_no_answer(tmp_path) -> None:
    checkpoint = tiny_checkpoint("bert", tmp_path)
    split = tiny_dataset().test
    found = evaluate_checkpoint(checkpoint, split, threads=1)
    model = load_compressed(tmp_path)
    import torch

    encoder = SentenceEncoder.load(tmp_path, max_tokens=64)
    rows = []
    for item in encoder.encode(split.texts):
        with torch.no_grad():
            rows.append(model(**{k: torch.from_numpy(v) for k, v in encoder.pad([item]).items()}).logits[0].numpy())
    alone = evaluate_logits(np.stack(rows), split.labels)
    assert found.correct == alone.correct
    assert found.expected_calibration_error == pytest.approx(alone.expected_calibration_error, abs=1e-5)
