"""Services of experiments in a cluster: Deployments and Services of their own, or external addresses.

    directory.py ---> plan.py (desired objects) ---> objects.py (create, delete) ---> ObjectStore
         ^                                                                                    |
         |                                                        informers of Deployments and Services
         +--- watch.py (available? healthy? blocked by what, and since when?) <---------------+

Belongs here: the objects that serve an experiment, and their state. Does not belong here: access to a cluster.
"""
