"""Our TFLite files in the discontinued tflite-runtime 2.14: right for float weights, wrong for dynamic INT8."""

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from tflite_runtime.interpreter import Interpreter


def main() -> None:
    """Prints {artifact: largest difference of a logit from ours}, or the error with which it does not load."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    found = {folder["name"]: compare(job, folder) for folder in job["artifacts"]}
    print(json.dumps({"versions": {"tflite-runtime": version("tflite-runtime")}, "artifacts": found}))


def compare(job: dict[str, Any], folder: dict[str, Any]) -> dict[str, Any]:
    """Runs every case of a job at its own length."""
    try:
        interpreter = Interpreter(str(Path(folder["path"], folder["file"])), num_threads=1)
        runners = {key: interpreter.get_signature_runner(key) for key in interpreter.get_signature_list()}
        worst, labels = 0.0, 0
        for case, ours in zip(job["cases"], folder["logits"], strict=True):
            feeds = {
                "input_ids": row(case["ids"], case["length"], job["pad_id"]),
                "attention_mask": row([1] * len(case["ids"]), case["length"], 0),
                "token_type_ids": row(case["type_ids"], case["length"], 0),
            }
            runner = runners[f"seq_{case['length']}"]
            taken = runner.get_input_details()
            (logits,) = runner(**{name: value for name, value in feeds.items() if name in taken}).values()
            worst = max(worst, float(np.abs(logits[0] - ours).max()))
            labels += int(logits[0].argmax() == np.argmax(ours))
    except (RuntimeError, ValueError) as error:
        return {"error": str(error).splitlines()[0]}
    return {"largest_difference": worst, "same_label": labels, "sentences": len(job["cases"])}


def row(values: list[int], length: int, filling: int) -> np.ndarray:
    """Returns one padded row of int32."""
    return np.array([values + [filling] * (length - len(values))], dtype=np.int32)


if __name__ == "__main__":
    main()
