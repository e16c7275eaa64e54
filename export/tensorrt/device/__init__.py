"""What runs on the device itself: standard library and that device's own TensorRT, nothing of ours."""
