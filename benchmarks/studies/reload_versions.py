"""Loads compressed checkpoints of every family with another version of transformers and compares the logits.

    python -m benchmarks.studies.reload_versions [--transformers 4.57.6]

The other version is installed beside this environment, into a temporary folder that stands before it on the path.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from benchmarks.studies.shrink import FAMILIES, tiny_checkpoint
from compressor.core.checkpoint import Checkpoint
from compressor.families import adapter_for
from compressor.models import load_compressed, save_checkpoint
from compressor.prune.surgery import keep_heads, keep_neurons
from compressor.shapes import replace_word_embedding, shape_of
from compressor.share.embedding import factorized
from compressor.share.layers import share_layers

PINS = {"4.57.6": ("huggingface_hub<1.0", "tokenizers==0.22.*")}
"""What a version of transformers needs in another version than this environment has."""
_IDS = torch.arange(5, 21).reshape(2, 8)


def logits(folder: Path) -> torch.Tensor:
    """Returns a checkpoint's logits on fixed ids."""
    with torch.no_grad():
        found: torch.Tensor = load_compressed(folder)(input_ids=_IDS, attention_mask=torch.ones_like(_IDS)).logits
    return found


def write(name: str, folder: Path) -> None:
    """Writes a model with uneven layers, two of which share their weights, and a factorised table; and its logits."""
    source: Checkpoint = tiny_checkpoint(name, folder / "source")
    model = load_compressed(source)
    adapter = adapter_for(model.config)
    if not adapter.shares_layers:
        share_layers(model, (0, 1, 0, 2), init="best")
    size = shape_of(model).head_size
    for place, layer in enumerate(adapter.stored_layers(model).values()):
        keep_heads(adapter, layer, range(3 - place % 2), head_size=size)
        for wide, narrow in adapter.feed_forwards(layer):
            keep_neurons(wide, narrow, range(90 + place))
    replace_word_embedding(adapter, model, factorized(adapter.word_embedding(model), 8)[0])
    save_checkpoint(model, source.path, folder / "made")
    torch.save(logits(folder / "made"), folder / "logits.pt")


def check(root: Path) -> dict[str, float]:
    """Returns the largest difference of each family's logits to the saved ones."""
    return {
        name: float((logits(root / name / "made") - torch.load(root / name / "logits.pt")).abs().max())
        for name in FAMILIES
    }


def main() -> None:
    """Writes with this version, reads with the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transformers", default="4.57.6", choices=sorted(PINS))
    parser.add_argument("--check", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.check is not None:
        import transformers

        print(json.dumps({"transformers": transformers.__version__, "largest_difference": check(given.check)}))
        return
    with tempfile.TemporaryDirectory(prefix="compressor-reload-") as name:
        root, packages = Path(name), Path(name) / "packages"
        for family in FAMILIES:
            write(family, root / family)
        wanted = (f"transformers=={given.transformers}", *PINS[given.transformers])
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(packages))
        subprocess.run((*pip, *wanted), check=True)
        path = os.pathsep.join((str(packages), *sys.path))
        again = (sys.executable, "-m", "benchmarks.studies.reload_versions", "--check", str(root))
        subprocess.run(again, check=True, env={**os.environ, "PYTHONPATH": path})


if __name__ == "__main__":
    main()
