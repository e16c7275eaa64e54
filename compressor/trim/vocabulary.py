"""A ``tokenizer.json`` as data: its pieces, what it cannot do without, and the same file with fewer of them."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from compressor.core.errors import ModelError
from compressor.trim.merges import MergeTable

Kind = Literal["WordPiece", "BPE", "Unigram"]
_KINDS: tuple[Kind, ...] = ("WordPiece", "BPE", "Unigram")
BYTE_PIECES = tuple(f"<0x{value:02X}>" for value in range(256))


class Vocabulary:
    """The pieces of one ``tokenizer.json`` by their ids.

    Args:
        document: the parsed file.
        place: where it is from, for messages.

    Raises:
        ModelError: a kind of tokenizer that is not WordPiece, BPE or Unigram, or one that marks ends of words by a
            suffix.
    """

    def __init__(self, document: dict[str, Any], place: Path) -> None:
        self.document = document
        self._model: dict[str, Any] = document["model"]
        self.kind: Kind = _kind(self._model, place)
        if self.kind == "BPE" and (
            self._model.get("end_of_word_suffix") or self._model.get("continuing_subword_prefix")
        ):
            raise ModelError(
                f"{place} is a BPE tokenizer that marks word parts by a prefix or suffix; expected byte-level or "
                "SentencePiece pieces",
                remedy="keep its vocabulary as it is",
            )

    @classmethod
    def load(cls, folder: Path) -> Vocabulary:
        """Reads ``tokenizer.json`` of a checkpoint.

        Raises:
            ModelError: there is none, or it cannot be trimmed.
        """
        file = folder / "tokenizer.json"
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
            return cls(document, file)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelError(
                f"{file} is not a readable tokenizer: {error}",
                remedy="load it with transformers.AutoTokenizer and save it there with save_pretrained()",
            ) from error

    @cached_property
    def model_ids(self) -> dict[str, int]:
        """Piece to id, of the model's own vocabulary."""
        vocabulary = self._model["vocab"]
        if self.kind == "Unigram":
            return {piece: index for index, (piece, _) in enumerate(vocabulary)}
        return dict(vocabulary)

    @cached_property
    def ids(self) -> dict[str, int]:
        """Piece to id, added tokens included."""
        added = {item["content"]: int(item["id"]) for item in self.document.get("added_tokens", ())}
        return {**added, **self.model_ids}

    @property
    def unknown_id(self) -> int | None:
        """Id that stands for what cannot be spelled."""
        if self.kind == "Unigram":
            found = self._model.get("unk_id")
            return None if found is None else int(found)
        piece = self._model.get("unk_token")
        return None if piece is None else self.ids.get(piece)

    @cached_property
    def required(self) -> frozenset[int]:
        """Ids that have to stay: added and unknown tokens, byte pieces, the piece that fixes Unigram's scores."""
        found = {self.ids[item["content"]] for item in self.document.get("added_tokens", ())}
        if self.unknown_id is not None:
            found.add(self.unknown_id)
        if self._model.get("byte_fallback"):
            found |= {self.ids[piece] for piece in BYTE_PIECES if piece in self.ids}
        if self.kind == "BPE" and _mentions(self.document, "ByteLevel"):
            found |= {index for piece, index in self.model_ids.items() if len(piece) == 1}
        if self.kind == "Unigram":
            # An unknown character scores ten below the worst piece: while that one stays, every path scores as before.
            scores = [score for _, score in self._model["vocab"]]
            found.add(min(range(len(scores)), key=scores.__getitem__))
        return frozenset(found)

    def characters(self, text: Iterable[str]) -> frozenset[int]:
        """Returns ids of the single-character pieces with which such characters are spelled."""
        prefix = self._model.get("continuing_subword_prefix") or "" if self.kind == "WordPiece" else ""
        wanted = {*text}
        spelled = (*wanted, *(prefix + character for character in wanted))
        return frozenset(self.model_ids[piece] for piece in spelled if piece in self.model_ids)

    @cached_property
    def merges(self) -> MergeTable | None:
        """How BPE builds its pieces; None for the other kinds."""
        return MergeTable(self._model["merges"], self.model_ids) if self.kind == "BPE" else None

    def closure(self, index: int) -> frozenset[int]:
        """Returns the piece with all that BPE builds on the way to it."""
        if self.merges is None:
            return frozenset({index})
        return (
            frozenset({index, *self.merges.parts(self._pieces[index])}) if index in self._pieces else frozenset({index})
        )

    @cached_property
    def _pieces(self) -> dict[int, str]:
        return {index: piece for piece, index in self.model_ids.items()}

    def order(self, kept: Iterable[int]) -> tuple[int, ...]:
        """Returns old ids in the order of their new ones: the model's pieces as they stood, then other added tokens."""
        own = {*self.model_ids.values()}
        return tuple(sorted(kept, key=lambda index: (index not in own, index)))

    def trimmed(self, order: Sequence[int]) -> dict[str, Any]:
        """Returns the document with the pieces of ``order`` only, renumbered by their place in it."""
        new = {old: place for place, old in enumerate(order)}
        document = copy.copy(self.document)
        model = dict(self._model)
        if self.kind == "Unigram":
            model["vocab"] = [pair for index, pair in enumerate(self._model["vocab"]) if index in new]
            if model.get("unk_id") is not None:
                model["unk_id"] = new[model["unk_id"]]
        else:
            kept = {piece: new[index] for piece, index in self.model_ids.items() if index in new}
            model["vocab"] = dict(sorted(kept.items(), key=lambda item: item[1]))
        if self.merges is not None:
            model["merges"] = self.merges.kept(model["vocab"])
        document["model"] = model
        document["added_tokens"] = sorted(
            ({**item, "id": new[self.ids[item["content"]]]} for item in self.document.get("added_tokens", ())),
            key=lambda item: item["id"],
        )
        document["post_processor"] = _renumbered(self.document.get("post_processor"), new)
        if self.document.get("padding"):
            document["padding"] = {**self.document["padding"], "pad_id": new[self.document["padding"]["pad_id"]]}
        return document


def _kind(model: dict[str, Any], place: Path) -> Kind:
    named = model.get("type")
    if named is None:
        named = "BPE" if "merges" in model else "Unigram" if isinstance(model.get("vocab"), list) else "WordPiece"
    for kind in _KINDS:
        if named == kind:
            return kind
    raise ModelError(
        f"{place} is a {named} tokenizer; expected {', '.join(_KINDS)}", remedy="keep its vocabulary as it is"
    )


def _mentions(document: dict[str, Any], kind: str) -> bool:
    parts = [document.get("pre_tokenizer"), document.get("decoder")]
    return any(part is not None and f'"{kind}"' in json.dumps(part) for part in parts)


def _renumbered(part: Any, new: dict[int, int]) -> Any:
    """Returns a post-processor with new ids, which stand in ``ids`` (templates) or ``[piece, id]`` (BERT, RoBERTa)."""
    if isinstance(part, list):
        return [_renumbered(item, new) for item in part]
    if not isinstance(part, dict):
        return part
    found = {}
    for key, value in part.items():
        if key == "ids":
            found[key] = [new[index] for index in value]
        elif key in ("sep", "cls") and isinstance(value, list) and len(value) == 2:
            found[key] = [value[0], new[value[1]]]
        else:
            found[key] = _renumbered(value, new)
    return found
