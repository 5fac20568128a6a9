"""The algorithm `darts`: the settings and operations of a search that happens inside one training."""
