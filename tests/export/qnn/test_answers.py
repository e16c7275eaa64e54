import numpy as np

from export.qnn.answers import Answers


def test_answers_outlive_the_process_and_a_cache_that_cannot_be_written_is_passed_over(tmp_path, monkeypatch):
    feed, outputs = {"input_ids": np.array([[1, 2]])}, [np.array([[0.1, 0.7]], np.float32)]
    monkeypatch.setenv("COMPRESSOR_CACHE", str(tmp_path / "cache"))
    Answers("a" * 64).keep(feed, outputs)
    (found,) = Answers("a" * 64).take(feed)
    np.testing.assert_array_equal(found, outputs[0])
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("COMPRESSOR_CACHE", str(tmp_path / "file"))
    Answers("b" * 64).keep(feed, outputs)
    assert Answers("b" * 64).take(feed) is None
