"""P23: the inputs come from the exported graph; missing token types are zeros, extra ones are dropped."""

import numpy as np
import pytest

from compressor.core.artifact import Artifact
from compressor.text import CANONICAL_INPUTS, TOKEN_TYPE_IDS, SentenceEncoder
from export.backend import backend_for
from export.build import export_artifacts
from export.source import ExportRequest
from tests.models import SENTENCES


@pytest.mark.parametrize(("family", "takes_types"), [("bert", True), ("distilbert", False)])
def test_one_feeder_serves_models_with_and_without_token_types(checkpoint_of, tmp_path, family, takes_types):
    checkpoint = checkpoint_of(family)
    request = ExportRequest(
        formats=("onnx",),
        precisions=("fp32",),
        lengths=(16,),
        parity_texts=SENTENCES,
        parity_source="test",
        name=family,
    )
    (artifact,) = export_artifacts(checkpoint, request, tmp_path).artifacts
    (signature,) = Artifact.load(artifact.path).io.signatures
    assert (TOKEN_TYPE_IDS in signature.roles) == takes_types
    batch = SentenceEncoder.load(artifact.path, max_tokens=16).pad(
        SentenceEncoder.load(artifact.path, max_tokens=16).encode(["cancel my order"])
    )
    assert set(batch) == set(CANONICAL_INPUTS)
    predictor = backend_for("onnx").open(artifact.path, artifact.io, threads=1)
    without = {name: value for name, value in batch.items() if name != TOKEN_TYPE_IDS}
    np.testing.assert_array_equal(predictor.logits(batch), predictor.logits(without))
