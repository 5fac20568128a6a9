"""The controllers: decide (`plan.py`, pure) and act (`reconciler.py`, thin).

Belongs here: the behaviour of Experiment, Suggestion and Trial. They know the object store and their own `ports.py`,
never the home they run in. Does not belong here: SQL, gRPC, Kubernetes, HTTP.
"""
