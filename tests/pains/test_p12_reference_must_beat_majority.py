"""P12: a baseline that is no better than guessing makes every later comparison meaningless, so it is refused."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from compressor.core.errors import ModelError, ParityError
from compressor.distill.config import DistillConfig
from compressor.distill.stage import Distill
from compressor.evaluation import check_reference, evaluate_logits
from export.qnn.quantize import quantize
from tests.compressor.tiny_data import context, run_stage
from tests.export.qnn.helpers import export, needs_qnn
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


@pytest.mark.usefixtures("simulated_answers")
def test_a_compiled_graph_that_answers_wrongly_is_refused_in_its_own_runtime(trained, tmp_path, monkeypatch):
    """Parity is the file's own, in the runtime it is for: a sound FP32 graph does not vouch for what was compiled."""
    needs_qnn()
    from export.qnn import backend

    def wrong(source: Path, target: Path, *rest: object) -> tuple[str, ...]:
        model = onnx.load(source)
        weights = {item.name: item for item in model.graph.initializer}
        (last,) = [
            node for node in model.graph.node if "classifier" in node.name and node.op_type in ("Gemm", "MatMul")
        ]
        weight = weights[last.input[1]]
        weight.CopyFrom(numpy_helper.from_array(-numpy_helper.to_array(weight), weight.name))
        onnx.save(model, source.with_name("wrong.onnx"))
        return quantize(source.with_name("wrong.onnx"), target, *rest)

    monkeypatch.setattr(backend, "quantize", wrong)
    with pytest.raises(ParityError, match=r"onnx-qnn w8a16 has a signal-to-noise ratio of -"):
        export(trained, tmp_path / "made", "w8a16", selection=None, report=None)
    assert list((tmp_path / "made").iterdir()) == []
