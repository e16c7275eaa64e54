"""What one encoder layer costs on a device, by heads and feed-forward width: the table of a time budget.

For each pair of widths the model is built with two and with four layers, converted and measured; half the difference is
one layer.
"""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import torch

from compressor.app.convert import convert
from compressor.app.latency import bench
from compressor.core.artifact import Format, Precision
from compressor.core.cache import cache_folder
from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import DeviceError
from compressor.core.folders import write_text
from compressor.core.hashing import sha256_json
from compressor.core.latency import LatencyModel
from compressor.families import adapter_for
from compressor.models import load_config, save_checkpoint
from compressor.shapes import LayerShape, Shape, build, plain_shape
from devices.profiles import parse_device

DEPTHS = (2, 4)


def variant(source: Checkpoint, *, depth: int, heads: int, ffn: int, folder: Path) -> Path:
    """Writes a model of the source's family and vocabulary with random weights and layers of that shape."""
    config: Any = copy.deepcopy(load_config(source))
    setattr(config, adapter_for(config).layers_key, depth)
    plain = plain_shape(config)
    layer = LayerShape(heads=heads, ffn=(ffn,) * len(plain.layers[0].ffn))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build(config, Shape(head_size=plain.head_size, layers=(layer,) * len(plain.layers)))
        with torch.no_grad():
            for parameter in model.parameters():
                torch.nn.init.normal_(parameter, std=0.04) if parameter.dim() > 1 else parameter.fill_(0.1)
    save_checkpoint(model.eval(), source.path, folder)
    return folder


def measure_layers(
    source: Checkpoint, *, device: str, tokens: int, to: Format = "tflite", precision: Precision = "int8",
    threads: int = 1, runs: int = 200,
) -> LatencyModel:  # fmt: skip
    """Measures a latency model.

    Args:
        source: the model that is to be pruned; its weights are not looked at.
        device: profile, with where to reach it.
        tokens: the length it holds for.
        to: format of the measured files.
        precision: of the measured files.
        threads: threads the model may use.
        runs: timed runs of each file.

    Raises:
        DeviceError: the device is not reached, or no layer took measurable time.
        IllegalOnDeviceError: the device cannot run that format or precision.
    """
    config = load_config(source)
    plain = plain_shape(config)
    whole = plain.layers[0]
    heads = sorted({1, max(1, whole.heads // 2), whole.heads})
    widths = sorted({max(1, whole.ffn[0] // 8), whole.ffn[0] // 2, whole.ffn[0]})
    idle: list[float] = []
    rows = []
    with tempfile.TemporaryDirectory(prefix="compressor-layer-costs-") as name:
        for head_count in heads:
            row = []
            for width in widths:
                times = []
                for depth in DEPTHS:
                    place = Path(name) / f"{head_count}-{width}-{depth}"
                    made = variant(source, depth=depth, heads=head_count, ffn=width, folder=place / "model")
                    # Files of random weights, each made once: the cache of conversions would only fill.
                    artifact = convert(made, to=to, precision=precision, output=place / "artifact", lengths=(tokens,),
                                       device=device, cache=False)  # fmt: skip
                    times.append(bench(artifact.path, device=device, threads=threads, runs=runs).p50_ms)
                layer = max(0.0, (times[1] - times[0]) / (DEPTHS[1] - DEPTHS[0]))
                row.append(round(layer, 4))
                idle.append(max(0.0, times[0] - DEPTHS[0] * layer))
            rows.append(tuple(row))
    if not any(map(any, rows)):
        raise DeviceError(f"no layer took measurable time on {device}", remedy="measure with more runs")
    return LatencyModel(
        device=parse_device(device).name, format=to, precision=precision, threads=threads, tokens=tokens,
        model_type=config.model_type, hidden_size=adapter_for(config).hidden_size(config), head_size=plain.head_size,
        idle_ms=round(median(idle), 4), heads=tuple(heads), layer_ms=tuple(rows),
        intermediate=tuple(width * len(whole.ffn) for width in widths),
    )  # fmt: skip


def latency_of(device: str, source: Checkpoint, tokens: int) -> LatencyModel:
    """Returns the latency model of a device for a checkpoint's layers; measured once, then kept in the user's cache.

    Measured are the device's files of choice: INT8 in TFLite where it runs that, else in ONNX.
    """
    address = parse_device(device)
    to: Format = "tflite" if "tflite" in address.profile.formats else "onnx"
    config = load_config(source).to_diff_dict()
    key = sha256_json([address.name, to, tokens, {name: config[name] for name in sorted(config) if name[0] != "_"}])[
        :16
    ]
    file = cache_folder("latency") / f"{address.profile.name}-{key}.json"
    if not file.is_file():
        found = measure_layers(source, device=device, tokens=tokens, to=to)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, found.model_dump_json(indent=2) + "\n")
    return LatencyModel.load(file)
