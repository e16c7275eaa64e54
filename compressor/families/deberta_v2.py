"""DeBERTa-v2 and v3: disentangled attention over relative positions; usually no token types."""

from compressor.families.adapter import FamilyAdapter, LayerPaths

ADAPTER = FamilyAdapter(
    model_type="deberta-v2",
    layers="deberta.encoder.layer",
    layer=LayerPaths(
        query="attention.self.query_proj",
        key="attention.self.key_proj",
        value="attention.self.value_proj",
        attention_output="attention.output.dense",
        intermediate="intermediate.dense",
        output="output.dense",
    ),
    word_embeddings="deberta.embeddings.word_embeddings",
    position_embeddings=None,
    has_token_types=True,
)
