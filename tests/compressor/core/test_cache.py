"""Where results are kept between calls."""

from pathlib import Path

import pytest

from compressor.core.cache import cache_folder, keeps_results


def test_the_users_cache_folder_is_taken_unless_another_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("COMPRESSOR_CACHE", raising=False)
    assert cache_folder("bundles") == tmp_path / "compressor" / "bundles"
    monkeypatch.setenv("COMPRESSOR_CACHE", str(tmp_path / "mine"))
    assert cache_folder("bundles") == tmp_path / "mine" / "bundles"
    assert keeps_results()


def test_with_an_empty_setting_large_results_are_not_kept_and_small_ones_have_their_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("COMPRESSOR_CACHE", "")
    assert not keeps_results()
    assert cache_folder("simulated") == tmp_path / "compressor" / "simulated"
