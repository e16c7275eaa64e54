"""What the GPU, NNAPI and QNN delegates of TFLite refuse, as data, with where each rule comes from.

The rules say what a delegate's own check says about an operator's kind, version, types, ranks and stored inputs, not
about its options (a softmax's beta, a slice's masks). Whether a driver then takes it, and whether that is faster than
the CPU, only the device can tell.
"""

from __future__ import annotations

from pydantic import Field

from compressor.core.schema import Record

FLOATS = ("float32", "float16")
EIGHT_BIT = ("int8", "uint8")
INTEGERS = (*EIGHT_BIT, "int16", "int32", "bool")


class Rule(Record):
    """Refuses an operator for which one of the conditions does not hold; a condition that is None is not looked at."""

    operators: tuple[str, ...]
    reason: str
    max_version: int | None = None
    """Newest version of the operator that is taken."""
    input_types: dict[int, tuple[str, ...]] = Field(default_factory=dict)
    """Types that are taken, by the input's position."""
    output_types: tuple[str, ...] | None = None
    conversions: tuple[tuple[str, str], ...] | None = None
    """Pairs of input and output type that are taken."""
    input_ranks: dict[int, tuple[int, ...]] = Field(default_factory=dict)
    """Ranks that are taken, by the input's position."""
    runtime_inputs: tuple[int, ...] | None = None
    """How many inputs may be computed (not stored in the file)."""
    plain_broadcast: bool = False
    """Two inputs of different rank only where they broadcast as in :func:`export.tflite.delegates.broadcasts`."""
    no_outer_product: bool = False
    """Of two inputs of equal rank, one is at least as long as the other in every dimension."""
    same_kind: bool = False
    """Inputs 0 and 1 are both float, or both quantised: no float activations against 8-bit weights."""


class Delegate(Record):
    """One delegate on one kind of device."""

    name: str
    title: str
    source: str
    operators: frozenset[str]
    """What it takes of the operators that exported models are made of."""
    rules: tuple[Rule, ...]


_ELEMENTWISE = (
    *("ABS", "CEIL", "COS", "ELU", "EXP", "FLOOR", "GELU", "LOG", "LOGISTIC", "NEG", "RSQRT", "SIGN", "SIN", "SQRT"),
    *("SQUARE", "TANH"),
)
_PAIRWISE = (
    *("DIV", "EQUAL", "FLOOR_DIV", "FLOOR_MOD", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "LOGICAL_AND"),
    *("MAXIMUM", "MINIMUM", "NOT_EQUAL", "POW", "SQUARED_DIFFERENCE", "SUB", "ATAN2"),
)

_GPU_CASTS = (
    *((source, target) for source in ("float32", "int32") for target in ("float32", "int32")),
    *((kind, "bool") for kind in FLOATS),
    *(("bool", kind) for kind in FLOATS),
)

