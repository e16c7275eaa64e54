"""The ``onnx-qnn`` format: a graph compiled ahead of time for the NPU of one Snapdragon, and run in its simulator."""
