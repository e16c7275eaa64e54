"""Checkpoint to artifact: one backend a format, the same steps and proofs for all."""