GPU = Delegate(
    name="gpu",
    title="GPU delegate (OpenCL, OpenGL)",
    source=(
        "tensorflow/tensorflow, tensorflow/lite/tools/versioning/gpu_compatibility.cc, without kEnhancedBroadcast; "
        "google-ai-edge/LiteRT, tflite/tools/versioning/gpu_compatibility.cc, also selects integers"
    ),
    operators=frozenset(
        {
            *_ELEMENTWISE,
            *_PAIRWISE,
            *("ADD", "ADD_N", "AVERAGE_POOL_2D", "BATCH_MATMUL", "CAST", "CONCATENATION", "CONV_2D", "CUMSUM"),
            *("DENSIFY", "DEPTHWISE_CONV_2D", "DEPTH_TO_SPACE", "DEQUANTIZE", "DYNAMIC_UPDATE_SLICE"),
            *("EMBEDDING_LOOKUP", "FULLY_CONNECTED", "GATHER", "HARD_SWISH", "LEAKY_RELU", "MAX_POOL_2D", "MEAN"),
            *("MIRROR_PAD", "MUL", "ONE_HOT", "PACK", "PAD", "PADV2", "PRELU", "QUANTIZE", "REDUCE_MAX", "REDUCE_MIN"),
            *("REDUCE_PROD", "RELU", "RELU6", "RELU_N1_TO_1", "RESHAPE", "RESIZE_BILINEAR"),
            *("RESIZE_NEAREST_NEIGHBOR", "SELECT", "SELECT_V2", "SLICE", "SOFTMAX", "SPACE_TO_DEPTH", "SPLIT"),
            *("SPLIT_V", "STRIDED_SLICE", "SUM", "TILE", "TRANSPOSE", "TRANSPOSE_CONV"),
        }
    ),
    rules=(
        Rule(operators=("ADD", "MUL"), plain_broadcast=True, reason="inputs of these different ranks do not broadcast"),
        Rule(operators=("MUL",), no_outer_product=True, reason="each input is the shorter one in some dimension"),
        Rule(
            operators=("CAST",), conversions=_GPU_CASTS,
            reason="casts only between float32 and int32, and between floats and truth values",
        ),
        Rule(operators=("CUMSUM",), input_types={0: FLOATS}, reason="sums floats only"),
        Rule(operators=("DEQUANTIZE",), input_types={0: (*FLOATS, *EIGHT_BIT, "int4")}, reason="no int16"),
        Rule(
            operators=("EMBEDDING_LOOKUP",), input_types={1: ("float32", "int8", "int4")},
            reason="the table is neither float32 nor int8",
        ),
        Rule(operators=("EMBEDDING_LOOKUP",), input_ranks={0: (1,)}, reason="its ids have more than one dimension"),
        Rule(operators=("GATHER",), input_types={0: (*FLOATS, *EIGHT_BIT)}, reason="gathers no integers"),
        Rule(operators=("GATHER",), input_types={1: ("int32",)}, reason="its indices are not int32"),
        Rule(operators=("GATHER",), input_ranks={1: (1,)}, reason="its indices have more than one dimension"),
        Rule(
            operators=("SLICE", "STRIDED_SLICE", "PAD", "PADV2", "MIRROR_PAD"), input_ranks={0: (3, 4)},
            reason="takes three or four dimensions",
        ),
        Rule(
            operators=("SELECT", "SELECT_V2"), input_types={0: ("bool", *FLOATS), 1: FLOATS, 2: FLOATS},
            reason="selects floats only",
        ),
        Rule(operators=_ELEMENTWISE, runtime_inputs=(1,), reason="its input is a constant"),
        Rule(operators=_PAIRWISE, runtime_inputs=(1, 2), reason="both inputs are constants"),
    ),
)  # fmt: skip

_NNAPI_REALS = ("float32", *EIGHT_BIT)
_NNAPI_NUMBERS = (*_NNAPI_REALS, "int32")


def _typed(reason: str, types: tuple[str, ...], *operators: str, at: int = 0) -> Rule:
    return Rule(operators=operators, input_types={at: types}, reason=reason)


def _newest(version: int, *operators: str) -> Rule:
    return Rule(operators=operators, max_version=version, reason=f"newer than version {version}")


