"""P12: a baseline that is no better than guessing makes every later comparison meaningless, so it is refused."""

from pathlib import Path

import numpy as np
import pytest

from compressor.core.errors import ModelError
from compressor.distill.config import DistillConfig
from compressor.distill.stage import Distill
from compressor.evaluation import check_reference, evaluate_logits
from tests.compressor.tiny_data import context, run_stage
from tests.models import tiny_checkpoint


def test_a_reference_that_always_gives_one_answer_is_refused() -> None:
    labels = [0, 0, 0, 1]
    constant = evaluate_logits(np.tile([1.0, 0.0], (4, 1)), labels)
    with pytest.raises(ModelError, match=r"75\.0%.*more than the 75\.0%") as error:
        check_reference(constant, "teacher")
    assert "fine-tune" in error.value.remedy
    check_reference(evaluate_logits(np.eye(2)[labels], labels), "teacher")


def test_an_untrained_teacher_is_not_distilled(tmp_path: Path) -> None:
    teacher = tiny_checkpoint("bert", tmp_path / "teacher", layers=2)
    from compressor.models import load_compressed

    model = load_compressed(teacher.path)
    model.classifier.weight.data.zero_()
    model.save_pretrained(teacher.path)
    stage = Distill(DistillConfig.model_validate({"student": {"layers": 1}}))
    with pytest.raises(ModelError, match="more than"):
        run_stage(stage, context(tmp_path, teacher), tmp_path / "out")
