"""Heads with a row of numbers for every token: compiled whole, and every output proven in the simulator."""

import json

import numpy as np
import pytest

from compressor.core.task import outputs_of
from compressor.data.batches import encode_split
from compressor.data.dataset import Split
from compressor.evaluation import predict_outputs
from compressor.models import load_compressed
from export.text_predictor import TextPredictor
from tests.export.qnn.helpers import export, needs_qnn, one
from tests.models import PAIRS, SENTENCES, tiny_task_checkpoint

pytestmark = pytest.mark.usefixtures("simulated_answers")


@pytest.mark.parametrize("task", ["token-classification", "question-answering"])
def test_every_output_of_every_token_is_proven(task, trained, tmp_path):
    needs_qnn()
    checkpoint = tiny_task_checkpoint(task, tmp_path / "model", body=trained)
    texts = PAIRS if task == "question-answering" else SENTENCES
    settings = {"parity_texts": texts, "calibration_texts": texts, "lengths": (24,), "selection": None, "report": None}
    made = one(export(checkpoint, tmp_path / "made", "w8a16", **settings))
    assert (made.manifest.simulated, made.manifest.placement.delegated) == (True, 1.0)
    parity = json.loads((made.path / "parity.json").read_text())
    assert [output["name"] for output in parity["outputs"]] == list(outputs_of(task))
    data = encode_split(checkpoint, Split(tuple(texts[:2]), (0, 0)), max_tokens=24)
    wanted = predict_outputs(load_compressed(checkpoint), data, task=task)
    found = TextPredictor.load(made).run(texts[:2])
    for name in outputs_of(task):
        ours, theirs = (np.concatenate([row.ravel() for row in it.rows[name]]) for it in (found, wanted))
        assert ours.shape == theirs.shape
        noise = np.square(ours - theirs).mean()
        assert 10 * np.log10(np.square(theirs - theirs.mean()).mean() / noise) > 20
