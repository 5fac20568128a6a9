"""The three controllers: decide (`plan.py`, pure) and act (`reconciler.py`, thin).

Belongs here: what Experiment, Suggestion and Trial do. They know the object store and their own `ports.py`, never which
home they run in. Does not belong here: SQL, gRPC, Kubernetes, HTTP.
"""
