"""Early stopping of running trials: the shared parts, and the algorithms.

Belongs here: curves, the interface of an algorithm, its gRPC servicer, and every algorithm that Katib does not have. An
algorithm is pure: curves in, verdicts out, in a notebook as behind gRPC. Does not belong here: ending a trial (the
controllers), and parsing the output of a program (`metrics_collector`).
"""

from suggestion_services.early_stopping.algorithm import StoppingAlgorithm, StoppingProblem, StoppingVerdict
from suggestion_services.early_stopping.curves import CostCurve, CurvePoint, CurveState
from suggestion_services.early_stopping.replay import replay
