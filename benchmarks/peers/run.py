"""Runs other people's tools on finished artifacts and prints what they answer beside what we do.

    python -m benchmarks.peers.run ARTIFACTS --sentences FILE

``ARTIFACTS`` is a folder of artifact folders. Each peer gets a virtual environment of its own, made the first time.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from benchmarks.peers.environment import Peer
from compressor.app.inputs import read_texts
from compressor.core.artifact import MANIFEST, Artifact
from compressor.core.errors import CompressorError
from compressor.tasks.metrics import softmax
from compressor.text import bucket
from export.android.bundle import write_bundle
from export.text_predictor import TextPredictor

OPTIMUM = Peer(
    name="optimum", packages=("torch==2.13.0", "optimum-onnx[onnxruntime]==0.1.0"), worker="optimum_worker.py"
)
TFLITE_RUNTIME = Peer(
    name="tflite-runtime", packages=("tflite-runtime==2.14.0", "numpy<2"), worker="tflite_runtime_worker.py"
)
MEDIAPIPE = Peer(name="mediapipe", packages=("mediapipe==1.2.2",), worker="mediapipe_worker.py")
MOST_SENTENCES = 100


def main() -> int:
    """Prints one JSON document and returns 0 where every peer ran."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("artifacts", type=Path, help="a folder of artifact folders")
    parser.add_argument("--sentences", type=Path, default=None, help="default: the built-in ones")
    parser.add_argument("--environments", type=Path, default=Path.home() / ".cache" / "compressor" / "peers")
    arguments = parser.parse_args()
    try:
        print(json.dumps(run(arguments.artifacts, arguments.sentences, arguments.environments), indent=2))
    except CompressorError as error:
        print(f"{error.message}\n{error.remedy}", file=sys.stderr)
        return error.exit_code
    return 0


def run(folder: Path, sentences: Path | None, environments: Path) -> dict[str, object]:
    """Returns {peer: its versions and its answers, artifact by artifact}."""
    artifacts = [Artifact.load(path.parent) for path in sorted(folder.glob(f"*/{MANIFEST}"))]
    texts = [text for text in read_texts(sentences)[0] if isinstance(text, str)][:MOST_SENTENCES]
    onnx = [artifact for artifact in artifacts if artifact.manifest.format == "onnx"]
    tflite = [artifact for artifact in artifacts if artifact.manifest.format == "tflite"]
    results: dict[str, object] = {}
    with tempfile.TemporaryDirectory(prefix="peers-") as name:
        scratch = Path(name)
        for peer, members in ((OPTIMUM, onnx), (TFLITE_RUNTIME, tflite), (MEDIAPIPE, tflite)):
            if members:
                job = _job(members, texts, scratch if peer is MEDIAPIPE else None)
                results[peer.name] = peer.run(environments, job, scratch)
    return results


def _job(artifacts: list[Artifact], texts: list[str], bundles: Path | None) -> dict[str, object]:
    """Returns what a worker needs: token ids of every text, and our logits or scores of every artifact.

    With ``bundles`` each artifact's MediaPipe file is made there, and our scores are those at its length.
    """
    first = TextPredictor.load(artifacts[0])
    encoded = first.encoder.encode(texts)
    cases = [
        {"text": text, "ids": item.ids, "type_ids": item.type_ids, "length": bucket(len(item), first.io.lengths)}
        for text, item in zip(texts, encoded, strict=True)
    ]
    entries: list[dict[str, object]] = []
    for artifact in artifacts:
        logits = TextPredictor.load(artifact).run(texts).logits
        entry: dict[str, object] = {
            "name": artifact.name,
            "path": str(artifact.path),
            "file": artifact.manifest.model_file,
            "logits": logits.tolist(),
        }
        if bundles is not None:
            made = write_bundle(artifact, bundles / f"{artifact.name}-bundle")
            if made.mediapipe_file is None:
                continue
            entry["mediapipe"] = str(bundles / f"{artifact.name}-bundle" / made.mediapipe_file)
            entry["scores"] = [dict(zip(artifact.labels, row, strict=True)) for row in softmax(logits).tolist()]
        entries.append(entry)
    return {"pad_id": first.io.pad_id, "cases": cases, "artifacts": entries}


if __name__ == "__main__":
    sys.exit(main())
