"""ONNX: one clean graph of standard operators, and its FP16 and INT8 copies."""
