"""Translations between the service and one foreign vocabulary each; no state, no rules."""
