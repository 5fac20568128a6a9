"""Local processes that never outlive us: the guard that starts them, their groups, their remains after a crash.

Belongs here: starting, signaling, reaping processes. Does not belong here: jobs, pods, services, or any kind of ours.
Imports only `katib.errors`.
"""
