"""BOHB: the brackets of Hyperband, with configurations from a model in place of random ones."""
