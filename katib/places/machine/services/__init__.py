"""Suggestion and early stopping services as processes of this machine: starting, watching and stopping them.

Belongs here: services of ours and those a user plugs in, as processes. Does not belong here: which services there are
(`katib.engine.algorithm_services`) and what they say on the wire (`katib.wire.rpc`). Imports of gRPC and pydantic are
late, so that a service can be started before the process that needs it has loaded them itself.
"""
