"""ALBERT: one stored layer applied many times, and factorised embeddings."""

from compressor.families.adapter import FamilyAdapter, LayerPaths

ADAPTER = FamilyAdapter(
    model_type="albert",
    layers="albert.encoder.albert_layer_groups.0.albert_layers",
    layer=LayerPaths(
        query="attention.query",
        key="attention.key",
        value="attention.value",
        attention_output="attention.dense",
        intermediate="ffn",
        output="ffn_output",
    ),
    word_embeddings="albert.embeddings.word_embeddings",
    position_embeddings="albert.embeddings.position_embeddings",
    has_token_types=True,
    shares_layers=True,
    layer_groups="albert.encoder.albert_layer_groups",
    group_layers="albert_layers",
)
