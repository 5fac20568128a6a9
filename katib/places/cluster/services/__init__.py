"""The services of experiments in a cluster: Deployments and Services of their own, or addresses outside of it.

    directory.py ---> plan.py (what has to be there) ---> objects.py (create, delete) ---> ObjectStore
         ^                                                                                    |
         |                                                        informers of Deployments and Services
         +--- watch.py (is it available? does it answer? what holds it up? since when?) <-----+

Belongs here: which objects serve an experiment and how they are doing. Does not belong here: how a cluster is spoken
to.
"""
