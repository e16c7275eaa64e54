"""Two gloo processes on the CPU walk a recipe to the curve of one, and one of them speaks."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from compressor.app.runs import run
from compressor.processes import Processes, processes
from tests.compressor.tiny_data import tiny_dataset
from tests.compressor.train.test_loop import without_dropout
from tests.models import tiny_checkpoint

RECIPE = """
version: 1
teacher: {{model: {folder}/base}}
data: {{dir: {folder}/data}}
threads: 1
stages:
  - finetune: {{epochs: 4, lr: 2.0e-3, batch_size: 10, checkpoint_steps: 7}}
  - distill:
      student: {{layers: 1}}
      losses: [{{name: logits}}, {{name: hidden}}, {{name: labels}}]
      epochs: 1.5
      lr: 1.0e-3
      batch_size: 7
      accumulate: 2
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """Batches of ten and seven sentences, so that shares are uneven and the last batch of an epoch is short."""
    without_dropout(tiny_checkpoint("bert", tmp_path / "dropping", layers=2).path, tmp_path / "base")
    data = tiny_dataset(train=57)
    (tmp_path / "data").mkdir()
    for name, split in data.splits.items():
        rows = [f"{text}\t{data.label_names[label]}" for text, label in zip(split.texts, split.labels, strict=True)]
        (tmp_path / "data" / f"{name}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(folder=tmp_path))
    return tmp_path / "recipe.yaml"


def launched(arguments: list[str], *, count: int) -> list[tuple[int, str, str]]:
    """Runs the command line in ``count`` processes as a launcher would; returns (exit code, stdout, stderr) of each."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {**os.environ, "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    command = [sys.executable, "-m", "compressor", *arguments]
    started = [
        subprocess.Popen(
            command, env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)}, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for rank in range(count)
    ]  # fmt: skip
    try:
        said = [process.communicate(timeout=600) for process in started]
    finally:
        for process in started:
            process.kill()
    return [(process.returncode, *texts) for process, texts in zip(started, said, strict=True)]


def test_two_processes_give_the_curve_of_one(recipe: Path, tmp_path: Path) -> None:
    one = run(recipe, tmp_path / "one")
    main, other = launched(["run", str(recipe), "-o", str(tmp_path / "two"), "--json"], count=2)
    assert main[0] == 0, main[2]
    assert other == (0, "", "")
    assert json.loads(main[1])["folder"] == str(tmp_path / "two")
    assert main[2].count("✓ 01-finetune: ran") == 1
    for record in one.result.records:
        found = json.loads((tmp_path / "two" / "stages" / f"{record.id}.json").read_text())["facts"]
        curves = record.facts["curves"]
        assert set(found["curves"]) == set(curves)
        for name, curve in curves.items():
            assert found["curves"][name] == pytest.approx(curve, abs=1e-4), f"{record.id}: {name}"
        ours, theirs = found["evaluation"], record.facts["evaluation"]
        assert _accuracies(ours) == _accuracies(theirs)
    assert len(one.result.records[1].facts["curves"]["hidden"]) == 14
    assert not [*(tmp_path / "two" / ".work").iterdir()]


def test_without_a_launcher_there_is_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setenv("RANK", "3")
    assert processes() == Processes(index=0, count=1)
    assert processes().share(value := object()) is value
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert processes() == Processes(index=3, count=4)
    assert not processes().is_main


def _accuracies(evaluation: dict) -> list[int]:
    inner = [evaluation] if "test" in evaluation else evaluation.values()
    return [part[split]["correct"] for part in inner for split in ("validation", "test")]
