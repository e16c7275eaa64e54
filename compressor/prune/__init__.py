"""Parts of a trained encoder are taken out: heads, neurons, layers, channels; or single weights are set to zero."""
