"""The OptimizationJob controller: creates the Experiment and maintains the status."""
