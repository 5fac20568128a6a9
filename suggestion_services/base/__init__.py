"""What all algorithms share: their interface, and the server shell that puts one behind gRPC.

Belongs here: `Algorithm` and its inputs, settings, the servicers, sessions, the process. Does not belong here: anything
that only one algorithm needs.
"""

from suggestion_services.base.algorithm import Algorithm, Outcome, PastTrial, Problem, StatelessAlgorithm
from suggestion_services.base.settings import Settings

__all__ = ["Algorithm", "Outcome", "PastTrial", "Problem", "Settings", "StatelessAlgorithm"]
