"""How hard the demo's intents are: always the same answer, counted words, and the fine-tuned teacher.

Run: ``python -m benchmarks.studies.demo_data [threads]`` (trains the real MiniLM for an epoch; needs scikit-learn).
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from compressor.core.checkpoint import Checkpoint
from compressor.data.dataset import TextDataset
from compressor.data.demo_model import demo_teacher
from compressor.data.intents import generate_intents
from compressor.evaluation import evaluate_checkpoint
from compressor.finetune import Finetune, FinetuneConfig
from compressor.stage import Context


def tfidf_accuracy(data: TextDataset) -> float:
    """Returns the test accuracy of TF-IDF over words and word pairs with logistic regression, a fraction."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    model = make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), LogisticRegression(C=10.0, max_iter=1000))
    model.fit(list(data.train.texts), data.train.labels)
    return float(model.score(list(data.test.texts), data.test.labels))


def main() -> None:
    """Prints the three accuracies as a table."""
    threads = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    data = generate_intents()
    print(f"{'model':<32} test accuracy")
    print(f"{'TF-IDF + logistic regression':<32} {tfidf_accuracy(data):.1%}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        base, output = Checkpoint.open(demo_teacher()), Path(folder) / "teacher"
        output.mkdir()
        context = Context(
            teacher=base, current=base, data=data, threads=threads, workdir=Path(folder), scratch=Path(folder)
        )
        Finetune(FinetuneConfig()).run(context, output)
        found = evaluate_checkpoint(Checkpoint.open(output), data.test, threads=threads)
    print(f"{'majority class':<32} {found.majority_class:.1%}")
    print(f"{'fine-tuned teacher':<32} {found.value:.1%}")


if __name__ == "__main__":
    main()
