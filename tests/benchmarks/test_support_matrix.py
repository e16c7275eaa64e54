"""The support matrix: every combination is a cell, and the document says what the cells hold."""

import json

import pytest

from benchmarks.studies.support_document import write_document
from benchmarks.studies.support_matrix import Cell, cells, main
from benchmarks.studies.synthetic_tokenizers import byte_pairs, unigram, word_pieces
from benchmarks.studies.systems import NAMES, SYSTEMS

TEXTS = ("Where is my order?", "please cancel it, I can't wait")


def found(**changes):
    base = {
        "system": "tinybert-4", "format": "onnx", "precision": "fp32", "method": None, "status": "ok",
        "max_error": 2.5e-6, "signal_to_noise_db": 110.0, "size_bytes": 58_000_000, "model_sha256": "a", "notes": [],
        "seconds": 12.3, "peak_bytes": 2_500_000_000, "threads": 1, "commit": "abc1234", "date": "2026-01-02",
        "machine": {"cpu": "Some CPU", "architecture": "x86_64", "cores": "2", "memory_gb": "24"},
        "versions": {"torch": "9.9"}, "parameters": {"count": 14_350_000, "bytes": 57_400_000},
    }  # fmt: skip
    return {**base, **changes}


def written(tmp_path, *documents):
    write_document(documents, tmp_path / "docs" / "support.md")
    return (tmp_path / "docs" / "support.md").read_text()


def test_what_a_format_does_not_offer_is_a_cell_too():
    names = [cell.name for cell in cells(["tinybert-4"], ["onnx", "tensorrt"], ["int8", "int4"])]
    assert names == [
        "tinybert-4.onnx.int8.dynamic", "tinybert-4.onnx.int8.static", "tinybert-4.onnx.int4",
        "tinybert-4.tensorrt.int8.static", "tinybert-4.tensorrt.int4",
    ]  # fmt: skip


def test_the_document_names_machine_commit_date_and_versions_and_the_figures(tmp_path):
    text = written(tmp_path, found(), found(precision="int8", method="dynamic", signal_to_noise_db=31.7))
    for part in ("Some CPU (x86_64), 2 cores, 24 GB", "abc1234", "2026-01-02", "torch 9.9"):
        assert part in text
    assert "| tinybert-4 | 3e-06 | 32 dB |" in text
    assert "Not measured yet: bert-base, bert-large," in text
    assert "| onnx fp32 | ok | 2.5e-06 | 110.0 | 58.0 | 57.4 | 1.01 | 12 | 2.5 |  |" in text


def test_a_cell_that_cannot_work_says_why(tmp_path):
    bad = {"status": "refused", "reason": "needs a | and\na line"}
    missing = ("max_error", "signal_to_noise_db", "size_bytes", "model_sha256", "notes", "peak_bytes")
    cell = {key: value for key, value in found(format="tensorrt", **bad).items() if key not in missing}
    text = written(tmp_path, found(), cell)
    assert "| tinybert-4 | 3e-06 | refused |" in text
    assert "| tensorrt fp32 | refused | - | - | - | 57.4 | - | 12 | - | needs a / and a line |" in text


def test_a_static_file_that_is_the_dynamic_one_is_not_counted_as_another(tmp_path):
    text = written(
        tmp_path, found(precision="int8", method="dynamic"), found(precision="int8", method="static"),
        found(precision="int8", method="static", format="tflite", model_sha256="b"),
    )  # fmt: skip
    assert "| tinybert-4 | 110 dB | as dynamic | 110 dB |" in text


def test_a_cell_of_the_same_code_is_not_measured_again(tmp_path, monkeypatch, capsys):
    from benchmarks.studies import support_matrix as study

    cell = Cell("tinybert-4", "onnx", "fp32", None)
    (tmp_path / f"{cell.name}.json").write_text(json.dumps(found(key=study._key(cell))))
    monkeypatch.setattr(study, "write_checkpoint", lambda *args: pytest.fail("measured again"))
    options = ["--runs", str(tmp_path), "--document", str(tmp_path / "support.md")]
    assert main(["--systems", "tinybert-4", "--formats", "onnx", "--precisions", "fp32", *options]) == 0
    assert "what 1 cells found" in capsys.readouterr().out


def test_an_unknown_system_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["--systems", "bert-huge"])
    assert "bert-huge" in capsys.readouterr().err


def test_all_systems_have_their_own_name():
    assert len(set(NAMES)) == len(NAMES)
    assert {"bert-large", "deberta-v3-base", "xlm-roberta-base", "scibert"} <= {system.name for system in SYSTEMS}


@pytest.mark.parametrize("make", [word_pieces, byte_pairs, unigram])
def test_a_synthetic_tokenizer_has_its_size_and_knows_the_texts(make):
    specials = next(system.specials for system in SYSTEMS if system.tokenizer is make)
    tokenizer = make(3000, specials, TEXTS)
    assert tokenizer.get_vocab_size() == 3000
    assert [tokenizer.id_to_token(index) for index in range(4)] == list(specials.first)
    for text in TEXTS:
        encoding = tokenizer.encode(text)
        assert encoding.tokens[0] == specials.cls
        assert encoding.tokens[-1] == specials.sep
        assert specials.unk not in encoding.tokens
    assert max(max(tokenizer.encode(text).ids) for text in TEXTS) > 2900
    assert tokenizer.encode(*TEXTS).tokens.count(specials.sep) == 2
