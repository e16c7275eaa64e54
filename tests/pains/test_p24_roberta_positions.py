"""P24: RoBERTa's 514 positions hold 512 tokens; a longer sentence is cut and counted, never a crash."""

import pytest
from transformers import RobertaConfig, XLMRobertaConfig

from compressor.core.errors import UsageError
from compressor.families import adapter_for
from compressor.models import load_config
from export.build import export_artifacts
from export.source import ExportRequest
from export.text_predictor import TextPredictor
from tests.models import SENTENCES

LONG = "order " * 500


@pytest.mark.parametrize("config", [RobertaConfig(), XLMRobertaConfig()])
def test_514_positions_hold_512_tokens(config):
    config.max_position_embeddings = 514
    assert adapter_for(config).max_tokens(config) == 512


def test_a_sentence_at_and_over_the_limit_runs(checkpoint_of, tmp_path):
    checkpoint = checkpoint_of("roberta")
    limit = adapter_for(load_config(checkpoint)).max_tokens(load_config(checkpoint))
    request = ExportRequest(
        formats=("onnx",),
        precisions=("fp32",),
        lengths=(8, limit),
        parity_texts=SENTENCES,
        parity_source="test",
        name="r",
    )
    (artifact,) = export_artifacts(checkpoint, request, tmp_path / "out").artifacts
    found = TextPredictor.load(artifact).run([LONG, "order"])
    assert found.truncated == 1
    with pytest.raises(UsageError, match=f"to {limit}, the most tokens"):
        export_artifacts(checkpoint, ExportRequest(**{**vars(request), "lengths": (limit + 1,)}), tmp_path / "too-long")
