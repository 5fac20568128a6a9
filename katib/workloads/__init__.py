"""What a trial runs as: a Job as local processes now, Kubernetes jobs and custom resources later.

Belongs here: running a job object and writing its true status. Does not belong here: trials, metrics, storage.
"""
