"""P09: one huge mask constant takes the whole range of the scores, and a static W8A8 graph answers without them."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from compressor.models import load_compressed
from compressor.quantize.plan import QuantizationPlan
from compressor.text import SentenceEncoder
from devices.profiles import load_profile
from export.backend import ConversionSpec
from export.calibration import Calibration
from export.onnx.predictor import OnnxPredictor
from export.qnn.backend import PLAIN, QnnBackend
from export.qnn.compile import compile_graph
from export.qnn.masks import NPU_FILL
from export.qnn.npu import npu_of
from export.qnn.predictor import SimulatedPredictor
from export.qnn.quantize import quantize
from tests.export.qnn.helpers import CALIBRATION, EVALUATION, PHONE, needs_qnn

pytestmark = pytest.mark.usefixtures("simulated_answers")
LENGTHS = (12,)
LOWEST = -3.4028234663852886e38


def default_recipe(source: Path, target: Path, feeds: list[dict[str, np.ndarray]]) -> None:
    """What published builds do: the mask as exported, observed from its lowest to its highest value."""
    from onnxruntime.quantization import CalibrationDataReader, QuantType
    from onnxruntime.quantization import quantize as quantize_static
    from onnxruntime.quantization.execution_providers.qnn import get_qnn_qdq_config

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.rest = iter(feeds)

        def get_next(self):
            return next(self.rest, None)

    model = onnx.load(source)
    for item in model.graph.initializer:
        if numpy_helper.to_array(item).size == 1 and float(numpy_helper.to_array(item).reshape(-1)[0]) == NPU_FILL:
            item.CopyFrom(numpy_helper.from_array(np.float32([LOWEST]).reshape(item.dims), item.name))
    raw = target.with_name("raw.onnx")
    onnx.save(model, raw)
    config = get_qnn_qdq_config(str(raw), Reader(), activation_type=QuantType.QUInt8, weight_type=QuantType.QUInt8)
    quantize_static(str(raw), str(target), config)


def signal_to_noise_db(found: np.ndarray, reference: np.ndarray) -> float:
    return 10 * np.log10(np.square(reference - reference.mean()).mean() / np.square(found - reference).mean())


def test_scores_keep_their_range_beside_the_mask(trained, tmp_path):
    needs_qnn()
    profile = load_profile(PHONE)
    spec = ConversionSpec(
        lengths=LENGTHS, max_tokens=12, takes_token_types=True, pad_id=0, num_labels=3, model_type="bert",
        device=profile,
    )  # fmt: skip
    QnnBackend().convert(load_compressed(trained.path), spec, tmp_path)
    encoder = SentenceEncoder.load(trained.path, max_tokens=12)
    calibration = Calibration(encoder=encoder, texts=CALIBRATION.texts, lengths=LENGTHS)
    feeds = [{name: a.astype(np.int32) for name, a in batch.items()} for batch in calibration.batches(rows=1)]
    quantize(tmp_path / PLAIN, tmp_path / "ours.onnx", "w8a8", QuantizationPlan(), calibration)
    default_recipe(tmp_path / PLAIN, tmp_path / "default.onnx", feeds[:16])
    padded = encoder.pad(encoder.encode(EVALUATION.texts[:6]), 12)
    assert (padded["attention_mask"] == 0).any(), "without padding there is nothing to mask"
    reference = OnnxPredictor(tmp_path / PLAIN, threads=1, fixed_batch=1).logits(padded)
    ratios = {}
    for name in ("ours", "default"):
        folder = tmp_path / name
        folder.mkdir()
        compile_graph(tmp_path / f"{name}.onnx", folder, LENGTHS, npu_of(profile))
        ratios[name] = signal_to_noise_db(SimulatedPredictor(folder, LENGTHS, PLAIN).logits(padded), reference)
    assert ratios["ours"] > 20
    assert ratios["ours"] > ratios["default"] + 6
