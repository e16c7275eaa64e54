"""The files beside the ONNX graph with which a device builds its own engine."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from importlib.resources import as_file, files
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from compressor.core.artifact import Precision
from compressor.core.folders import write_json, write_text
from export.tensorrt.device.build_engine import SETTINGS, Profile

PYTHON_SCRIPT = "build_engine.py"
SHELL_SCRIPT = "build_engine.sh"


def write_build_files(
    folder: Path,
    *,
    model: str,
    sha256: Mapping[str, str],
    inputs: Sequence[str],
    profiles: Sequence[Profile],
    precision: Precision,
) -> None:
    """Writes ``build.json``, ``build_engine.py`` and ``build_engine.sh`` into ``folder``.

    Args:
        folder: where the ONNX file lies.
        model: name of the ONNX file.
        sha256: hash of it and of its external data, by file name; the scripts refuse any other content.
        inputs: names of the graph's inputs, each of shape (1, tokens).
        profiles: one for each length.
        precision: what the file holds.
    """
    settings = {
        "model": model,
        "sha256": dict(sha256),
        "inputs": list(inputs),
        "profiles": [list(profile) for profile in profiles],
        "precision": precision,
    }
    write_json(folder / SETTINGS, settings)
    with as_file(files("export.tensorrt.device") / PYTHON_SCRIPT) as script:
        shutil.copyfile(script, folder / PYTHON_SCRIPT)
    environment = Environment(
        loader=PackageLoader("export.tensorrt"), undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False
    )
    text = environment.get_template(f"{SHELL_SCRIPT}.jinja").render(
        model=model,
        sha256=sha256,
        inputs=inputs,
        profiles=profiles,
        precision=precision,
        max_tokens=max(profile.max_tokens for profile in profiles),
    )
    write_text(folder / SHELL_SCRIPT, text)
    for name in (PYTHON_SCRIPT, SHELL_SCRIPT):
        (folder / name).chmod(0o755)
