import numpy as np
import pytest

from compressor.core.errors import ParityError
from compressor.families import adapter_for
from compressor.models import load_compressed
from compressor.text import ATTENTION_MASK, SentenceEncoder
from export.parity import compare, parity_cases, require_parity
from tests.models import SENTENCES


class Shifted:
    """Answers the reference's own logits plus a given error."""

    runtime = "test"

    def __init__(self, cases, error):
        self._answers = {case.length: case.reference for case in cases}
        self._error = error

    def run(self, batch):
        return {name: a + self._error for name, a in self._answers[batch[ATTENTION_MASK].shape[1]].items()}


@pytest.fixture(scope="module")
def cases(checkpoint_of):
    checkpoint = checkpoint_of("bert")
    model = load_compressed(checkpoint.path)
    token_types = adapter_for(model.config).takes_token_types(model.config)
    encoder = SentenceEncoder.load(checkpoint.path, max_tokens=32)
    return parity_cases(model, encoder, SENTENCES, (8, 32), token_types=token_types)


def test_every_length_has_padded_and_full_rows(cases):
    for case in cases:
        mask = case.batch[ATTENTION_MASK]
        assert mask.shape[1] == case.length
        assert (mask.sum(axis=1) < case.length).any()
        assert (mask.sum(axis=1) >= case.length - 2).any()


def test_errors_are_in_units_of_the_spread(cases):
    spread = np.concatenate([case.reference["logits"] for case in cases]).std()
    parity = compare(cases, Shifted(cases, 0.5 * spread), "fp32", text="test")
    assert parity.max_error == pytest.approx(0.5, rel=1e-3)
    assert parity.lengths[0].p50_error == pytest.approx(0.5, rel=1e-3)


@pytest.mark.parametrize(("precision", "relative", "holds"), [
    ("fp32", 0.9e-4, True), ("fp32", 1.2e-4, False), ("fp16", 0.9e-2, True), ("fp16", 1.2e-2, False),
    ("int8", 0.3, True), ("int8", 0.4, False),
])  # fmt: skip
def test_the_tolerance_is_the_precision_s(cases, precision, relative, holds):
    spread = np.concatenate([case.reference["logits"] for case in cases]).std()
    parity = compare(cases, Shifted(cases, np.float32(relative * spread)), precision, text="test")
    if holds:
        require_parity(parity, "file")
    else:
        with pytest.raises(ParityError):
            require_parity(parity, "file")


def test_finiteness_is_looked_at_first(cases):
    parity = compare(cases, Shifted(cases, np.nan), "int8", text="test")
    with pytest.raises(ParityError, match="NaN"):
        require_parity(parity, "file")
