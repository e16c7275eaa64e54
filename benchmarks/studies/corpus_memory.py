"""Peak memory of a distillation by the number of training rows: each number in a process of its own, equal steps.

Run: ``python -m benchmarks.studies.corpus_memory [--rows 20000] [--times 10] [--steps 20]``. It writes synthetic rows
to a temporary folder and distils a tiny random BERT into a student of one layer, logits and hidden states both, the
corpus read, encoded and cached as in any run. Prints JSON: the peak of the resident set for both numbers and by how
much the larger one exceeds the smaller.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.studies.process_memory import peak_bytes

_LABELS = ("no", "yes")
_WORDS = tuple(f"{first}{second}" for first in "bdfglmnprst" for second in "aeiou")
_MAX_WORDS = 40


def main() -> None:
    """Prints the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.folder is not None:
        print(json.dumps(measure(options.folder, options.steps)))
        return
    found = {}
    for rows in (options.rows, options.rows * options.times):
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder), rows)
            command = [sys.executable, "-m", __spec__.name, "--folder", folder, "--steps", str(options.steps)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            found[rows] = json.loads(done.stdout.splitlines()[-1])
    few, many = found.values()
    if few["steps"] != many["steps"]:
        raise SystemExit(f"{few['steps']} and {many['steps']} steps: the two runs cannot be compared")
    growth = many["peak_mb"] / few["peak_mb"] - 1
    print(json.dumps({"peaks": found, "rows_times": options.times, "growth_percent": round(100 * growth, 2)}))


def write(folder: Path, rows: int) -> None:
    """Writes ``train``, ``validation`` and ``test`` of random words whose first one tells the label."""
    rng = random.Random(rows)
    for name, count in (("train", rows), ("validation", 200), ("test", 200)):
        with (folder / f"{name}.tsv").open("w", encoding="utf-8") as stream:
            stream.write("text\tlabel\n")
            for row in range(count):
                words = rng.choices(_WORDS, k=rng.randrange(1, _MAX_WORDS))
                stream.write(f"{_LABELS[row % 2]} {' '.join(words)}\t{_LABELS[row % 2]}\n")


def measure(folder: Path, steps: int) -> dict[str, float]:
    """Reads the corpus, distils for ``steps`` steps, and returns the peak in MB."""
    import torch

    from compressor.core.checkpoint import Checkpoint
    from compressor.data.reader import DataSpec, read_dataset
    from compressor.distill.config import DistillConfig
    from compressor.distill.stage import Distill
    from compressor.stage import Context

    torch.set_num_threads(1)
    data = read_dataset(DataSpec(dir=folder))
    teacher = _teacher(folder / "teacher")
    batch = 32
    config = DistillConfig.model_validate({
        "student": {"layers": 1}, "losses": [{"name": "logits"}, {"name": "hidden"}], "batch_size": batch,
        "epochs": (steps - 0.5) / -(-len(data.train) // batch), "max_tokens": 64,
    })  # fmt: skip
    scratch = folder / "scratch"
    scratch.mkdir()
    done: list[int] = []
    context = Context(
        teacher=Checkpoint.open(teacher), current=Checkpoint.open(teacher), data=data, workdir=folder, scratch=scratch,
        progress=lambda step, total, note="": done.append(step) if note.startswith("loss") else None,
    )  # fmt: skip
    output = folder / "student"
    output.mkdir()
    Distill(config).run(context, output)
    return {"peak_mb": peak_bytes() / 1e6, "steps": done[-1]}


def _teacher(folder: Path) -> Path:
    """Writes a random two-layer BERT whose classifier reads the first word, so that it beats the majority class."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *_LABELS, *_WORDS]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]", unk_token="[UNK]"
    )
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(pieces), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=64, id2label=dict(enumerate(_LABELS)), pad_token_id=0,
        label2id={name: index for index, name in enumerate(_LABELS)},
    )  # fmt: skip
    model = BertForSequenceClassification(config).eval()
    _fit_classifier(model, fast)
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def _fit_classifier(model: Any, tokenizer: Any) -> None:
    """Trains the model for a moment on the rule behind the labels."""
    import torch
    from torch.nn import functional

    rng = random.Random(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(60):
        texts = [f"{name} {' '.join(rng.choices(_WORDS, k=rng.randrange(1, 9)))}" for name in _LABELS * 8]
        inputs = tokenizer(texts, return_tensors="pt", padding=True)
        loss = functional.cross_entropy(model(**inputs).logits, torch.tensor([0, 1] * 8))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
