"""The onnx format."""
