"""Stage ``pretrain``: the encoder learns a domain from its plain text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import DataError, StageError
from compressor.core.schema import Text
from compressor.data.batches import EncodedSplit, encode_split
from compressor.data.dataset import Split
from compressor.data.reader import read_corpus
from compressor.data.stored import StoredTexts
from compressor.families import adapter_for
from compressor.models import load_config, save_checkpoint, unique_parameters
from compressor.pretrain.config import PretrainConfig
from compressor.pretrain.encoders import encoder_of, freeze_pooler, load_any
from compressor.pretrain.heads import HEAD, MaskedHead, check_head, masked_head
from compressor.pretrain.masking import Masks
from compressor.pretrain.objectives.base import Measured, PretrainObjective
from compressor.pretrain.objectives.mlm import MaskedWords
from compressor.pretrain.objectives.rtd import Generator, ReplacedTokens
from compressor.pretrain.objectives.sop import SentenceOrder, consecutive, exchanged
from compressor.pretrain.pieces import Pieces
from compressor.shapes import read_shape
from compressor.share.files import carry_files
from compressor.stage import Context, Produces, Stage, StageConfig, register
from compressor.train.history import write_history
from compressor.train.loop import train
from compressor.train.optimizer import freeze_word_embeddings
from compressor.train.runtime import reproducible


@register
class Pretrain(Stage[PretrainConfig]):
    """Trains the current checkpoint's encoder on text without labels; its head stays as it is."""

    name: ClassVar[str] = "pretrain"
    config_type: ClassVar[type[StageConfig]] = PretrainConfig
    produces: ClassVar[Produces] = "checkpoint"
    trains: ClassVar[bool] = True
    prepares_reference: ClassVar[bool] = True
    packages: ClassVar[tuple[str, ...]] = ("torch", "transformers", "tokenizers", "accelerate")

    def files(self) -> tuple[Path, ...]:
        """Returns the text file that the recipe names."""
        return () if self.config.texts is None else (self.config.texts,)

    def check(self, teacher: Checkpoint, earlier: tuple[str, ...]) -> None:
        """Raises DataError where the text file is not there."""
        if self.config.texts is not None and not self.config.texts.exists():
            raise DataError(f"{self.config.texts} does not exist; expected text to learn from", remedy="check 'texts'")

    def requires(self, context: Context) -> None:
        """Checks tokenizer, head and texts before any work.

        Raises:
            ModelError: a tokenizer without a mask token, or a model that no head for masked words can stand on.
            DataError: no text, or none that is long enough.
        """
        shape = read_shape(context.current)
        check_head(load_config(context.current), factorized=shape is not None and shape.embedding_rank is not None)
        Pieces.load(context.current)
        self._texts(context)
        self._held_out(context)

    def run(self, context: Context, output: Path) -> dict[str, Any]:
        """Trains and saves; returns curves and figures on the validation texts before and after."""
        config, source = self.config, context.current
        seed = config.seed_or(context.seed)
        texts = self._texts(context)
        with reproducible(seed=seed, threads=context.threads):
            model = load_any(source)
            if config.freeze_embeddings:
                freeze_word_embeddings(model)
            data = self._encoded(texts, source)
            head, trained = masked_head(model, source) if config.objective != "rtd" else (None, False)
            objective = self._objective(model, head, data, texts, context, seed=seed)
            before = objective.measure()
            curves = train(objective, data, config, seed=seed, scratch=context.scratch, progress=context.progress)
            after = objective.measure()
        carry_files(source, output)
        save_checkpoint(model, source.path, output)
        if head is not None:
            head.save(output)
        settings = {"objective": config.objective, "epochs": config.epochs, "lr": config.lr, "texts": len(data)}
        kept = None if head is None else HEAD.as_posix()
        write_history(output, source, {"stage": self.name, **settings, "mlm_head": kept})
        return {
            "curves": curves,
            "objective": config.objective,
            "texts": len(data),
            "truncated_texts": data.truncated,
            "head": "none" if head is None else "the checkpoint's" if trained else "new",
            "held_out": {"before": before, "after": after},
            "parameters": unique_parameters(model),
            "note": _note(before, after),
        }

    def ensures(self, context: Context, output: Path) -> None:
        """Proves that the saved model is finite and has the parameters it had, and that its head reads back."""
        saved = Checkpoint.open(output)
        model = load_any(saved)
        for name, parameter in model.named_parameters():
            if not torch.isfinite(parameter).all():
                raise StageError(f"{output}: {name} is not finite", remedy="lower lr, or set bf16: false")
        found, expected = unique_parameters(model), unique_parameters(load_any(context.current))
        if found != expected:
            raise StageError(f"{output} has {found} parameters; expected {expected}", remedy="report this stage")
        if self.config.objective != "rtd":
            masked_head(model, saved)

    def _objective(
        self,
        model: nn.Module,
        head: MaskedHead | None,
        data: EncodedSplit,
        texts: Sequence[Text],
        context: Context,
        *,
        seed: int,
    ) -> PretrainObjective:
        config, source = self.config, context.current
        encoder = encoder_of(model)
        freeze_pooler(encoder)
        model_config: Any = model.config
        adapter = adapter_for(model_config)
        width = adapter.hidden_size(model_config)
        held_out = self._held_out(context)
        measured: dict[str, Any] = {
            "held_out": self._encoded(held_out, source),
            "held_out_tokens": config.held_out_tokens,
        }
        pieces = Pieces.load(source)
        masks = Masks(pieces=pieces, settings=config, seed=seed)
        if head is None:
            # ELECTRA hides every chosen token; what BERT leaves or swaps is for a model that will see no mask later.
            all_hidden = config.model_copy(update={"mask_share": 1.0, "random_share": 0.0})
            return ReplacedTokens(
                encoder,
                Generator(model_config, adapter.word_embedding(model), config.generator),
                Masks(pieces=pieces, settings=all_hidden, seed=seed),
                data=data,
                width=width,
                weight=config.generator.weight,
                **measured,
            )
        if config.objective == "mlm":
            return MaskedWords(encoder, head, masks, data=data, **measured)
        return SentenceOrder(
            encoder,
            head,
            masks,
            data=data,
            swapped=self._encoded(StoredTexts(exchanged(texts)), source),
            held_out_swapped=self._encoded(StoredTexts(exchanged(held_out)), source),
            width=width,
            **measured,
        )

    def _encoded(self, texts: Sequence[Text], source: Checkpoint) -> EncodedSplit:
        return encode_split(source, Split(texts, (0,) * len(texts)), max_tokens=self.config.max_tokens)

    def _texts(self, context: Context) -> Sequence[Text]:
        named = self.config.texts
        texts = context.data.train.texts if named is None else read_corpus(named)
        return self._usable(texts, "training" if named is None else str(named))

    def _held_out(self, context: Context) -> Sequence[Text]:
        return self._usable(context.data.validation.texts, "validation")

    def _usable(self, texts: Sequence[Text], which: str) -> Sequence[Text]:
        """Returns the texts that have something to learn from; for the order of sentences, their two parts.

        Raises:
            DataError: there are none.
        """
        ordered = self.config.objective == "mlm+sop"
        kept = StoredTexts(consecutive(texts) if ordered else (text for text in texts if "".join(text).strip()))
        if kept:
            return kept
        needed = "two words, to be cut in two" if ordered else "a word"
        raise DataError(
            f"{self.name} found {len(texts)} {which} texts, none with {needed}; expected plain text to learn from",
            remedy="name a file of text with 'texts', or data whose texts are not empty",
        )


def _note(before: Measured, after: Measured) -> str:
    """Returns what a report says of the stage in its table."""
    name = "masked_accuracy" if "masked_accuracy" in before else "rtd_accuracy"
    return f"{name.replace('_', ' ')} {before[name]:.1%} → {after[name]:.1%}"
