"""The pods of trials: what they say, whose they are, and what is done about those that miss their collector."""
