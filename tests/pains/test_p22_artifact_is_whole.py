"""P22: a converted folder carries tokenizer, config and labels, and answers with no network and no checkpoint."""

import shutil
import subprocess
import sys

from compressor.app.judge import predict
from tests.models import LABELS

SCRIPT = """
import socket, sys
def refuse(*args, **kwargs):
    raise OSError("the network was asked for")
socket.socket.connect = refuse
from compressor.app.judge import predict
print(predict(sys.argv[1], ["where is my order"], threads=1)[0].label)
"""


def test_the_folder_alone_answers_without_network(onnx_artifact, tmp_path):
    moved = tmp_path / "somewhere else"
    shutil.move(onnx_artifact, moved)
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "labels.txt", "io.json", "README.md"):
        assert (moved / name).stat().st_size > 0
    found = subprocess.run([sys.executable, "-c", SCRIPT, str(moved)], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip() in LABELS
    assert found.stdout.strip() == predict(moved, ["where is my order"], threads=1)[0].label
