"""The two homes of trials: one machine and a Kubernetes cluster."""
