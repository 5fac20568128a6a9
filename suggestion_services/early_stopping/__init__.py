"""Early stopping of running trials: what all algorithms share, and the algorithms.

Belongs here: curves, the interface of an algorithm, its gRPC shell, and every algorithm that Katib does not have. An
algorithm is pure: curves in, verdicts out, in a notebook as behind gRPC. Does not belong here: ending a trial, which is
the controllers' business, and reading what a program prints (`metrics_collector`).
"""

from suggestion_services.early_stopping.algorithm import StoppingAlgorithm, StoppingProblem, Verdict
from suggestion_services.early_stopping.curves import Curve, Point, Standing
from suggestion_services.early_stopping.replay import replay

__all__ = ["Curve", "Point", "Standing", "StoppingAlgorithm", "StoppingProblem", "Verdict", "replay"]
