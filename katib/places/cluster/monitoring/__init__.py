"""What those see who operate the processes: probes, metrics for Prometheus, structured logs.

Belongs here: how something is shown. Does not belong here: what is counted or logged; the counting place says that.
"""
