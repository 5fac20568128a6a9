"""Features of experiments: one package each, listed in `listed`."""
