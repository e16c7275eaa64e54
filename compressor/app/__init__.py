"""Where all parts meet: stages are registered, the Python API and the command line."""
