"""What those see who operate the processes: probes, metrics for Prometheus, structured logs."""
