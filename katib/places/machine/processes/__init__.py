"""Local processes: the guard that starts them, programs kept for the next engine, and cleanup after a crash.

Belongs here: starting, signaling, reaping, handing over. Does not belong here: jobs, pods, services, any kind. Imports
only `katib.errors`.
"""
