"""Calls from Python take paths as text, and name the argument that makes no sense."""

from pathlib import Path

import pytest

import compressor
from compressor.app.calls import checked
from compressor.core.errors import UsageError


@checked
def verb(path: str | Path, data: Path, *, texts: tuple[str, ...] = (), progress=None) -> tuple:
    return path, data, texts, progress


def test_text_becomes_a_path_where_only_a_path_is_meant():
    assert verb("org/model", "a.tsv", texts=["x"]) == ("org/model", Path("a.tsv"), ("x",), None)


def test_what_tells_progress_is_passed_on():
    assert verb("m", "d", progress=print)[3] is print


def test_a_missing_or_unknown_argument_is_a_type_error_as_in_any_function():
    with pytest.raises(TypeError, match="data"):
        verb("m")
    with pytest.raises(TypeError, match="bogus"):
        verb("m", "d", bogus=1)


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (lambda: compressor.predict("m", "one text"), r"predict\(texts=…\): found 'one text'; expected a list, not"),
        (lambda: compressor.predict("m", [None]), r"\[0\]: found nothing; expected text"),
        (lambda: compressor.convert("m", to="onx", output="o"), "found 'onx'; expected 'onnx', 'tflite'"),
        (lambda: compressor.convert("m", to="onnx", output="o", method="foo"), r"convert\(method=…\): found 'foo'"),
        (lambda: compressor.convert("m", to="onnx", output="o", task="foo"), "expected 'text-classification'"),
        (lambda: compressor.gate("m", budget=3), r"gate\(budget=…\): found 3; expected a path"),
    ],
)
def test_a_wrong_value_is_named_before_any_work(call, found):
    with pytest.raises(UsageError, match=found):
        call()


def test_the_verbs_are_listed():
    assert set(compressor.__all__) <= set(dir(compressor))
