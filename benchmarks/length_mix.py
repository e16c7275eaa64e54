"""At which lengths sentences run: known before anything is timed, because tokenising needs no device."""

from __future__ import annotations

from collections.abc import Sequence

from compressor.core.artifact import Artifact
from compressor.core.schema import Text


def lengths_of(artifact: Artifact, sentences: Sequence[Text]) -> list[int]:
    """Returns the number of tokens the artifact runs at for each sentence: its bucket, or its own length."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(artifact.path / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(min(artifact.io.max_tokens, max(artifact.io.lengths, default=artifact.io.max_tokens)))
    found = []
    for text in sentences:
        tokens = len((tokenizer.encode(text) if isinstance(text, str) else tokenizer.encode(text[0], text[1])).ids)
        found.append(min((length for length in artifact.io.lengths if length >= tokens), default=tokens))
    return found
