"""The tensorrt format."""
