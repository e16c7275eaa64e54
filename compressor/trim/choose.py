"""Which pieces stay."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from tokenizers import Tokenizer

from compressor.core.errors import DataError, RecipeError, nearest
from compressor.trim.vocabulary import Vocabulary

_CHUNK = 2000
_ASCII = tuple(map(chr, range(33, 127)))
SCRIPTS = (
    "latin", "greek", "cyrillic", "armenian", "hebrew", "arabic", "devanagari", "bengali", "gurmukhi", "gujarati",
    "tamil", "telugu", "kannada", "malayalam", "sinhala", "thai", "lao", "tibetan", "myanmar", "georgian", "hangul",
    "ethiopic", "khmer", "hiragana", "katakana", "cjk",
)  # fmt: skip
"""As Unicode's names of letters begin; ``cjk`` are the Han characters."""


def count_pieces(tokenizer: Tokenizer, texts: Iterable[str]) -> Counter[int]:
    """Returns how often each id occurs in texts, special tokens left out."""
    found: Counter[int] = Counter()
    chunk: list[str] = []
    for text in texts:
        chunk.append(text)
        if len(chunk) == _CHUNK:
            found.update(index for it in tokenizer.encode_batch(chunk, add_special_tokens=False) for index in it.ids)
            chunk.clear()
    found.update(index for it in tokenizer.encode_batch(chunk, add_special_tokens=False) for index in it.ids)
    return found


def check_known(counts: Counter[int], unknown: int | None, *, limit: float) -> float:
    """Returns the share of unknown pieces.

    Raises:
        DataError: it is above ``limit``, or there are no pieces at all: this tokenizer cannot keep such text.
    """
    total = counts.total()
    share = counts[unknown] / total if unknown is not None and total else 0.0
    if not total or share > limit:
        found = f"{share:.0%} of its {total} pieces are unknown" if total else "it holds no text"
        raise DataError(
            f"the tokenizer cannot keep this corpus: {found}; expected at most {limit:.0%}",
            remedy="check language and script of the corpus, or start from a model whose vocabulary covers them",
        )
    return share


def choose_pieces(
    vocabulary: Vocabulary,
    counts: Counter[int],
    *,
    most: int | None,
    scripts: Sequence[str] = (),
    more: Collection[int] = (),
) -> tuple[int, ...]:
    """Returns the old ids that stay, in the order of their new ids.

    Args:
        vocabulary: all pieces.
        counts: how often each id occurs in the corpus.
        most: how many stay at most, the most frequent; None: every one that occurs.
        scripts: all pieces in these scripts stay too.
        more: ids that stay whatever the corpus says (those that ``config.json`` names).

    Raises:
        RecipeError: ``most`` does not hold the special tokens and single characters that have to stay, or an unknown
            script.
    """
    names = {index: piece for piece, index in vocabulary.ids.items()}
    seen = {character for index in counts for character in names.get(index, "")}
    kept = {*vocabulary.required, *vocabulary.characters((*_ASCII, *seen)), *(i for i in more if i in names)}
    if most is not None and most < len(kept):
        raise RecipeError(
            f"max_pieces: {most} would drop special tokens or single characters; {len(kept)} have to stay",
            remedy=f"set max_pieces to {len(kept)} or more",
        )
    candidates = [index for index, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    candidates += sorted(_of_scripts(vocabulary, scripts))
    for index in candidates:
        new = vocabulary.closure(index) - kept
        if most is None or len(kept) + len(new) <= most:
            kept |= new
    return vocabulary.order(kept)


def _of_scripts(vocabulary: Vocabulary, scripts: Sequence[str]) -> set[int]:
    for script in scripts:
        if script not in SCRIPTS:
            raise RecipeError(f"'{script}' is no script that is known here", remedy=nearest(script, SCRIPTS))
    if not scripts:
        return set()
    spelled = _bytes_of_text() if vocabulary.kind == "BPE" else {}
    prefixes = tuple(script.upper() for script in scripts)

    def belongs(piece: str) -> bool:
        if spelled and all(character in spelled for character in piece):
            text = bytes(spelled[character] for character in piece).decode(errors="ignore")
        else:
            text = piece
        letters = [character for character in text if character.isalpha()]
        return bool(letters) and all(unicodedata.name(it, "").startswith(prefixes) for it in letters)

    return {index for piece, index in vocabulary.model_ids.items() if belongs(piece)}


def _bytes_of_text() -> dict[str, int]:
    """Returns the byte that each character of a byte-level piece stands for (GPT-2's table)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [value for value in range(256) if value not in plain]
    return {chr(value): value for value in plain} | {chr(256 + place): value for place, value in enumerate(others)}
