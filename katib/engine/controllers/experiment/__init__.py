"""The Experiment controller: the number of trials, the best one, and completion."""
