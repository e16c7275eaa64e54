"""The bundle's single-length files in MediaPipe's own TextClassifier: from the text to the scores."""

import json
import sys
from importlib.metadata import version
from pathlib import Path

from mediapipe.tasks.python import BaseOptions, text


def main() -> None:
    """Prints {artifact: largest difference of a score from ours}, over all sentences and over those in ASCII alone."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    found = {}
    for folder in job["artifacts"]:
        options = text.TextClassifierOptions(base_options=BaseOptions(model_asset_path=folder["mediapipe"]))
        differences, ascii_only, labels = [], [], 0
        with text.TextClassifier.create_from_options(options) as classifier:
            for case, ours in zip(job["cases"], folder["scores"], strict=True):
                found_scores = classifier.classify(case["text"]).classifications[0].categories
                scores = {item.category_name: item.score for item in found_scores}
                difference = max(abs(scores[name] - ours[name]) for name in ours)
                differences.append(difference)
                if case["text"].isascii():
                    ascii_only.append(difference)
                labels += int(max(scores, key=scores.__getitem__) == max(ours, key=ours.__getitem__))
        found[folder["name"]] = {
            "largest_difference": max(differences),
            "largest_difference_ascii": max(ascii_only, default=0.0),
            "same_label": labels,
            "sentences": len(differences),
            "sentences_ascii": len(ascii_only),
        }
    print(json.dumps({"versions": {"mediapipe": version("mediapipe")}, "artifacts": found}))


if __name__ == "__main__":
    main()
