"""What the API server asks before it stores an Experiment or a pod. Every replica answers."""
