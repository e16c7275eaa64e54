"""The models of the support matrix: true sizes and vocabularies, random or transplanted weights, real tokenizers.

Trained weights of most systems cannot be had without a network, and whether a graph converts, how large it gets and how
long that takes does not depend on them. The exception, how well eight bits carry the signal, is also measured on the
real weights of all-MiniLM-L6-v2, moved into other families (:mod:`benchmarks.studies.transplants`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.studies.synthetic_tokenizers import Specials, byte_pairs, unigram, word_pieces
from benchmarks.studies.transplants import MOVES, minilm_as

_BERT = Specials(
    cls="[CLS]", sep="[SEP]", pad="[PAD]", unk="[UNK]", mask="[MASK]", first=("[PAD]", "[UNK]", "[CLS]", "[SEP]")
)
_ROBERTA = Specials(
    cls="<s>", sep="</s>", pad="<pad>", unk="<unk>", mask="<mask>", first=("<s>", "<pad>", "</s>", "<unk>")
)
_ALBERT = Specials(
    cls="[CLS]", sep="[SEP]", pad="<pad>", unk="<unk>", mask="[MASK]", first=("<pad>", "<unk>", "[CLS]", "[SEP]")
)
_DEBERTA = Specials(cls="[CLS]", sep="[SEP]", pad="[PAD]", unk="[UNK]", mask="[MASK]",
                    first=("[PAD]", "[CLS]", "[SEP]", "[UNK]"))  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class System:
    """One model: how its config and its tokenizer are made; ids are those of the published vocabularies."""

    name: str
    config_class: str
    config: Mapping[str, Any]
    tokenizer: Callable[[int, Specials, tuple[str, ...]], Any]
    specials: Specials


def _bert(name: str, vocabulary: int, **changes: Any) -> System:
    return System(name=name, config_class="BertConfig", config={"vocab_size": vocabulary, "pad_token_id": 0, **changes},
                  tokenizer=word_pieces, specials=_BERT)  # fmt: skip


def _roberta(name: str, config_class: str, vocabulary: int, tokenizer: Callable[..., Any]) -> System:
    config = {"vocab_size": vocabulary, "max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5,
              "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}  # fmt: skip
    return System(name=name, config_class=config_class, config=config, tokenizer=tokenizer, specials=_ROBERTA)


SYSTEMS: tuple[System, ...] = (
    _bert("bert-base", 30522),
    _bert("bert-large", 30522, hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096),
    _roberta("roberta-base", "RobertaConfig", 50265, byte_pairs),
    System(
        name="albert-base",
        config_class="AlbertConfig",
        config={"vocab_size": 30000, "embedding_size": 128, "hidden_size": 768, "num_attention_heads": 12,
                "intermediate_size": 3072, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3},
        tokenizer=unigram,
        specials=_ALBERT,
    ),
    System(name="distilbert", config_class="DistilBertConfig", config={"vocab_size": 30522, "pad_token_id": 0},
           tokenizer=word_pieces, specials=_BERT),
    System(
        name="electra-small",
        config_class="ElectraConfig",
        config={"vocab_size": 30522, "embedding_size": 128, "hidden_size": 256, "num_attention_heads": 4,
                "intermediate_size": 1024, "pad_token_id": 0},
        tokenizer=word_pieces,
        specials=_BERT,
    ),
    System(name="mobilebert", config_class="MobileBertConfig", config={"vocab_size": 30522, "pad_token_id": 0},
           tokenizer=word_pieces, specials=_BERT),
    _bert("tinybert-4", 30522, hidden_size=312, num_hidden_layers=4, intermediate_size=1200),
    System(
        name="deberta-v3-base",
        config_class="DebertaV2Config",
        config={"vocab_size": 128100, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
                "intermediate_size": 3072, "relative_attention": True, "position_buckets": 256,
                "max_relative_positions": -1, "pos_att_type": ["p2c", "c2p"], "norm_rel_ebd": "layer_norm",
                "position_biased_input": False, "share_att_key": True, "type_vocab_size": 0, "layer_norm_eps": 1e-7,
                "pooler_hidden_size": 768, "pad_token_id": 0},
        tokenizer=unigram,
        specials=_DEBERTA,
    ),
    _roberta("xlm-roberta-base", "XLMRobertaConfig", 250002, unigram),
    _bert("mbert", 119547),
    _bert("scibert", 31090),
    _bert("clinicalbert", 28996),
)  # fmt: skip
TRANSPLANTS: tuple[str, ...] = tuple(f"minilm-as-{family}" for family in MOVES)
NAMES: tuple[str, ...] = (*(system.name for system in SYSTEMS), *TRANSPLANTS)


def write_checkpoint(name: str, folder: Path, texts: tuple[str, ...]) -> None:
    """Writes the checkpoint folder of a system, the same one every time.

    Args:
        name: one of ``NAMES``.
        folder: where to.
        texts: sentences that the tokenizer must know whole words of; they stand at the far end of the vocabulary.
    """
    if name in TRANSPLANTS:
        minilm_as(name.removeprefix("minilm-as-"), folder)
        return
    write_system(next(system for system in SYSTEMS if system.name == name), folder, texts)


def write_system(system: System, folder: Path, texts: tuple[str, ...]) -> None:
    """Writes the checkpoint folder of one system; see :func:`write_checkpoint`."""
    _random_classifier(system).save_pretrained(folder)
    tokenizer = system.tokenizer(system.config["vocab_size"], system.specials, texts)
    _with_names(tokenizer, system.specials).save_pretrained(folder)


def _random_classifier(system: System) -> Any:
    """Returns a classifier whose norms and biases are not their initial ones and zeros, which a converter leaves out.

    Matrices keep their fresh spread of 0.02. With that of trained ones (0.04) twelve random layers amplify rounding as
    trained ones do not: half precision of the weights alone then costs ten times what it costs a trained model.
    """
    import torch
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, system.config_class)(**system.config)
    model = transformers.AutoModelForSequenceClassification.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def _with_names(tokenizer: Any, specials: Specials) -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, cls_token=specials.cls, sep_token=specials.sep, pad_token=specials.pad,
        unk_token=specials.unk, mask_token=specials.mask, model_max_length=512,
    )  # fmt: skip
