"""Our ONNX artifact folders in Hugging Face optimum's ORTModelForSequenceClassification, unchanged."""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import optimum.version
import torch
from optimum.onnxruntime import ORTModelForSequenceClassification


def main() -> None:
    """Prints {artifact: largest difference of a logit from ours}."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    found = {}
    for folder in job["artifacts"]:
        model = ORTModelForSequenceClassification.from_pretrained(folder["path"], file_name=folder["file"])
        worst, labels = 0.0, 0
        for case, ours in zip(job["cases"], folder["logits"], strict=True):
            inputs = {
                "input_ids": torch.tensor([case["ids"]]),
                "attention_mask": torch.ones(1, len(case["ids"]), dtype=torch.long),
                "token_type_ids": torch.tensor([case["type_ids"]]),
            }
            logits = model(**inputs).logits.numpy()[0]
            worst = max(worst, float(np.abs(logits - ours).max()))
            labels += int(logits.argmax() == np.argmax(ours))
        found[folder["name"]] = {"largest_difference": worst, "same_label": labels, "sentences": len(job["cases"])}
    versions = {"optimum": optimum.version.__version__, "onnxruntime": onnxruntime.__version__}
    print(json.dumps({"versions": versions, "artifacts": found}))


if __name__ == "__main__":
    main()
