"""Sentences to per-run times to statistics to verdict to report."""
