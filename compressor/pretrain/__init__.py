"""Learning from text without labels: masked words, replaced words, the order of sentences."""
