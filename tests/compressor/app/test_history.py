"""``history`` tells what it leaves out."""

import pytest

from benchmarks.history import append, entry_of
from compressor.app.history import history
from tests.benchmarks.measurements import measurement


def test_invalid_measurements_are_left_out_and_counted(tmp_path, caplog):
    store = tmp_path / "history.sqlite"
    reasons = (None, "the processor was throttled", None)
    append(
        store,
        [entry_of(measurement([1.0] * 9, invalid_reason=why), recorded="2026-01-01T00:00:00+00:00") for why in reasons],
    )
    (series,) = history(store)
    assert len(series.entries) == 2
    assert "1 of 3 measurements are left out" in caplog.text


@pytest.mark.parametrize("artifact", [None, "onnx-int8"])
def test_nothing_is_said_where_all_are_valid(tmp_path, caplog, artifact):
    store = tmp_path / "history.sqlite"
    append(store, [entry_of(measurement([1.0] * 9), recorded="2026-01-01T00:00:00+00:00")])
    assert len(history(store, artifact=artifact)) == 1
    assert not caplog.messages
