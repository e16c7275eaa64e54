"""Measures what one encoder layer costs on a device, by heads and feed-forward width: the table of a time budget.

    python -m benchmarks.studies.layer_costs MODEL --device host --tokens 32 -o layer-costs.json

The table goes into a recipe: ``prune: {budget: {ms: 4.0, tokens: 32}, latency: layer-costs.json}``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from compressor.app.layer_costs import measure_layers
from compressor.core.folders import write_text
from compressor.models import resolve


def main() -> None:
    """Measures and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--device", default="host")
    parser.add_argument("--to", default="tflite", choices=("onnx", "tflite"))
    parser.add_argument("--precision", default="int8", choices=("fp32", "int8"))
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("-o", "--output", type=Path, default=Path("layer-costs.json"))
    given = parser.parse_args()
    found = measure_layers(
        resolve(given.model), device=given.device, tokens=given.tokens, to=given.to, precision=given.precision,
        threads=given.threads, runs=given.runs,
    )  # fmt: skip
    write_text(given.output, found.model_dump_json(indent=2) + "\n")
    print(f"{given.output}: {len(found.heads) * len(found.intermediate)} shapes of one layer on {found.device}")


if __name__ == "__main__":
    main()
