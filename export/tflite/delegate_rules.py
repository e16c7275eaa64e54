"""What the GPU, NNAPI and QNN delegates of TFLite refuse, as data, with where each rule comes from.

The rules say what a delegate's own check says about an operator; whether a driver then takes it, and whether that is
faster than the CPU, only the device can tell.
"""

from __future__ import annotations

from pydantic import Field

from compressor.core.schema import Record

FLOATS = ("float32", "float16")
EIGHT_BIT = ("int8", "uint8")


class Rule(Record):
    """Refuses an operator for which one of the conditions does not hold; a condition that is None is not looked at."""

    operators: tuple[str, ...]
    reason: str
    max_version: int | None = None
    """Newest version of the operator that is taken."""
    input_types: dict[int, tuple[str, ...]] = Field(default_factory=dict)
    """Types that are taken, by the input's position."""
    output_types: tuple[str, ...] | None = None
    input_ranks: tuple[int, ...] | None = None
    """Ranks of input 0 that are taken."""
    runtime_inputs: tuple[int, ...] | None = None
    """How many inputs may be computed (not stored in the file)."""
    plain_broadcast: bool = False
    """Two inputs of different rank only where they broadcast as in :func:`export.tflite.delegates.broadcasts`."""
    same_kind: bool = False
    """Inputs 0 and 1 are both float, or both quantised: no float activations against 8-bit weights."""


class Delegate(Record):
    """One delegate on one kind of device."""

    name: str
    title: str
    source: str
    operators: frozenset[str]
    """Everything it takes at all."""
    rules: tuple[Rule, ...]


_ELEMENTWISE = (
    *("ABS", "CEIL", "COS", "ELU", "EXP", "FLOOR", "GELU", "LOG", "LOGISTIC", "NEG", "RSQRT", "SIGN", "SIN", "SQRT"),
    *("SQUARE", "TANH"),
)
_PAIRWISE = (
    *("DIV", "EQUAL", "FLOOR_DIV", "FLOOR_MOD", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "LOGICAL_AND"),
    *("MAXIMUM", "MINIMUM", "NOT_EQUAL", "POW", "SQUARED_DIFFERENCE", "SUB"),
)

GPU = Delegate(
    name="gpu",
    title="GPU delegate (OpenCL, OpenGL)",
    source="tensorflow/lite/tools/versioning/gpu_compatibility.cc, without the enhanced broadcast of newer releases",
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
        Rule(operators=("CAST",), input_types={0: ("float32", "int32")}, reason="casts only between float32 and int32"),
        Rule(operators=("CAST",), output_types=("float32", "int32"), reason="casts only between float32 and int32"),
        Rule(operators=("CUMSUM",), input_types={0: FLOATS}, reason="sums floats only"),
        Rule(operators=("DEQUANTIZE",), input_types={0: (*FLOATS, *EIGHT_BIT, "int4")}, reason="no int16"),
        Rule(
            operators=("EMBEDDING_LOOKUP",), input_types={1: ("float32", "int8", "int4")},
            reason="the table is neither float32 nor int8",
        ),
        Rule(operators=("GATHER",), input_types={0: (*FLOATS, *EIGHT_BIT)}, reason="gathers no integers"),
        Rule(operators=("SLICE", "STRIDED_SLICE"), input_ranks=(3, 4), reason="takes three or four dimensions"),
        Rule(operators=("SELECT", "SELECT_V2"), input_types={1: FLOATS, 2: FLOATS}, reason="selects floats only"),
        Rule(operators=_ELEMENTWISE, runtime_inputs=(1,), reason="its input is a constant"),
        Rule(operators=_PAIRWISE, runtime_inputs=(1, 2), reason="both inputs are constants"),
    ),
)  # fmt: skip

