"""From ``tokenizer.json`` to words a programmer of any language can follow, and vectors that prove the result."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from compressor.core.artifact import IOSpec
from compressor.core.schema import Text
from compressor.text import ATTENTION_MASK, INPUT_IDS, TOKEN_TYPE_IDS, SentenceEncoder, bucket

PROBES: tuple[str, ...] = (
    "Where is my order?",
    "",
    "   spaces\tand\u00a0others \n ",
    "Don't re-send it: 50% off, $3.99 (today) <b>&</b> a_b!",
    "café naïve ÅNGSTRÖM ß İstanbul",
    "北京 wetter 東京タワー",
    "안녕하세요 नमस्ते мир",
    "thumbs up 👍🏽 family 👨‍👩‍👧",
    "zero\u200bwidth soft\u00adhyphen bell\u0007 \ufffd",
    "antidisestablishmentarianism qwrtzpsdfg",
    "x" * 120,
    "[SEP] is [MASK] text </s> too",
    "1234567890 3,141.59 2026-11-30T10:00Z",
    "https://example.org/a?b=c&d=e#f user@example.org",
    "a longer sentence that goes on and on " * 40,
)
"""Texts on which tokenizers differ: white space, accents, scripts without spaces, controls, long words, long texts."""

_CJK = "U+3400 to 4DBF, 4E00 to 9FFF, F900 to FAFF, 20000 to 2A6DF, 2A700 to 2B81F, 2B920 to 2CEAF, 2F800 to 2FA1F"

_Step = Callable[[Mapping[str, Any]], Sequence[str]]


def _bert_normalizer(step: Mapping[str, Any]) -> Sequence[str]:
    strip = step["lowercase"] if step.get("strip_accents") is None else step["strip_accents"]
    rules = {
        "Drop U+0000, U+FFFD and every character of the Unicode categories Cc, Cf and Co but tab, line feed and "
        "carriage return; then make every white-space character (tab, line feed, carriage return, no-break space, …) "
        "a space.": step["clean_text"],
        f"Put a space before and after every ideograph ({_CJK}).": step["handle_chinese_chars"],
        "Decompose (Unicode NFD) and drop the category Mn, so that é becomes e.": strip,
        "Lower the case (Unicode, no locale).": step["lowercase"],
    }
    return [text for text, holds in rules.items() if holds]


_NORMALIZERS: Mapping[str, _Step] = {
    "BertNormalizer": _bert_normalizer,
    "Lowercase": lambda step: ["Lower the case (Unicode, no locale)."],
    "NFC": lambda step: ["Unicode NFC."],
    "NFD": lambda step: ["Unicode NFD."],
    "NFKC": lambda step: ["Unicode NFKC."],
    "NFKD": lambda step: ["Unicode NFKD."],
    "StripAccents": lambda step: ["Drop the Unicode category Mn."],
    "Strip": lambda step: [
        "Cut white space at the "
        + " and the ".join(side for side, key in (("start", "strip_left"), ("end", "strip_right")) if step[key])
        + "."
    ],
    "Replace": lambda step: [f"Replace {_pattern(step['pattern'])} by `{step['content']}`."],
    "Prepend": lambda step: [f"Put `{step['prepend']}` in front."],
    "Precompiled": lambda step: [
        "SentencePiece's own normalisation (`nmt_nfkc`), a table of replacements stored in `tokenizer.json` as "
        "`precompiled_charsmap`: use the SentencePiece library for it."
    ],
}

_SPLITTERS: Mapping[str, _Step] = {
    "BertPreTokenizer": lambda step: [
        "Split at white space and drop it.",
        "Make every punctuation character a word of its own: ASCII 33 to 47, 58 to 64, 91 to 96, 123 to 126 and "
        "the Unicode categories Pc, Pd, Pe, Pf, Pi, Po, Ps.",
    ],
    "WhitespaceSplit": lambda step: ["Split at white space and drop it."],
    "Whitespace": lambda step: ["Words are the matches of the regular expression `\\w+|[^\\w\\s]+`."],
    "Punctuation": lambda step: [f"Split at punctuation, which is kept as: {step.get('behavior', 'Isolated')}."],
    "Metaspace": lambda step: [
        f"Replace every space by `{step['replacement']}`, put one in front "
        f"({step.get('prepend_scheme', 'always')}), and start a new word at each."
    ],
    "ByteLevel": lambda step: [
        ("Put a space in front of the text. " if step.get("add_prefix_space") else "")
        + "Split with GPT-2's regular expression `'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|"
        "\\s+(?!\\S)|\\s+`, then write the UTF-8 bytes of each word in GPT-2's 256 printable characters "
        "(a space becomes `Ġ`)."
    ],
}

_MODELS: Mapping[str, _Step] = {
    "WordPiece": lambda model: [
        f"A word of more than {model['max_input_chars_per_word']} characters is `{model['unk_token']}`.",
        "Else take the longest piece of the vocabulary that the word starts with, and go on with the rest; pieces that "
        f"do not start the word are looked up with `{model['continuing_subword_prefix']}` in front.",
        f"Where no piece fits, the whole word is one `{model['unk_token']}`.",
    ],
    "BPE": lambda model: [
        "Start from the single characters of a word. Again and again join the neighbouring pair that stands first in "
        "`merges` (`merges.txt`), all its occurrences from left to right, until no pair of the list is left.",
        *(["Pieces inside a word carry its byte characters; unknown pieces cannot occur."] if not model.get("unk_token")
          else [f"A piece that is not in the vocabulary is `{model['unk_token']}`."]),
    ],
    "Unigram": lambda model: [
        "Of all ways to cut a word into pieces of the vocabulary take the one with the greatest sum of the scores that "
        "stand beside the pieces in `tokenizer.json` (Viterbi).",
        f"A character no piece holds is the piece with id {model.get('unk_id')}; neighbouring ones are one.",
    ],
}  # fmt: skip


def describe(tokenizer: Mapping[str, Any]) -> dict[str, list[str]]:
    """Returns the steps of a tokenizer by part: ``normalizer``, ``words``, ``pieces`` and ``specials``.

    A step this table does not know is named with its settings, as ``tokenizer.json`` has it.

    Args:
        tokenizer: content of ``tokenizer.json``.
    """
    return {
        "normalizer": _steps(tokenizer.get("normalizer"), "normalizers", _NORMALIZERS),
        "words": _steps(tokenizer.get("pre_tokenizer"), "pretokenizers", _SPLITTERS),
        "pieces": _steps(tokenizer["model"], "", _MODELS),
    }


def specials(tokenizer: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Returns (text, id) of the tokens that are recognised in a text before anything else happens to it."""
    return [(item["content"], item["id"]) for item in tokenizer.get("added_tokens") or ()]


