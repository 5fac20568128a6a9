"""BOHB: the brackets of Hyperband, with configurations from a model instead of random ones."""
