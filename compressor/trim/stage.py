"""Stage ``trim``: the vocabulary loses the pieces that the task's text never uses."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field
from tokenizers import Tokenizer

from compressor.core.checkpoint import COMPRESSION, Checkpoint
from compressor.core.errors import DataError, ModelError, StageError
from compressor.core.folders import write_json
from compressor.core.schema import Text
from compressor.families import adapter_for
from compressor.finetune import check_saved
from compressor.models import load_config
from compressor.shapes import read_shape, write_shape
from compressor.share.files import carry_files
from compressor.stage import Context, Produces, Stage, StageConfig, register
from compressor.text import load_tokenizer, uncut
from compressor.train.history import write_history
from compressor.trim.choose import check_known, choose_pieces, count_pieces
from compressor.trim.rows import trim_rows
from compressor.trim.vocabulary import Vocabulary

VOCABULARY = "vocabulary"
"""Key of ``compression.json``: the ids that each row had before the first trimming."""
_SLOW_FILES = ("vocab.txt", "vocab.json", "merges.txt", "*.model", "added_tokens.json")
"""Other forms of the same vocabulary, which would now disagree with ``tokenizer.json``."""


class TrimConfig(StageConfig):
    """Settings of ``trim``."""

    corpus: str | None = None
    """Text file, one text a line; default the recipe's training texts."""
    scripts: tuple[str, ...] = ()
    """Scripts of which every piece stays, whether the corpus has it or not: ``latin``, ``cyrillic``, …"""
    max_pieces: int | None = Field(default=None, gt=0)
    """Most pieces that stay, the most frequent ones; default all that the corpus uses."""
    max_unknown: float = Field(default=0.05, ge=0, le=1)
    """Largest share of the corpus that the tokenizer may not know."""


@register
class Trim(Stage[TrimConfig]):
    """Rewrites ``tokenizer.json`` and keeps the embedding rows that belong to it."""

    name: ClassVar[str] = "trim"
    config_type: ClassVar[type[StageConfig]] = TrimConfig
    produces: ClassVar[Produces] = "checkpoint"
    packages: ClassVar[tuple[str, ...]] = ("torch", "tokenizers", "transformers")

    def files(self) -> tuple[Path, ...]:
        """Returns the corpus that the recipe names."""
        return () if self.config.corpus is None else (Path(self.config.corpus),)

    def forecast(self, model_config: Any) -> Any:
        """Returns the config with the largest vocabulary that may be left; how much stays depends on the text."""
        made = copy.deepcopy(model_config)
        made.vocab_size = min(model_config.vocab_size, self.config.max_pieces or model_config.vocab_size)
        return made

    def requires(self, context: Context) -> None:
        """Checks tokenizer and corpus before any work.

        Raises:
            ModelError: a tokenizer that cannot be trimmed, or one with more pieces than the model has rows.
            DataError: a corpus that cannot be read, or that the tokenizer does not know.
            RecipeError: a limit that special tokens do not fit into, or an unknown script.
        """
        self._chosen(context)

    def run(self, context: Context, output: Path) -> dict[str, Any]:
        """Trims and saves; returns the arithmetic, and how much of unseen text keeps its pieces."""
        source = context.current
        config = load_config(source)
        kept, vocabulary, unknown = self._chosen(context)
        document = vocabulary.trimmed(kept)
        trimmed = uncut(Tokenizer.from_str(json.dumps(document)))
        check_same(load_tokenizer(source.path), trimmed, kept, self._corpus(context))
        carry_files(source, output, *_SLOW_FILES)
        _write_tokenizer(output, document, vocabulary, kept)
        before, after = trim_rows(source, config, adapter_for(config), kept, output)
        _write_config(source, output, kept)
        write_shape(output, read_shape(source))
        held_out = [*_flat(context.data.validation.texts), *_flat(context.data.test.texts)]
        width = (before - after) // max(1, int(config.vocab_size) - len(kept))
        facts = {
            "pieces": {"before": int(config.vocab_size), "after": len(kept)},
            "parameters": {"before": before, "after": after, "per_piece": width},
            "bytes": {"before": source.size_bytes, "after": Checkpoint(output).size_bytes},
            "unknown_in_corpus": unknown,
            "held_out": coverage(load_tokenizer(source.path), trimmed, kept, held_out, vocabulary.unknown_id),
        }
        write_history(output, source, {"stage": self.name, **facts})
        earlier = (source.compression.get(VOCABULARY) or {}).get("kept")
        record = {**Checkpoint(output).compression}
        record[VOCABULARY] = {"kept": [earlier[index] for index in kept] if earlier else list(kept)}
        write_json(output / COMPRESSION, record)
        return facts

    def ensures(self, context: Context, output: Path) -> None:
        """Proves that the model reads back with one row for each piece."""
        model = check_saved(output)
        config: Any = model.config
        rows = adapter_for(config).word_embedding(model).num_embeddings
        pieces = load_tokenizer(output).get_vocab_size(with_added_tokens=True)
        if not rows == pieces == int(config.vocab_size):
            raise StageError(
                f"{output} has {rows} rows for {pieces} pieces; config.json says {config.vocab_size}",
                remedy="report this stage",
            )

    def _chosen(self, context: Context) -> tuple[tuple[int, ...], Vocabulary, float]:
        """Returns the kept ids, the vocabulary they are from, and the corpus's share of unknown pieces."""
        source = context.current
        config = load_config(source)
        vocabulary = Vocabulary.load(source.path)
        if max(vocabulary.ids.values()) >= int(config.vocab_size):
            raise ModelError(
                f"{source.path} has pieces up to id {max(vocabulary.ids.values())} and {config.vocab_size} rows",
                remedy="check that tokenizer and weights belong together",
            )
        counts = count_pieces(load_tokenizer(source.path), self._corpus(context))
        unknown = check_known(counts, vocabulary.unknown_id, limit=self.config.max_unknown)
        named = {value for key, value in source.config.items() if key.endswith("_token_id") and isinstance(value, int)}
        if adapter_for(config).position_offset:  # positions are counted from the padding's id, which must not move
            named |= {*range(int(config.pad_token_id) + 1)}
        kept = choose_pieces(vocabulary, counts, most=self.config.max_pieces, scripts=self.config.scripts, more=named)
        return kept, vocabulary, unknown

    def _corpus(self, context: Context) -> Iterator[str]:
        if self.config.corpus is None:
            yield from _flat(context.data.train.texts)
            return
        try:
            with Path(self.config.corpus).open(encoding="utf-8") as lines:
                yield from (line.rstrip("\n") for line in lines)
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(
                f"the corpus {self.config.corpus} cannot be read: {error}", remedy="name a UTF-8 text file"
            ) from error


