"""Compress a BERT-family model and prove the result on the device it is for."""
