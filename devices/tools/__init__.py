"""Benchmark programs people already have on their devices, and what their output says."""
