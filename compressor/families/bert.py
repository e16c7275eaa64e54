"""BERT, and so TinyBERT, MiniLM, mBERT, SciBERT and ClinicalBERT."""

from compressor.families.adapter import FamilyAdapter, LayerPaths

BERT_LAYER = LayerPaths(
    query="attention.self.query",
    key="attention.self.key",
    value="attention.self.value",
    attention_output="attention.output.dense",
    intermediate="intermediate.dense",
    output="output.dense",
)

ADAPTER = FamilyAdapter(
    model_type="bert",
    layers="bert.encoder.layer",
    layer=BERT_LAYER,
    word_embeddings="bert.embeddings.word_embeddings",
    position_embeddings="bert.embeddings.position_embeddings",
    has_token_types=True,
)
