"""The one controller that works: how it is chosen, what keeps others from acting, and all that it runs.

Belongs here: the Lease, the fence, and the wiring of what only a leader does. Does not belong here: what every replica
does (webhooks, probes).
"""
