"""TensorRT: a strongly typed ONNX file, and what builds an engine from it on the device."""
