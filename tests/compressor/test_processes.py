"""Two gloo processes on the CPU walk a recipe to the curve of one, and one of them speaks."""

import json
import os
import socket
import sys
from pathlib import Path

import pytest
from accelerate.state import AcceleratorState

from compressor.app import cli, console
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


def launched(arguments: list[str], folder: Path, *, count: int) -> list[tuple[int, str, str]]:
    """Runs the command line in ``count`` processes as a launcher would; returns (exit code, stdout, stderr) of each.

    They are forked, because importing everything anew costs more than the run; nothing of torch has a thread here.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    children = []
    for rank in range(count):
        child = os.fork()
        if child == 0:
            code = 99
            try:
                for number, name in ((1, "out"), (2, "err")):
                    os.dup2(os.open(folder / f"{name}-{rank}", os.O_WRONLY | os.O_CREAT), number)
                sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
                place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)}
                os.environ.update({**place, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port})
                AcceleratorState._reset_state(reset_partial_state=True)
                console.stdout.file, console.stderr.file = sys.stdout, sys.stderr
                sys.argv = ["compressor", *arguments]
                cli.main()
            except SystemExit as left:
                code = int(left.code or 0)
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return [(code, *((folder / f"{name}-{rank}").read_text() for name in ("out", "err")))
            for rank, code in enumerate(codes)]  # fmt: skip


def test_two_processes_give_the_curve_of_one(recipe: Path, tmp_path: Path) -> None:
    one = run(recipe, tmp_path / "one")
    main, other = launched(["run", str(recipe), "-o", str(tmp_path / "two"), "--json"], tmp_path, count=2)
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
