"""Decides how to quantise; the export formats carry it out on the converted file."""
