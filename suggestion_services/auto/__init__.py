"""The choice of an algorithm by what is searched."""
