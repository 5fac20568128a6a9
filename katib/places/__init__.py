"""The two homes where trials run: one machine and a Kubernetes cluster."""
