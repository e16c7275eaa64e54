"""A small student learns from a trained teacher: its logits, its hidden states, the labels."""
