"""Local processes: the guard that starts them, what it keeps for the next engine, and their remains after a crash.

Belongs here: starting, signaling, reaping, handing over. Does not belong here: jobs, pods, services, any kind.
Imports only `katib.errors`.
"""