NNAPI = Delegate(
    name="nnapi",
    title="NNAPI delegate at NNAPI 1.3 (Android 11)",
    source=(
        "tensorflow/tensorflow, tensorflow/lite/delegates/nnapi/nnapi_delegate.cc, Validate at NNAPI 1.3; weights "
        "stored as halves are widened by it (FP16GraphPartitionHelper). Deprecated since Android 15 "
        "(developer.android.com/ndk/guides/neuralnetworks/migration-guide)"
    ),
    operators=frozenset(
        {
            *("ABS", "ADD", "ARG_MAX", "ARG_MIN", "AVERAGE_POOL_2D", "CAST", "CONCATENATION", "CONV_2D", "DENSIFY"),
            *("DEPTHWISE_CONV_2D", "DEPTH_TO_SPACE", "DEQUANTIZE", "DIV", "ELU", "EMBEDDING_LOOKUP", "EQUAL", "EXP"),
            *("EXPAND_DIMS", "FILL", "FLOOR", "FULLY_CONNECTED", "GATHER", "GREATER", "GREATER_EQUAL", "HARD_SWISH"),
            *("LEAKY_RELU", "LESS", "LESS_EQUAL", "LOG", "LOGICAL_AND", "LOGICAL_NOT", "LOGICAL_OR", "LOGISTIC"),
            *("LOG_SOFTMAX", "MAXIMUM", "MAX_POOL_2D", "MEAN", "MINIMUM", "MUL", "NEG", "NOT_EQUAL", "PACK", "PAD"),
            *("PADV2", "POW", "PRELU", "QUANTIZE", "REDUCE_ANY", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "RELU"),
            *("RELU6", "RELU_N1_TO_1", "RESHAPE", "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR", "RSQRT", "SELECT"),
            *("SIN", "SLICE", "SOFTMAX", "SPACE_TO_DEPTH", "SPLIT", "SPLIT_V", "SQRT", "SQUARED_DIFFERENCE"),
            *("SQUEEZE", "STRIDED_SLICE", "SUB", "SUM", "TANH", "TILE", "TRANSPOSE", "TRANSPOSE_CONV"),
        }
    ),
    rules=(
        _typed("the table is not float32", ("float32",), "EMBEDDING_LOOKUP", at=1),
        _typed("takes floats or 8-bit only", _NNAPI_REALS, "RESHAPE", "PAD", "PADV2", "SOFTMAX", "TANH", "MEAN"),
        _typed("takes floats or 8-bit only", _NNAPI_REALS, "LOGISTIC", "RELU", "RELU6", "HARD_SWISH"),
        _typed("takes floats or 8-bit only", (*FLOATS, *EIGHT_BIT), "CONCATENATION"),
        _typed("takes no other integers", _NNAPI_NUMBERS, "ADD", "MUL", "SUB", "MAXIMUM", "MINIMUM"),
        _typed("takes no other integers", _NNAPI_NUMBERS, "SLICE", "TILE", "SPLIT_V"),
        _typed("takes no other integers", _NNAPI_NUMBERS, "SPLIT", "SELECT", at=1),
        _typed("takes no other integers", ("float16", *_NNAPI_NUMBERS), "GATHER", "EXPAND_DIMS"),
        _typed("takes no other integers", ("float32", "int32", "int8"), "PACK"),
        _typed("takes no other integers", ("float32", "int32"), "NEG"),
        _typed("takes no other integers", ("bool", *_NNAPI_NUMBERS), "EQUAL", "NOT_EQUAL", "LESS", "GREATER"),
        _typed("takes no other integers", ("bool", *_NNAPI_NUMBERS), "LESS_EQUAL", "GREATER_EQUAL"),
        _typed("takes truth values only", ("bool",), "LOGICAL_AND", "LOGICAL_OR", "LOGICAL_NOT"),
        _typed("its indices are not int32", ("int32",), "GATHER", at=1),
        _typed("widens halves and 8-bit values only", ("float16", *EIGHT_BIT), "DEQUANTIZE"),
        _typed("takes floats only", ("float32",), "ABS", "DIV", "ELU", "EXP", "LOG", "POW"),
        _typed("takes floats only", ("float32",), "RSQRT", "SIN", "SQRT", "SUM"),
        _typed("casts no truth values", _NNAPI_NUMBERS, "CAST"),
        Rule(operators=("CAST",), output_types=_NNAPI_NUMBERS, reason="casts to no truth values"),
        Rule(
            operators=("CONCATENATION", "SOFTMAX", "SUB"), input_ranks={0: (0, 1, 2, 3, 4)},
            reason="over four dimensions",
        ),
        _newest(1, "CAST", "DIV", "EMBEDDING_LOOKUP", "EXP", "EXPAND_DIMS", "LOG", "POW", "RESHAPE", "RSQRT"),
        _newest(1, "SQRT", "SUM"),
        _newest(2, "ADD", "CONCATENATION", "EQUAL", "GATHER", "GREATER", "LESS", "LOGISTIC", "MEAN", "MUL"),
        _newest(2, "NOT_EQUAL", "PACK", "PAD", "PADV2", "QUANTIZE", "REDUCE_MAX", "REDUCE_MIN", "RELU", "SELECT"),
        _newest(2, "SLICE", "SOFTMAX", "STRIDED_SLICE", "TANH", "TRANSPOSE"),
        _newest(3, "MAXIMUM", "MINIMUM", "SPLIT", "SUB"),
        _newest(5, "FULLY_CONNECTED"),
    ),
)  # fmt: skip

