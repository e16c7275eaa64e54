"""A stand-in for each generation of TensorRT that has the recorded attributes of the real bindings and no others."""

from __future__ import annotations

import enum
import json
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

TABLE = json.loads((files("export.tensorrt.device") / "bindings.json").read_text())
PRODUCT, NORM = "/model/query/MatMul", "/model/LayerNorm/Add_8"
DEFAULT_LAYERS = ({"Name": PRODUCT, "LayerType": "gemm", "Inputs": [{"Format/Datatype": "Half"}]},)


class Guard:
    """An object of a recorded class: touching what that class lacks is an AttributeError, as with the real one."""

    def __init__(self, kind: str, recorded: list[str], **values: Any) -> None:
        object.__setattr__(self, "_kind", kind)
        object.__setattr__(self, "_recorded", frozenset(recorded))
        for name, value in values.items():
            if name in recorded:
                object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{self._kind} has no attribute '{name}' in this version")

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._recorded:
            raise AttributeError(f"{self._kind} has no attribute '{name}' in this version")
        object.__setattr__(self, name, value)


NOT_YET = {
    "8.0.1": {
        "IBuilderConfig": ["set_memory_pool_limit", "get_memory_pool_limit"],
        "ICudaEngine": ["create_engine_inspector"],
        "BuilderFlag": ["OBEY_PRECISION_CONSTRAINTS", "PREFER_PRECISION_CONSTRAINTS"],
        "ProfilingVerbosity": ["DETAILED", "LAYER_NAMES_ONLY"],
    },
    "8.2.1": {"IBuilderConfig": ["set_memory_pool_limit", "get_memory_pool_limit"]},
    "8.5.2": {},
}
"""No bindings of these are on PyPI: 8.6.1's, without what their release notes say came later."""


def recorded(version: str) -> tuple[dict[str, list[str]], dict[str, Any]]:
    """Returns the attributes by class and the enums of a version."""
    table, missing = TABLE.get(version, TABLE["8.6.1"]), NOT_YET.get(version, {})
    classes = {name: [x for x in items if x not in missing.get(name, ())] for name, items in table["classes"].items()}
    enums = {
        name: enum.IntEnum(name, {k: v for k, v in members.items() if k not in missing.get(name, ())})
        for name, members in table["enums"].items()
    }
    return classes, enums


def stand_in(
    version: str, *, layers: Any = DEFAULT_LAYERS, parses: bool = True, int8: bool = True, typed: bool = True
) -> Any:
    """Returns (module, what the builder was told, the network's layers); versions of the table or of NOT_YET."""
    classes, enums = recorded(version)
    data, kinds = enums["DataType"], enums["LayerType"]
    seen = SimpleNamespace(flags=[], profiles=[], network_flags=None, cache=None, model=None, config=None)

    def made(kind: str, **values: Any) -> Guard:
        return Guard(kind, classes[kind], **values)

    def layer(name: str, kind: Any, dtype: Any, shape: bool = False) -> Guard:
        output = made("ITensor", dtype=dtype, is_shape_tensor=shape)
        return made(
            "ILayer", name=name, type=kind, get_output=lambda index: output, precision=None, output_type=None,
            set_output_type=lambda index, dtype: None,
        )  # fmt: skip

    network = [
        layer(PRODUCT, kinds.MATRIX_MULTIPLY, data.HALF if typed else data.FLOAT),
        layer(NORM, kinds.ELEMENTWISE, data.FLOAT),
        layer("weights", kinds.CONSTANT, data.HALF),
        layer("length", kinds.GATHER, data.INT32, True),
    ]
    inputs = [made("ITensor", name="input_ids"), made("ITensor", name="attention_mask")]

    class Logger:
        ERROR, INTERNAL_ERROR = "error", "internal"

        def __init__(self) -> None:
            pass

    def create_network(flags: int) -> Guard:
        seen.network_flags = flags
        return made(
            "INetworkDefinition", num_layers=len(network), get_layer=network.__getitem__, num_inputs=2,
            get_input=inputs.__getitem__,
        )  # fmt: skip

    def create_timing_cache(content: bytes) -> Guard:
        seen.cache = content
        return made("ITimingCache", serialize=lambda: b"cache")

    def create_builder_config() -> Guard:
        seen.config = made(
            "IBuilderConfig", set_flag=seen.flags.append, add_optimization_profile=seen.profiles.append,
            create_timing_cache=create_timing_cache, set_timing_cache=lambda cache, ignore: None,
            set_memory_pool_limit=lambda pool, size: None,
        )  # fmt: skip
        return seen.config

    def create_optimization_profile() -> Guard:
        shapes: dict[str, Any] = {}
        return made(
            "IOptimizationProfile", set_shape=lambda name, *all_: shapes.update({name: all_}),
            get_shape=shapes.__getitem__,
        )  # fmt: skip

    def builder(logger: Any) -> Guard:
        return made(
            "Builder", create_network=create_network, create_builder_config=create_builder_config,
            create_optimization_profile=create_optimization_profile, platform_has_fast_int8=int8,
            build_serialized_network=lambda network, config: b"engine",
        )  # fmt: skip

    def parser(network: Any, logger: Any) -> Guard:
        def parse(path: str) -> bool:
            seen.model = path
            return parses

        return made("OnnxParser", num_errors=1, get_error=lambda i: "node 7 is unknown", parse_from_file=parse)

    def runtime(logger: Any) -> Guard:
        inspector = made("EngineInspector", get_engine_information=lambda format: json.dumps({"Layers": list(layers)}))
        engine = made("ICudaEngine", create_engine_inspector=lambda: inspector)
        return made("Runtime", deserialize_cuda_engine=lambda content: engine)

    module = SimpleNamespace(
        __version__=version, ILogger=Logger, Builder=builder, OnnxParser=parser, Runtime=runtime, **enums
    )
    return module, seen, network


class FakeCuda:
    """The CUDA driver of one GPU, as far as the scripts ask it."""

    def __init__(self, name: str = "Orin", capability: tuple[int, int] = (8, 7)) -> None:
        self.name, self.capability = name, capability

    def cuInit(self, flags: int) -> int:
        return 0

    def cuDeviceGet(self, device: Any, index: int) -> int:
        return 0

    def cuDriverGetVersion(self, version: Any) -> int:
        version._obj.value = 12060
        return 0

    def cuDeviceGetName(self, buffer: Any, size: int, device: Any) -> int:
        buffer.value = self.name.encode()
        return 0

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: Any) -> int:
        value._obj.value = self.capability[attribute - 75]
        return 0
