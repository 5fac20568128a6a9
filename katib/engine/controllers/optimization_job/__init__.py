"""OptimizationJob: its Experiment, and its status."""
