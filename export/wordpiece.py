"""BERT's WordPiece as other people's runtimes know it: one fixed way to clean, split and frame a single text."""

from __future__ import annotations

from typing import Any

from compressor.core.artifact import IOSpec

SPECIALS = ("[CLS]", "[SEP]", "[UNK]")


def refusal(tokenizer: dict[str, Any], io: IOSpec) -> str | None:
    """Returns in what a tokenizer is not BERT's, or None where it is.

    Args:
        tokenizer: content of ``tokenizer.json``.
        io: what the model takes.
    """
    model = tokenizer["model"]
    if model.get("type") != "WordPiece":
        return f"its tokenizer is {model.get('type', 'of no stated type')}, not BERT's WordPiece"
    if model.get("continuing_subword_prefix") != "##":
        return f"its tokenizer marks pieces within a word by '{model.get('continuing_subword_prefix')}', not by '##'"
    if (tokenizer.get("normalizer") or {}).get("type") != "BertNormalizer":
        return "its tokenizer does not clean texts as BERT does"
    if (tokenizer.get("pre_tokenizer") or {}).get("type") != "BertPreTokenizer":
        return "its tokenizer does not split words as BERT does"
    if not set(SPECIALS) <= model["vocab"].keys():
        return f"its special tokens are not BERT's ({', '.join(SPECIALS)})"
    if sorted(model["vocab"].values()) != list(range(len(model["vocab"]))):
        return "its vocabulary has gaps, which a list of pieces cannot show"
    if io.text_columns != 1:
        return "it takes two texts"
    return None


def vocabulary(tokenizer: dict[str, Any]) -> list[str]:
    """Returns the pieces in the order of their ids, as ``vocab.txt`` lists them; empty where it is no WordPiece."""
    if tokenizer["model"].get("type") != "WordPiece":
        return []
    ids: dict[str, int] = tokenizer["model"]["vocab"]
    return sorted(ids, key=ids.__getitem__)
