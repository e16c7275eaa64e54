"""A delegate that was asked for and runs nothing is a failure, not a CPU time under another name.

The logs are written in the formats of TFLite's ``benchmark_model``, its runtime on Android and LiteRT's CompiledModel.
"""

import pytest

from compressor.core.errors import DeviceError
from devices.runners.delegate_log import parse_delegate_log, require_delegate

GPU_WHOLE = """\
INFO: Loaded OpenCL library with dlopen.
VERBOSE: Replacing 86 out of 86 node(s) with delegate (TfLiteGpuDelegateV2) node, yielding 1 partitions for subgraph 0.
INFO: Initialized OpenCL-based API.
INFO: Created 1 GPU delegate kernels.
INFO: Explicitly applied GPU delegate, and the model graph will be completely executed by the delegate.
"""
GPU_PART = """\
INFO: Created TensorFlow Lite delegate for GPU.
ERROR: Following operations are not supported by GPU delegate:
ADD: Doesn't support broadcasting - input0: [16,32], input1: [1,16,32]
CUMSUM: Input/output must be float type and indices must be constant int32 type
CUSTOM TFLite_Detection_PostProcess: TFLite_Detection_PostProcess
84 operations will run on the GPU, and the remaining 3 operations will run on the CPU.
INFO: Replacing 84 out of 87 node(s) with delegate (TfLiteGpuDelegateV2) node, yielding 3 partitions.
INFO: Replacing 3 out of 6 node(s) with delegate (TfLiteXNNPackDelegate) node, yielding 3 partitions for the whole \
graph.
INFO: Explicitly applied GPU delegate, and the model graph will be partially executed by the delegate w/ 2 delegate \
kernels.
"""
NNAPI_UNUSED = """\
NNAPI accelerators available: [nnapi-reference]
INFO: Created TensorFlow Lite delegate for NNAPI.
INFO: Though NNAPI delegate is explicitly applied, the model graph will not be executed by the delegate.
INFO: Replacing 85 out of 86 node(s) with delegate (TfLiteXNNPackDelegate) node, yielding 2 partitions for subgraph 0.
"""
NNAPI_FAILED = """\
ERROR: NN API returned error ANEURALNETWORKS_BAD_DATA at line 1132 while adding operation.
ERROR: Failed to apply NNAPI delegate.
ERROR: Benchmarking failed.
"""
DYNAMIC = """\
W tflite  : Attempting to use a delegate that only supports static-sized tensors with a graph that has \
dynamic-sized tensors (tensor#58 is a dynamic-sized tensor).
"""
OLD = "I/tflite: Replacing 63 node(s) with delegate (TfLiteGpuDelegateV2) node, yielding 2 partitions.\n"
QNN = "VERBOSE: Replacing 518 out of 518 node(s) with delegate (TfLiteQnnDelegate) node\n"
BROKEN_LINE = """\
I tflite : Replacing 130 out of 244 node(s) with delegate
           (LITERT_CL) node, yielding 2 partitions for subgraph 0.
"""
DISPATCH = "I tflite  : Replacing 1 out of 1 node(s) with delegate (DispatchDelegate) node, yielding 1 partitions\n"
SILENT = (
    "INFO: Initialized TensorFlow Lite runtime.\nINFO: Inference timings in us: Init: 16296, Inference (avg): 98068\n"
)


@pytest.mark.parametrize(
    ("log", "delegate", "share"),
    [(GPU_WHOLE, "gpu", 1.0), (GPU_PART, "gpu", 84 / 87), (OLD, "gpu", None), (QNN, "qnn", 1.0),
     (BROKEN_LINE, "gpu", 130 / 244), (DISPATCH, "qnn", 1.0)],
)  # fmt: skip
def test_a_used_delegate_is_recognised_in_every_format(log, delegate, share):
    assert require_delegate(log, delegate).share(delegate) == share


@pytest.mark.parametrize(
    ("log", "delegate"),
    [(NNAPI_UNUSED, "nnapi"), (NNAPI_FAILED, "nnapi"), (DYNAMIC, "gpu"), (SILENT, "gpu"), (GPU_WHOLE, "nnapi"),
     ("", "qnn"),
     ("INFO: Replacing 0 out of 86 node(s) with delegate (TfLiteNnapiDelegate) node, yielding 0 partitions.", "nnapi")],
)  # fmt: skip
def test_an_unused_delegate_is_a_device_failure(log, delegate):
    with pytest.raises(DeviceError, match=f"'{delegate}' was asked for") as raised:
        require_delegate(log, delegate)
    assert raised.value.exit_code == 4


def test_the_failure_says_what_ran_instead_and_why():
    with pytest.raises(DeviceError, match="the model ran on xnnpack"):
        require_delegate(NNAPI_UNUSED, "nnapi")
    with pytest.raises(DeviceError, match="no fixed size"):
        require_delegate(DYNAMIC, "gpu")


def test_a_share_can_be_demanded():
    assert require_delegate(GPU_PART, "gpu", least_share=0.9)
    with pytest.raises(DeviceError, match="it ran 97% of the nodes"):
        require_delegate(GPU_PART, "gpu", least_share=1.0)


def test_refused_operators_are_listed_with_their_reasons():
    refused = {item.operator: item.reason for item in parse_delegate_log(GPU_PART).refused}
    assert list(refused) == ["ADD", "CUMSUM", "CUSTOM TFLite_Detection_PostProcess"]
    assert refused["ADD"].startswith("Doesn't support broadcasting")


def test_partitions_are_read():
    assert [item.partitions for item in parse_delegate_log(GPU_PART).replacements] == [3, 3]
    assert parse_delegate_log(QNN).replacements[0].partitions is None
