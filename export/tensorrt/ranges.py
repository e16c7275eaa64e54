"""Ranges of activations, observed on real sentences in ONNX Runtime; memory does not grow with their number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from compressor.core.schema import Record
from export.calibration import Calibration


class Range(Record):
    """Smallest and largest value of a tensor over all sentences."""

    low: float
    high: float


def collect_ranges(
    model: onnx.ModelProto, tensors: Sequence[str], calibration: Calibration, observer: str = "minmax"
) -> dict[str, Range]:
    """Runs the FP32 ``model`` on every calibration sentence and returns the range of each named float tensor."""
    import onnxruntime as ort

    del observer
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    del probe.graph.output[:]
    outputs: list[tuple[str, str]] = []
    for index, tensor in enumerate(tensors):
        for kind in ("ReduceMin", "ReduceMax"):
            name = f"{kind}_{index}"
            probe.graph.node.append(onnx.helper.make_node(kind, [tensor], [name], keepdims=0))
            probe.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, []))
            outputs.append((tensor, name))
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(probe.SerializeToString(), options, providers=["CPUExecutionProvider"])
    low = dict.fromkeys(tensors, np.inf)
    high = dict.fromkeys(tensors, -np.inf)
    for batch in calibration.batches(rows=1):
        feed = {item.name: batch[item.name].astype(np.int32) for item in session.get_inputs()}
        values = session.run([name for _, name in outputs], feed)
        for (tensor, name), value in zip(outputs, values, strict=True):
            side, choose = (low, min) if name.startswith("ReduceMin") else (high, max)
            side[tensor] = choose(side[tensor], float(value))
    return {tensor: Range(low=low[tensor], high=high[tensor]) for tensor in tensors}
