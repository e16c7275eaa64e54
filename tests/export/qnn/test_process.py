"""The process around the vendor's libraries: what they do to it reaches nobody else."""

import onnx
import pytest

from compressor.core.errors import StageError
from export.qnn.answers import Answers
from export.qnn.process import HexagonProcess
from tests.export.qnn.helpers import needs_qnn


def test_a_file_that_is_no_graph_is_an_error_and_the_process_lives_on(tmp_path):
    needs_qnn()
    (tmp_path / "bad.onnx").write_bytes(b"no graph")
    options = {"soc_model": "57", "htp_arch": "75"}
    with HexagonProcess() as process:
        for _ in range(2):
            with pytest.raises(StageError, match="refuse to load this graph"):
                process.ask("load", model=str(tmp_path / "bad.onnx"), length=8, options=options)


def test_a_library_that_ends_its_process_is_an_error_with_the_signal():
    process = HexagonProcess()
    process._process.terminate()
    process._process.wait()
    with pytest.raises(StageError, match=r"ended their process during 'run' \(signal SIGTERM\)"):
        process.ask("run", length=8, feed={})
    process.close()


def test_a_line_that_was_cut_off_does_not_spoil_the_answers(tmp_path, monkeypatch):
    import numpy as np

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    feed = {"input_ids": np.int32([[1, 2]])}
    outputs = [np.float32([[0.1, -2.5]]), np.float32([[[0.3], [7e-12]]])]
    Answers("f" * 64).keep(feed, outputs)
    (file,) = (tmp_path / "compressor" / "simulated").iterdir()
    file.write_text(file.read_text() + '{"feed": "ab')
    answers = Answers("f" * 64)
    for found, wanted in zip(answers.take(feed), outputs, strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert answers.take(feed) is None


def test_a_compiled_file_says_which_lengths_it_has(two_lengths):
    model = onnx.load(two_lengths.path / "model_8.onnx")
    assert {item.key: item.value for item in model.metadata_props}["tokens"] == "8"
