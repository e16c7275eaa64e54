"""Rows of a file: what is written is read again, whatever the order, and stays a plain .npy file."""

from pathlib import Path

import numpy as np
import pytest

from compressor.data.rows import NpyRows


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_rows_come_back_whatever_the_order(dtype: type, tmp_path: Path) -> None:
    expected = np.random.default_rng(0).normal(size=(50, 7)).astype(dtype)
    rows = NpyRows.create(tmp_path / "rows.npy", 50, 7, dtype)
    for start, end in ((30, 50), (0, 1), (1, 30)):
        rows.write(start, expected[start:end])
    rows.close()
    again = NpyRows(tmp_path / "rows.npy")
    assert np.array_equal(again.read(0, 50), expected)
    assert np.array_equal(again.read(29, 31), expected[29:31])
    assert again.read(5, 5).shape == (0, 7)
    assert np.array_equal(np.load(tmp_path / "rows.npy"), expected)


def test_rows_never_written_are_zero_and_readers_do_not_write(tmp_path: Path) -> None:
    NpyRows.create(tmp_path / "rows.npy", 4, 2, np.float32).close()
    rows = NpyRows(tmp_path / "rows.npy")
    assert not rows.read(0, 4).any()
    with pytest.raises(OSError):
        rows.write(0, np.ones((1, 2)))
