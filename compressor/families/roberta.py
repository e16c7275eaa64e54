"""RoBERTa: position ids start at 2, so 514 positions hold 512 tokens."""

from compressor.families.adapter import FamilyAdapter
from compressor.families.bert import BERT_LAYER

ADAPTER = FamilyAdapter(
    model_type="roberta",
    layers="roberta.encoder.layer",
    layer=BERT_LAYER,
    word_embeddings="roberta.embeddings.word_embeddings",
    position_embeddings="roberta.embeddings.position_embeddings",
    has_token_types=True,
    position_offset=2,
)