def check_same(before: Tokenizer, after: Tokenizer, kept: Sequence[int], texts: Iterator[str]) -> None:
    """Proves that a text whose pieces all stayed is cut into the same pieces, with ids that map to the old ones.

    Raises:
        StageError: one is not.
    """
    known = {*kept}
    for text in texts:
        old = before.encode(text)
        if not known.issuperset(old.ids):
            continue
        new = after.encode(text)
        if new.tokens != old.tokens or [kept[index] for index in new.ids] != old.ids:
            raise StageError(
                f"the trimmed tokenizer cuts '{text[:60]}' into {new.tokens[:8]}; expected {old.tokens[:8]}",
                remedy="report this tokenizer",
            )


def coverage(
    before: Tokenizer, after: Tokenizer, kept: Sequence[int], texts: Sequence[str], unknown: int | None
) -> dict[str, float | int]:
    """Returns what is left of other texts: the same pieces, pieces that stayed, unknown ones then and now."""
    known = {*kept}
    old = before.encode_batch(list(texts), add_special_tokens=False)
    new = after.encode_batch(list(texts), add_special_tokens=False)
    pieces = sum(len(it.ids) for it in old)
    new_unknown = kept.index(unknown) if unknown is not None else -1
    return {
        "texts": len(texts),
        "same_texts": sum(a.tokens == b.tokens for a, b in zip(old, new, strict=True)) / max(1, len(texts)),
        "kept_pieces": sum(index in known for it in old for index in it.ids) / max(1, pieces),
        "unknown_before": sum(index == unknown for it in old for index in it.ids) / max(1, pieces),
        "unknown_after": sum(i == new_unknown for it in new for i in it.ids) / max(1, sum(len(it.ids) for it in new)),
    }


def _write_tokenizer(output: Path, document: dict[str, Any], vocabulary: Vocabulary, kept: Sequence[int]) -> None:
    (output / "tokenizer.json").write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    if vocabulary.kind == "WordPiece":
        pieces = sorted(document["model"]["vocab"], key=document["model"]["vocab"].__getitem__)
        (output / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
    settings = output / "tokenizer_config.json"
    if settings.is_file():
        record = json.loads(settings.read_text(encoding="utf-8"))
        if "added_tokens_decoder" in record:
            new = {str(old): str(place) for place, old in enumerate(kept)}
            named = record["added_tokens_decoder"].items()
            record["added_tokens_decoder"] = {new[old]: token for old, token in named if old in new}
            write_json(settings, record)


def _write_config(source: Checkpoint, output: Path, kept: Sequence[int]) -> None:
    new = {old: place for place, old in enumerate(kept)}
    record = dict(source.config)
    for key, value in record.items():
        if key.endswith("_token_id") and isinstance(value, int) and value >= 0:
            record[key] = new.get(value)
    record["vocab_size"] = len(kept)
    write_json(output / "config.json", record)


def _flat(texts: Sequence[Text]) -> Iterator[str]:
    for text in texts:
        yield from (text,) if isinstance(text, str) else text
