"""The files beside the ONNX graph with which a device builds its own engine."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from compressor.core.artifact import Precision
from compressor.core.folders import write_json, write_text
from export.tensorrt.device.build_engine import SETTINGS, Profile
from export.tensorrt.graphs import BuildGraph

PYTHON_SCRIPTS = ("build_engine.py", "engine_check.py")
SHELL_SCRIPT = "build_engine.sh"


def write_build_files(
    folder: Path,
    *,
    graphs: Sequence[BuildGraph],
    inputs: Sequence[str],
    profiles: Sequence[Profile],
    precision: Precision,
) -> None:
    """Writes ``build.json``, the Python scripts and ``build_engine.sh`` into ``folder``.

    Args:
        folder: where the ONNX files lie.
        graphs: the one for the newest TensorRT first; the scripts take the first that this device's version reads, and
            refuse a file whose content is not the recorded one.
        inputs: names of the graphs' inputs, each of shape (1, tokens).
        profiles: one for each length.
        precision: what the artifact holds.
    """
    settings = {
        "schema_version": 2,
        "graphs": [graph.model_dump(mode="json") for graph in graphs],
        "inputs": list(inputs),
        "profiles": [list(profile) for profile in profiles],
        "precision": precision,
    }
    write_json(folder / SETTINGS, settings)
    for name in PYTHON_SCRIPTS:
        with as_file(files("export.tensorrt.device") / name) as script:
            shutil.copyfile(script, folder / name)
    environment = Environment(
        loader=PackageLoader("export.tensorrt"), undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False
    )
    text = environment.get_template(f"{SHELL_SCRIPT}.jinja").render(
        graphs=graphs,
        inputs=inputs,
        profiles=profiles,
        precision=precision,
        max_tokens=max(profile.max_tokens for profile in profiles),
    )
    write_text(folder / SHELL_SCRIPT, text)
    for name in (*PYTHON_SCRIPTS, SHELL_SCRIPT):
        (folder / name).chmod(0o755)
