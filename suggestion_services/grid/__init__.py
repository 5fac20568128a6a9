"""Grid search."""
