"""The processes that suggest and stop: which there are, starting, watching and stopping them.

Belongs here: suggestion and early stopping services of this machine, ours and those a user plugs in. Does not belong
here: what they say on the wire (`katib.rpc`) and what is done with it (`katib.controllers`). Imports of gRPC and
pydantic are late, so that a service can be started before the process that needs it has loaded them itself.
"""
