"""DistilBERT: BERT without token types and without a pooler, under names of its own."""

from compressor.families.adapter import FamilyAdapter, LayerPaths

ADAPTER = FamilyAdapter(
    model_type="distilbert",
    layers="distilbert.transformer.layer",
    layer=LayerPaths(
        query="attention.q_lin",
        key="attention.k_lin",
        value="attention.v_lin",
        attention_output="attention.out_lin",
        intermediate="ffn.lin1",
        output="ffn.lin2",
    ),
    word_embeddings="distilbert.embeddings.word_embeddings",
    position_embeddings="distilbert.embeddings.position_embeddings",
    has_token_types=False,
    hidden_size_key="dim",
    layers_key="n_layers",
    heads_key="n_heads",
    intermediate_key="hidden_dim",
)
