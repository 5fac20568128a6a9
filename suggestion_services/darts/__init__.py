"""The algorithm `darts`: the settings and operations of a search inside one training."""