_QNN_OPERATORS = frozenset(
    {
        *("ABS", "ADD", "ARG_MAX", "ARG_MIN", "AVERAGE_POOL_2D", "BATCH_MATMUL", "BROADCAST_TO", "CAST"),
        *("CEIL", "CONCATENATION", "CONV_2D", "CONV_3D", "COS", "CUMSUM", "DEPTHWISE_CONV_2D"),
        *("DEPTH_TO_SPACE", "DEQUANTIZE", "DIV", "DYNAMIC_UPDATE_SLICE", "ELU", "EMBEDDING_LOOKUP", "EQUAL"),
        *("EXP", "FLOOR", "FLOOR_DIV", "FULLY_CONNECTED", "GATHER", "GATHER_ND", "GELU", "GREATER"),
        *("GREATER_EQUAL", "HARD_SWISH", "L2_NORMALIZATION", "L2_POOL_2D", "LEAKY_RELU", "LESS", "LESS_EQUAL"),
        *("LOG", "LOGICAL_AND", "LOGICAL_NOT", "LOGICAL_OR", "LOGISTIC", "MAXIMUM", "MAX_POOL_2D", "MEAN"),
        *("MINIMUM", "MIRROR_PAD", "MUL", "NEG", "NOT_EQUAL", "PACK", "PAD", "PADV2", "POW", "PRELU"),
        *("QUANTIZE", "REDUCE_ALL", "REDUCE_ANY", "REDUCE_MAX", "REDUCE_MIN", "RELU", "RELU_0_TO_1", "RELU6"),
        *("RELU_N1_TO_1", "RESHAPE", "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR", "REVERSE_V2", "ROUND"),
        *("RSQRT", "SELECT", "SELECT_V2", "SIGN", "SIN", "SLICE", "SOFTMAX", "SPACE_TO_DEPTH", "SPLIT", "SQRT"),
        *("SQUARE", "SQUARED_DIFFERENCE", "STRIDED_SLICE", "SUB", "SUM", "TANH", "TILE", "TOPK_V2"),
        *("TRANSPOSE", "TRANSPOSE_CONV", "UNPACK"),
    }
)  # fmt: skip
_QNN_SOURCE = "google-ai-edge/LiteRT, litert/vendors/qualcomm/compiler/Qualcomm_QNN_Compiler.md, 'Supported Operations'"
_HYBRID = Rule(
    operators=("FULLY_CONNECTED", "BATCH_MATMUL", "EMBEDDING_LOOKUP"),
    same_kind=True,
    reason="8-bit weights against float activations (dynamic INT8); the NPU wants both quantised or both float",
)


def _integers_only(hexagon: str) -> Rule:
    return Rule(
        operators=tuple(sorted(_QNN_OPERATORS)),
        output_types=INTEGERS,
        reason=f"gives floats; Hexagon {hexagon} has integers only",
    )


QNN_FLOAT = Delegate(
    name="qnn",
    title="QNN (Hexagon v69 and later, FP16 and integers)",
    source=f"{_QNN_SOURCE}; FP16 by SoC: devices/profiles",
    operators=_QNN_OPERATORS,
    rules=(_HYBRID,),
)
QNN_INTEGER = Delegate(
    name="qnn",
    title="QNN (Hexagon v68, integers only)",
    source=f"{_QNN_SOURCE}; onnxruntime/onnxruntime-qnn#708: HTP v68 has no FP16 or FP32 path",
    operators=_QNN_OPERATORS,
    rules=(_HYBRID, _integers_only("v68")),
)
QNN_DSP = Delegate(
    name="qnn",
    title="QNN (Hexagon v66, DSP backend, integers only)",
    source=(
        "docs.qualcomm.com/doc/80-63442-10/topic/qnn_libs.html: DSP backend for SM8150 and SM8250; its own operators "
        f"were not found, those of newer generations bound them: {_QNN_SOURCE}"
    ),
    operators=_QNN_OPERATORS,
    rules=(_HYBRID, _integers_only("v66")),
)

DELEGATES: dict[str, tuple[Delegate, ...]] = {
    "pixel-4": (GPU, NNAPI, QNN_DSP),
    "snapdragon-865": (GPU, NNAPI, QNN_DSP),
    "snapdragon-888": (GPU, NNAPI, QNN_INTEGER),
    "snapdragon-8gen1": (GPU, NNAPI, QNN_FLOAT),
    "snapdragon-8gen2": (GPU, NNAPI, QNN_FLOAT),
    "snapdragon-8gen3": (GPU, NNAPI, QNN_FLOAT),
    "snapdragon-8elite": (GPU, QNN_FLOAT),
    "snapdragon-8elite-gen5": (GPU, QNN_FLOAT),
    "pixel-10": (GPU,),
}
"""Device profile to the delegates it offers; on every other profile a TFLite file runs on the CPU.

Phones that came with Android 15 or later are not given NNAPI. Tensor G5's TPU takes models compiled with the Google
Tensor SDK (ai.google.dev/edge/litert/next/tensor-sdk), not a TFLite file as it is. Raspberry Pis and Jetsons have none:
the GPU delegate is supported on Android and iOS (tensorflow/tensorflow#34897), and no rules were found of the WebGPU
accelerator in LiteRT's Linux packages.
"""
