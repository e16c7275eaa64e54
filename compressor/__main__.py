"""``python -m compressor``."""

from compressor.app.cli import main

main()
