import pytest

from compressor.core.errors import DataError, ModelError
from compressor.text import SentenceEncoder
from export.calibration import Calibration
from export.calibration_check import check_calibration
from tests.models import SENTENCES


def check(checkpoint, texts, rows=100):
    encoder = SentenceEncoder.load(checkpoint.path, max_tokens=16)
    check_calibration(Calibration(encoder=encoder, texts=texts, lengths=(8, 16)), checkpoint.path, rows=rows)


def test_ordinary_text_passes(trained):
    check(trained, SENTENCES)
    check(trained, ("",))


def test_another_language_is_refused(trained):
    with pytest.raises(DataError, match=r"\d+% of the calibration text's pieces are unknown") as caught:
        check(trained, ("куда пропал мой заказ", "where is my order"))
    assert "--calibrate" in caught.value.remedy


def test_a_few_unknown_pieces_among_many_pass(trained):
    check(trained, (*SENTENCES, *("where is my order" for _ in range(20)), "é"))


def test_ids_beyond_the_models_table_are_refused(trained):
    with pytest.raises(ModelError, match="the model's word embeddings have 12 rows"):
        check(trained, SENTENCES, rows=12)
