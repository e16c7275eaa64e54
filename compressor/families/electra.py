"""ELECTRA (the discriminator); its embeddings may be narrower than its layers."""

from compressor.families.adapter import FamilyAdapter
from compressor.families.bert import BERT_LAYER

ADAPTER = FamilyAdapter(
    model_type="electra",
    layers="electra.encoder.layer",
    layer=BERT_LAYER,
    word_embeddings="electra.embeddings.word_embeddings",
    position_embeddings="electra.embeddings.position_embeddings",
    has_token_types=True,
    width_keys=("embedding_size",),
)
