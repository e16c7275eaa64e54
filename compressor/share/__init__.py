"""Fewer stored weights for the same computation: layers shared by several depths, embeddings as two thin matrices."""
