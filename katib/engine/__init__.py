"""Decides and acts over a store: controllers with pure plans, level-triggered."""
