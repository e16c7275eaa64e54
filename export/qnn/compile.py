"""From a plain graph to one context binary for an NPU, with a small ONNX file a length that points into it."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import onnx

from compressor.core.artifact import Placement
from compressor.core.errors import ArtifactError, StageError
from export.qnn.npu import METADATA_KEY, Npu, library_versions, provider_options
from export.qnn.process import HexagonProcess

CONTEXT = "model.bin"
"""The context binary: all graphs, and their weights once."""
DIMENSION = "tokens"
"""Name of the token dimension that becomes a number."""
SDK_KEY = "compressor.qnn"
_CONTEXT_OPERATOR = "EPContext"


def wrapper_name(length: int) -> str:
    """Returns the file that a runtime loads for one length."""
    return f"model_{length}.onnx"


def compile_graph(source: Path, folder: Path, lengths: Iterable[int], npu: Npu) -> Placement:
    """Compiles ``source`` for every length into ``folder``: ``model.bin`` and ``model_<length>.onnx``.

    Returns:
        What the NPU takes of the length that it takes least of.

    Raises:
        StageError: the compiler refuses the graph, ends its process, or leaves every operator on the CPU.
    """
    with HexagonProcess() as process:
        return compile_in(process, source, folder, tuple(lengths), npu)


def compile_in(process: HexagonProcess, source: Path, folder: Path, lengths: tuple[int, ...], npu: Npu) -> Placement:
    """As :func:`compile_graph`, in a process that keeps the compiled graphs and runs them afterwards."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".compile-") as name:
        work = Path(name)
        process.ask(
            "compile", model=str(source.resolve()), folder=str(work.resolve()), lengths=lengths, dimension=DIMENSION,
            options=provider_options(npu),
        )  # fmt: skip
        placement = max((_placement(work, length) for length in lengths), key=lambda found: -found.delegated)
        binaries = list(work.glob("*.bin"))
        if len(binaries) != 1:
            raise StageError(
                f"the compiler left {len(binaries)} context binaries; expected 1: no operator of this graph runs on "
                f"{npu.text}",
                remedy="choose another precision or device",
            )
        shutil.move(binaries[0], folder / CONTEXT)
        for length in lengths:
            _write_wrapper(work / wrapper_name(length), folder / wrapper_name(length), length, npu)
        return placement


def check_made_for(wrapper: Path) -> Npu:
    """Proves, before anything is loaded, that a compiled file is for this version of the QNN libraries.

    Whether it is for the SoC of a device is in its manifest: :func:`devices.legality.check_target`.

    Args:
        wrapper: a ``model_<length>.onnx``.

    Returns:
        The NPU it was made for.

    Raises:
        ArtifactError: it was made by another QNN version, or does not say for which NPU.
    """
    try:
        metadata = {item.key: item.value for item in onnx.load(str(wrapper), load_external_data=False).metadata_props}
        made_for, sdk = Npu.model_validate_json(metadata[METADATA_KEY]), metadata[SDK_KEY]
    except (OSError, KeyError, ValueError) as error:
        raise ArtifactError(f"{wrapper} does not say for which NPU it was made", remedy="convert again") from error
    here = library_versions()["qnn"]
    if sdk != here:
        raise ArtifactError(
            f"{wrapper.name} was compiled by QNN {sdk}; the libraries here are QNN {here}, and a context belongs "
            "to the version that made it",
            remedy="install the onnxruntime-qnn of its manifest, or convert again",
        )
    return made_for


def _placement(work: Path, length: int) -> Placement:
    """Reads the compiled file and the compiler's trace of one length."""
    nodes = onnx.load(str(work / wrapper_name(length)), load_external_data=False).graph.node
    trace: dict[str, Any] = json.loads((work / f"trace_{length}" / "qnn_op_trace.json").read_text(encoding="utf-8"))
    reasons: dict[str, str] = {}
    for node in trace["unsupported_nodes"]:
        reasons.setdefault(node["op_type"], _first_sentence(node["reason"]))
    cpu = Counter(node.op_type for node in nodes if node.op_type != _CONTEXT_OPERATOR)
    return Placement(
        nodes=int(trace["summary"]["total_onnx_nodes"]),
        cpu_nodes=dict(sorted(cpu.items())),
        contexts=sum(node.op_type == _CONTEXT_OPERATOR for node in nodes),
        reasons={name: reasons.get(name, "beside an operator that stays on the CPU") for name in sorted(cpu)},
    )


def _first_sentence(reason: str) -> str:
    return " ".join(reason.split()).partition(". ")[0].partition(".Erf")[0][:300]


def _write_wrapper(source: Path, target: Path, length: int, npu: Npu) -> None:
    """Writes a compiled file again: pointing to ``model.bin``, and saying what it was made for and by."""
    model = onnx.load(str(source), load_external_data=False)
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "ep_cache_context" and attribute.s:
                attribute.s = CONTEXT.encode()
    values = {METADATA_KEY: npu.to_text(), SDK_KEY: library_versions()["qnn"], DIMENSION: str(length)}
    onnx.helper.set_model_props(model, values)
    onnx.save(model, str(target))
