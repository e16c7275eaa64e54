"""What an encoder compiles to for every Snapdragon we have a profile of: the facts behind ``hexagon`` in the profiles.

    python -m benchmarks.studies.qnn_socs --model CHECKPOINT --calibrate TRAIN.tsv [--lengths 32] [--output socs.json]

Each SoC gets W8A8, W8A16, mixed and FP16 whatever its profile says it offers; what the compiler refuses is a row too.
Nothing is run: compiling is all that is measured.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.studies.qnn_compiled import Subject
from compressor.core.artifact import NPU_PRECISIONS, Precision
from compressor.core.device import Hexagon
from compressor.core.errors import StageError
from compressor.core.folders import write_json
from compressor.core.spread import spread
from compressor.data.reader import read_sentences
from compressor.quantize.plan import QuantizationPlan
from devices.profiles import load_profile, profile_names
from export.calibration import Calibration
from export.qnn.backend import PLAIN
from export.qnn.compile import compile_graph
from export.qnn.npu import Npu, library_versions
from export.qnn.quantize import quantize

TEXTS = 16


def main() -> None:
    """Compiles for every SoC and prints what became of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--calibrate", type=Path, required=True)
    parser.add_argument("--lengths", type=lambda text: tuple(map(int, text.split(","))), default=(32,))
    parser.add_argument("--output", type=Path, default=Path("runs/qnn_socs.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        subject = Subject.open(
            options.model.name, options.model, work, options.lengths, load_profile("snapdragon-8gen3")
        )
        source = subject.work / "fp32" / PLAIN
        texts = read_sentences(options.calibrate)
        texts = tuple(texts[at] for at in spread(len(texts), TEXTS))
        calibration = Calibration(encoder=subject.encoder, texts=texts, lengths=options.lengths)
        graphs: dict[Precision, Path] = {"fp16": source}
        quantized: list[Precision] = [item for item in NPU_PRECISIONS if item != "fp16"]
        for precision in quantized:
            graphs[precision] = work / f"{precision}.onnx"
            quantize(source, graphs[precision], precision, QuantizationPlan(), calibration)
        for hexagon, device in _socs():
            for compiled, graph in graphs.items():
                row = _row(graph, work, options.lengths, hexagon, device)
                rows.append({"device": device, "soc_model": hexagon.soc_model, "hexagon": f"v{hexagon.arch}",
                             "precision": compiled, **row, **library_versions()})  # fmt: skip
                print(*(f"{key} {value}" for key, value in rows[-1].items()), sep=" | ", flush=True)
                write_json(options.output, rows)


def _socs() -> list[tuple[Hexagon, str]]:
    profiles = [load_profile(name) for name in profile_names()]
    found = [(item.hexagon, item.name) for item in profiles if item.hexagon is not None]
    return sorted(found, key=lambda item: item[0].arch)


def _row(graph: Path, work: Path, lengths: tuple[int, ...], hexagon: Hexagon, device: str) -> dict[str, object]:
    every: tuple[Precision, ...] = ("fp16",)
    npu = Npu(device=device, hexagon=hexagon.model_copy(update={"precisions": every}))
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=work) as folder:
        try:
            made = compile_graph(graph, Path(folder), lengths, npu)
        except StageError as error:
            return {"compiles": False, "reason": error.message[:300]}
        size = sum(path.stat().st_size for path in Path(folder).glob("model*"))
    return {
        "compiles": made.delegated == 1.0,
        "delegated": round(made.delegated, 4),
        "contexts": made.contexts,
        "cpu_operators": made.cpu_nodes,
        "size_mb": round(size / 1e6, 2),
        "seconds": round(time.perf_counter() - start, 1),
    }


if __name__ == "__main__":
    main()
