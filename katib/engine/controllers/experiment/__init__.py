"""The Experiment controller: how many trials there should be, which is best, and when it is over."""
