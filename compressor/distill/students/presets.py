"""Published shapes of small students, by name; vocabulary, labels and number of tokens come from the teacher."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

PresetName = Literal["tinybert-4", "tinybert-6", "distilbert", "mobilebert", "albert", "electra-small"]


@dataclass(frozen=True)
class Preset:
    """A family and what its transformers config says of the shape."""

    family: str
    config: Mapping[str, int | float | str | bool]


PRESETS: Mapping[PresetName, Preset] = {
    "tinybert-4": Preset(
        "bert",
        {"num_hidden_layers": 4, "hidden_size": 312, "num_attention_heads": 12, "intermediate_size": 1200},
    ),
    "tinybert-6": Preset(
        "bert",
        {"num_hidden_layers": 6, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
    ),
    "distilbert": Preset("distilbert", {"n_layers": 6, "dim": 768, "n_heads": 12, "hidden_dim": 3072}),
    "mobilebert": Preset(
        "mobilebert",
        {
            "num_hidden_layers": 24, "hidden_size": 512, "embedding_size": 128, "num_attention_heads": 4,
            "intermediate_size": 512, "intra_bottleneck_size": 128, "true_hidden_size": 128,
            "num_feedforward_networks": 4, "key_query_shared_bottleneck": True, "use_bottleneck": True,
            "use_bottleneck_attention": False, "normalization_type": "no_norm", "trigram_input": True,
            "hidden_act": "relu",
            "classifier_activation": False,
        },
    ),
    "albert": Preset(
        "albert",
        {
            "num_hidden_layers": 12, "num_hidden_groups": 1, "inner_group_num": 1, "hidden_size": 768,
            "embedding_size": 128, "num_attention_heads": 12, "intermediate_size": 3072, "hidden_act": "gelu_new",
            "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "classifier_dropout_prob": 0.1,
        },
    ),
    "electra-small": Preset(
        "electra",
        {
            "num_hidden_layers": 12, "hidden_size": 256, "embedding_size": 128, "num_attention_heads": 4,
            "intermediate_size": 1024,
        },
    ),
}  # fmt: skip
"""Sources, each paper and the config published with its weights:

* ``tinybert-4``, ``tinybert-6``: Jiao et al. 2020, section 4.2 (TinyBERT4: M=4, d=312, d_i=1200, h=12; TinyBERT6: M=6,
  d=768, d_i=3072, h=12); ``huawei-noah/TinyBERT_General_4L_312D`` and ``_6L_768D``.
* ``distilbert``: Sanh et al. 2019, section 3 (BERT-base with half the layers, without token types and pooler);
  ``distilbert-base-uncased``.
* ``mobilebert``: Sun et al. 2020, table 1 (h_embedding=128, h_inter=512, h_intra=128, 4 heads, 4 FFN, 24 blocks);
  ``google/mobilebert-uncased``.
* ``albert``: Lan et al. 2020, table 1 (base: 12 layers of one group, H=768, E=128); ``albert-base-v2``, which has no
  dropout in its layers.
* ``electra-small``: Clark et al. 2020, table 6 (12 layers, 256 hidden, FFN 1024, 4 heads, embedding 128);
  ``google/electra-small-discriminator``.
"""
