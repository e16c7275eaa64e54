"""The four values that travel (checkpoint, artifact, measurement, verdict) and what keeps them honest on disk."""
