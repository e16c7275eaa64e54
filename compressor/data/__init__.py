"""Labelled text: reading it, generating the demo's, batching it."""
