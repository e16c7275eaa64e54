"""The conversion cache saves time and nothing else: what it gives back is what was stored, or nothing."""

import os

import pytest

from export.backend import ConversionSpec, backend_for
from export.cache import ConversionCache, conversion_key

SPEC = ConversionSpec(lengths=(8, 16), max_tokens=16, takes_token_types=True, pad_id=0, num_labels=3, model_type="bert")


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(b"graph" * 100)
    (folder / "model.onnx.data").write_bytes(b"weights" * 100)
    return folder


def fetched(cache, key, folder):
    folder.mkdir()
    return cache.fetch(key, folder)


def test_what_was_stored_comes_back(source, tmp_path):
    cache = ConversionCache(tmp_path / "cache")
    assert not fetched(cache, "key", tmp_path / "before")
    cache.store("key", source)
    assert fetched(cache, "key", tmp_path / "after")
    for name in ("model.onnx", "model.onnx.data"):
        assert (tmp_path / "after" / name).read_bytes() == (source / name).read_bytes()
    assert sorted(path.name for path in (tmp_path / "after").iterdir()) == ["model.onnx", "model.onnx.data"]


def test_an_altered_entry_is_removed_and_not_used(source, tmp_path):
    cache = ConversionCache(tmp_path / "cache")
    cache.store("key", source)
    stored = tmp_path / "cache" / "key" / "model.onnx"
    stored.unlink()
    stored.write_bytes(b"other" * 100)
    assert not fetched(cache, "key", tmp_path / "after")
    assert list((tmp_path / "after").iterdir()) == []
    assert not (tmp_path / "cache" / "key").exists()


def test_the_entry_that_was_not_used_for_longest_makes_room(source, tmp_path):
    size = sum(path.stat().st_size for path in source.iterdir())
    cache = ConversionCache(tmp_path / "cache", max_bytes=int(2.9 * size))
    for age, key in ((300, "first"), (200, "second")):
        cache.store(key, source)
        os.utime(tmp_path / "cache" / key, (1e9 - age, 1e9 - age))
    assert fetched(cache, "first", tmp_path / "used")
    cache.store("third", source)
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["first", "third"]


def test_what_is_larger_than_the_cache_is_not_kept(source, tmp_path):
    cache = ConversionCache(tmp_path / "cache", max_bytes=10)
    cache.store("key", source)
    assert not (tmp_path / "cache").exists()


def test_a_place_that_cannot_be_written_stops_nothing(source, tmp_path):
    (tmp_path / "cache").write_text("a file where a folder is needed")
    cache = ConversionCache(tmp_path / "cache")
    cache.store("key", source)
    assert not fetched(cache, "key", tmp_path / "after")


def test_the_key_follows_everything_a_conversion_depends_on(monkeypatch):
    onnx, tflite = backend_for("onnx"), backend_for("tflite")
    keys = {
        conversion_key("a", SPEC, onnx),
        conversion_key("b", SPEC, onnx),
        conversion_key("a", SPEC, tflite),
        conversion_key("a", SPEC.model_copy(update={"lengths": (8,)}), onnx),
    }
    monkeypatch.setattr("export.cache.versions", lambda: {"torch": "0"})
    keys.add(conversion_key("a", SPEC, onnx))
    monkeypatch.setattr("export.cache.source_hash", lambda module: "changed")
    keys.add(conversion_key("a", SPEC, onnx))
    assert len(keys) == 6
    assert conversion_key("a", SPEC, onnx) in keys


def test_the_folder_is_the_environments(monkeypatch, tmp_path):
    monkeypatch.setenv("COMPRESSOR_CACHE", str(tmp_path))
    assert ConversionCache.default().folder == tmp_path / "conversions"
    monkeypatch.setenv("COMPRESSOR_CACHE", "")
    assert ConversionCache.default() is None
