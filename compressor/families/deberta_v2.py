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
        more_projections=("attention.self.pos_key_proj", "attention.self.pos_query_proj"),
    ),
    word_embeddings="deberta.embeddings.word_embeddings",
    position_embeddings=None,
    has_token_types=True,
    plain_scores=False,
    projects_layer_input=False,
    width_keys=("pooler_hidden_size", "embedding_size"),
)
