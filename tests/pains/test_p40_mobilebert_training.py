"""P40: MobileBERT trains in bfloat16 where its activations leave half range; what is not finite stops with its name."""

from pathlib import Path

import numpy as np
import pytest
import torch

from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import StageError
from compressor.distill.config import DistillConfig
from compressor.distill.stage import Distill
from compressor.models import load_compressed
from tests.compressor.tiny_data import context, run_stage
from tests.models import tiny_checkpoint, trained_checkpoint

LOSSES = [{"name": "logits"}, {"name": "hidden", "embeddings": False, "weight": 1e-9}]


@pytest.fixture
def teacher(tmp_path: Path) -> Checkpoint:
    return trained_checkpoint(tmp_path / "teacher")


def grown(folder: Path, factor: float) -> Checkpoint:
    """A MobileBERT whose activations grow: NoNorm is a factor, no normalisation."""
    checkpoint = tiny_checkpoint("mobilebert", folder)
    model = load_compressed(checkpoint.path)
    with torch.no_grad():
        for layer in model.mobilebert.encoder.layer:
            layer.output.bottleneck.LayerNorm.weight.mul_(factor)
    model.save_pretrained(folder)
    return Checkpoint.open(folder)


def distilled(student: Checkpoint, teacher: Checkpoint, folder: Path) -> dict:
    settings = {"teacher": "t", "losses": LOSSES, "epochs": 0.5, "lr": 1e-4, "batch_size": 8, "bf16": True}
    where = context(folder, student, checkpoints={"t": teacher})
    return run_stage(Distill(DistillConfig.model_validate(settings)), where, folder / "out")


def test_bf16_holds_what_half_precision_cannot(teacher: Checkpoint, tmp_path: Path) -> None:
    student = grown(tmp_path / "student", 3000.0)
    model = load_compressed(student.path)
    with torch.no_grad():
        states = model(torch.tensor([[2, 5, 6, 3]]), output_hidden_states=True).hidden_states
    assert max(state.abs().max() for state in states) > 65504, "the example does not leave half range"
    facts = distilled(student, teacher, tmp_path)
    assert np.isfinite(facts["curves"]["total"]).all()


def test_a_loss_that_is_not_finite_stops_with_step_and_name(teacher: Checkpoint, tmp_path: Path) -> None:
    student = grown(tmp_path / "student", 1e18)
    with pytest.raises(StageError, match=r"loss 'hidden' is not finite at step 1 of \d+") as error:
        distilled(student, teacher, tmp_path)
    assert "last good weights" in str(error.value)
    assert not (tmp_path / "out" / "config.json").exists()