NNAPI = Delegate(
    name="nnapi",
    title="NNAPI delegate at NNAPI 1.3 (Android 11)",
    source="tensorflow/lite/delegates/nnapi/nnapi_delegate.cc, Validate; NNAPI itself is deprecated since Android 15",
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
        Rule(operators=("EMBEDDING_LOOKUP",), input_types={1: ("float32",)}, reason="the table is not float32"),
        Rule(operators=("RESHAPE", "PAD"), input_types={0: (*FLOATS, *EIGHT_BIT)}, reason="takes floats or 8-bit only"),
        Rule(operators=("DEQUANTIZE",), max_version=2, reason="widens 8-bit values only (version 2)"),
        Rule(operators=("FULLY_CONNECTED",), max_version=5, reason="newer than version 5"),
        Rule(operators=("ADD", "MUL", "SLICE", "TANH", "MEAN"), max_version=2, reason="newer than version 2"),
        Rule(
            operators=("CAST",), input_types={0: ("float32", "int32", *EIGHT_BIT)}, reason="casts no truth values"
        ),
        Rule(operators=("RSQRT", "SQRT", "EXP", "POW"), input_types={0: FLOATS}, reason="takes floats only"),
    ),
)  # fmt: skip

_QNN_OPERATORS = frozenset(
    {
        *("ADD", "BATCH_MATMUL", "BROADCAST_TO", "CAST", "CONCATENATION", "CONV_2D", "COS", "CUMSUM"),
        *("DEPTHWISE_CONV_2D", "DEPTH_TO_SPACE", "DEQUANTIZE", "DIV", "DYNAMIC_UPDATE_SLICE", "EMBEDDING_LOOKUP"),
        *("FLOOR_DIV", "FULLY_CONNECTED", "GATHER", "GATHER_ND", "GELU", "GREATER", "HARD_SWISH", "LEAKY_RELU", "LESS"),
        *("LOGICAL_AND", "LOGISTIC", "MAXIMUM", "MAX_POOL_2D", "AVERAGE_POOL_2D", "MEAN", "MINIMUM", "MUL"),
        *("NOT_EQUAL", "PACK", "PAD", "PADV2", "QUANTIZE", "RELU", "RELU6", "RESHAPE", "RESIZE_BILINEAR"),
        *("RESIZE_NEAREST_NEIGHBOR", "RSQRT", "SELECT", "SELECT_V2", "SIN", "SLICE", "SOFTMAX", "SPACE_TO_DEPTH"),
        *("SPLIT", "SQUARE", "SQUARED_DIFFERENCE", "SUB", "SUM", "TANH", "TRANSPOSE", "TRANSPOSE_CONV"),
    }
)
_QNN_SOURCE = (
    "google-ai-edge/LiteRT, litert/vendors/qualcomm/compiler/qnn_compose_graph.cc; Qualcomm AI Engine Direct, "
    "HTP backend operator supplement"
)
_HYBRID = Rule(
    operators=("FULLY_CONNECTED", "BATCH_MATMUL", "EMBEDDING_LOOKUP"),
    same_kind=True,
    reason="8-bit weights against float activations (dynamic INT8); the NPU wants both quantised or both float",
)

QNN_V75 = Delegate(
    name="qnn",
    title="QNN (Hexagon v75, FP16 and integers)",
    source=_QNN_SOURCE,
    operators=_QNN_OPERATORS,
    rules=(_HYBRID,),
)
QNN_V66 = Delegate(
    name="qnn",
    title="QNN (Hexagon v66, integers only)",
    source=_QNN_SOURCE,
    operators=_QNN_OPERATORS,
    rules=(
        _HYBRID,
        Rule(
            operators=tuple(sorted(_QNN_OPERATORS)),
            output_types=(*EIGHT_BIT, "int16", "int32", "bool"),
            reason="gives floats; Hexagon v66 has integers only",
        ),
    ),
)

DELEGATES: dict[str, tuple[Delegate, ...]] = {
    "snapdragon-865": (GPU, NNAPI, QNN_V66),
    "snapdragon-8gen3": (GPU, NNAPI, QNN_V75),
}
"""Device profile to the delegates it offers; on every other profile a TFLite file runs on the CPU."""
