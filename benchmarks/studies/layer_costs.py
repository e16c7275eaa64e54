"""Measures what one encoder layer costs on a device, by heads and feed-forward width: the table of a time budget.

    python -m benchmarks.studies.layer_costs MODEL --device host --tokens 32 -o layer-costs.json

The table goes into a recipe: ``prune: {budget: {ms: 4.0, latency: layer-costs.json, tokens: 32}}``. For each pair of
widths the model is built with two and with four layers, converted and measured; half the difference is one layer.
"""

from __future__ import annotations

import argparse
import copy
import tempfile
from pathlib import Path
from typing import Any

import torch

from compressor.app.convert import convert
from compressor.app.latency import bench
from compressor.core.artifact import Format, Precision
from compressor.core.checkpoint import Checkpoint
from compressor.core.folders import write_text
from compressor.families import adapter_for
from compressor.models import load_config, resolve, save_checkpoint
from compressor.prune.costs import CostTable
from compressor.shapes import LayerShape, Shape, build, plain_shape

DEPTHS = (2, 4)


def variant(source: Checkpoint, *, depth: int, heads: int, ffn: int, folder: Path) -> Path:
    """Writes a model of the source's family and vocabulary with random weights and layers of that shape."""
    config: Any = copy.deepcopy(load_config(source))
    setattr(config, adapter_for(config).layers_key, depth)
    plain = plain_shape(config)
    layer = LayerShape(heads=heads, ffn=(ffn,) * len(plain.layers[0].ffn))
    torch.manual_seed(0)
    model = build(config, Shape(head_size=plain.head_size, layers=(layer,) * len(plain.layers)))
    with torch.no_grad():
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.04) if parameter.dim() > 1 else parameter.fill_(0.1)
    save_checkpoint(model.eval(), source.path, folder)
    return folder


def p50_ms(
    model: Path, folder: Path, *, to: Format, precision: Precision, device: str, tokens: int, runs: int
) -> float:
    """Converts a model at one length and returns its median time for one sentence."""
    artifact = convert(model, to=to, precision=precision, output=folder, lengths=(tokens,))
    return bench(artifact.path, device=device, runs=runs).p50_ms


def main() -> None:
    """Measures and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--device", default="host")
    parser.add_argument("--to", default="tflite", choices=("onnx", "tflite"))
    parser.add_argument("--precision", default="int8", choices=("fp32", "int8"))
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("-o", "--output", type=Path, default=Path("layer-costs.json"))
    given = parser.parse_args()
    source = resolve(given.model)
    whole = plain_shape(load_config(source)).layers[0]
    heads = tuple(sorted({1, max(1, whole.heads // 2), whole.heads}))
    widths = tuple(sorted({max(1, whole.ffn[0] // 8), whole.ffn[0] // 2, whole.ffn[0]}))
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
                    times.append(
                        p50_ms(made, place / "artifact", to=given.to, precision=given.precision, device=given.device,
                               tokens=given.tokens, runs=given.runs)
                    )  # fmt: skip
                layer = max(0.0, (times[1] - times[0]) / (DEPTHS[1] - DEPTHS[0]))
                row.append(round(layer, 4))
                idle.append(max(0.0, times[0] - DEPTHS[0] * layer))
            rows.append(tuple(row))
    table = CostTable(
        device=given.device, tokens=given.tokens, idle_ms=round(sorted(idle)[len(idle) // 2], 4), heads=heads,
        intermediate=widths, layer_ms=tuple(rows),
    )  # fmt: skip
    write_text(given.output, table.model_dump_json(indent=2) + "\n")
    print(f"{given.output}: {len(heads) * len(widths)} shapes of one layer on {given.device}")


if __name__ == "__main__":
    main()