def vectors(encoder: SentenceEncoder, io: IOSpec, texts: Sequence[Text], piece: Callable[[int], str]) -> dict[str, Any]:
    """Returns test vectors for an app's tokenizer, made by the artifact's own.

    Args:
        encoder: the artifact's tokenizer.
        io: lengths and limits.
        texts: texts, or pairs where the model takes two.
        piece: the text of a token id.
    """
    cases = []
    for text, encoded in zip(texts, encoder.encode(texts), strict=True):
        length = bucket(len(encoded), io.lengths)
        padded = {name: rows[0].tolist() for name, rows in encoder.pad([encoded], length).items()}
        cases.append(
            {
                "text": text[0] if isinstance(text, tuple) else text,
                "second_text": text[1] if isinstance(text, tuple) else None,
                "tokens": [piece(index) for index in encoded.ids],
                "truncated": encoded.truncated,
                "length": length,
                **{name: padded[name] for name in (INPUT_IDS, ATTENTION_MASK, TOKEN_TYPE_IDS)},
            }
        )
    return {"schema_version": 1, "max_tokens": io.max_tokens, "pad_id": io.pad_id, "cases": cases}


def probe_texts(io: IOSpec) -> tuple[Text, ...]:
    """Returns the built-in texts; neighbours make pairs where the model takes two."""
    if io.text_columns == 1:
        return PROBES
    return tuple((left, right) for left, right in zip(PROBES, PROBES[1:] + PROBES[:1], strict=True))


def _steps(step: Mapping[str, Any] | None, parts: str, known: Mapping[str, _Step]) -> list[str]:
    if not step:
        return []
    if step["type"] == "Sequence":
        return [text for part in step[parts] for text in _steps(part, parts, known)]
    if step["type"] in known:
        return list(known[step["type"]](step))
    settings = {key: value for key, value in step.items() if key not in ("type", "vocab", "merges")}
    return [f"`{step['type']}` of the `tokenizers` library, with {json.dumps(settings, ensure_ascii=False)}."]


def _pattern(pattern: Mapping[str, str]) -> str:
    kind, value = next(iter(pattern.items()))
    return f"the regular expression `{value}`" if kind == "Regex" else f"`{value}`"
