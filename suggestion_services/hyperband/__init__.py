"""Hyperband: successive halving in brackets, with trials that get more of a resource from rung to rung."""
