"""The choice of an algorithm by the search space."""
