"""Parts of a trained encoder are taken out for good: heads, neurons, layers, channels; or single weights set to zero."""
