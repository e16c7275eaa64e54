"""MobileBERT: thin layers with bottlenecks, stacked feed-forward networks, NoNorm instead of LayerNorm."""

from dataclasses import replace

from compressor.families.adapter import FamilyAdapter
from compressor.families.bert import BERT_LAYER

ADAPTER = FamilyAdapter(
    model_type="mobilebert",
    layers="mobilebert.encoder.layer",
    layer=replace(BERT_LAYER, more_feed_forward="ffn"),
    word_embeddings="mobilebert.embeddings.word_embeddings",
    position_embeddings="mobilebert.embeddings.position_embeddings",
    has_token_types=True,
    attention_width_key="true_hidden_size",
    projects_layer_input=False,
)
