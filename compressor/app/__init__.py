"""Where all parts meet: stages are registered, the Python API and the command line."""

import os

# Read when torch is loaded: what its C++ side warns of is for those who write training loops.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
