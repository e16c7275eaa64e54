from compressor.text import ATTENTION_MASK, SentenceEncoder
from export.calibration import Calibration
from tests.models import SENTENCES


def test_every_sentence_once_at_its_own_bucket(checkpoint_of):
    encoder = SentenceEncoder.load(checkpoint_of("bert").path, max_tokens=16)
    calibration = Calibration(encoder=encoder, texts=SENTENCES * 3, lengths=(8, 16))
    lengths = sorted(min(len(item), 16) for item in encoder.encode(SENTENCES * 3))
    for _ in range(2):  # it can be walked again
        batches = list(calibration.batches(rows=4))
        found = sorted(int(tokens) for batch in batches for tokens in batch[ATTENTION_MASK].sum(axis=1))
        assert found == lengths
        for batch in batches:
            rows, width = batch[ATTENTION_MASK].shape
            assert rows <= 4 and width in (8, 16)
            assert all(width == 8 or tokens > 8 for tokens in batch[ATTENTION_MASK].sum(axis=1))


def test_text_is_tokenised_as_it_is_asked_for(checkpoint_of):
    class Counting(tuple):
        asked = 0

        def __getitem__(self, key):
            Counting.asked = max(Counting.asked, key.stop)
            return tuple.__getitem__(self, key)

    encoder = SentenceEncoder.load(checkpoint_of("bert").path, max_tokens=16)
    stream = Calibration(encoder=encoder, texts=Counting(SENTENCES * 50), lengths=(16,)).batches(rows=4)
    next(stream)
    assert Counting.asked == 4
