"""Suggestion and early stopping services as processes of this machine: starting, watching and stopping them.

Belongs here: built-in and plugged-in services, as processes. Does not belong here: the catalog of services
(`katib.engine.algorithm_services`) and their protocol (`katib.wire.rpc`). gRPC and pydantic are imported late, so that
a service can be started before the process that needs it has loaded them itself.
"""
