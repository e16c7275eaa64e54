"""The tflite format."""
