"""Shared parts of all algorithms: their interface, and the server that puts one behind gRPC.

Belongs here: `Algorithm` and its inputs, settings, the servicers, sessions. Does not belong here: anything that only
one algorithm needs.
"""

from suggestion_services.base.algorithm import Algorithm, PastTrial, Problem, StatelessAlgorithm, TrialOutcome
from suggestion_services.base.settings import Settings
