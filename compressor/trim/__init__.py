"""A vocabulary cut down to what a corpus needs, with the tokenizer and the embedding rows that belong to it."""
