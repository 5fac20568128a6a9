"""Searches whose hopeless trials early stopping by `asha` ends: the final loss after a budget of trials.

    python -m benchmarks.stopped [--seeds 5] [--trials 60] [--problems 'network-*'] [--searches gp,tpe,random]

The trainings of `benchmarks.multi_fidelity`, of up to 27 epochs, run two at a time, an epoch of each in turn, and are
judged after each. Printed are the median over seeds of the least loss, and of the epochs that were run.
"""

from __future__ import annotations

import fnmatch
import hashlib
import warnings
from dataclasses import replace
from statistics import median

from benchmarks.multi_fidelity import FULL, TASKS, Curve, FidelityTask
from benchmarks.search.own import Searching, parameter
from benchmarks.support import options
from suggestion_services.base import PastTrial, TrialOutcome
from suggestion_services.base.settings import Settings
from suggestion_services.early_stopping.algorithm import StoppingProblem
from suggestion_services.early_stopping.asha import AshaStopping
from suggestion_services.early_stopping.curves import CostCurve, CurvePoint, CurveState

_AT_ONCE = 2


def least_loss(search: str, task: FidelityTask, seed: int, trials: int) -> tuple[float, int]:
    """Return the least loss of all trials, the true one of a synthetic task, and the number of epochs."""
    searching = Searching(
        search, [*map(parameter, task.variables)], {"random_state": seed}, budget=trials, parallel=_AT_ONCE
    )
    judge = AshaStopping(StoppingProblem("loss", maximize=False, settings=Settings({})))
    curves: dict[str, CostCurve] = {}
    running: dict[str, Curve] = {}
    past: dict[str, PastTrial] = {}

    def end(name: str, state: CurveState) -> None:
        del running[name]
        curve = curves[name] = curves[name].ended(state)
        stopped_at = curve.resource if state is CurveState.STOPPED else None
        measured = TrialOutcome.MEASURED
        past[name] = replace(past[name], outcome=measured, objective=curve.best, stopped_at=stopped_at)

    while len(past) < trials or running:
        while len(past) < trials and len(running) < _AT_ONCE:
            searching.trials = [past[name] for name in sorted(past)]
            (proposal,) = searching.suggest()
            name = hashlib.sha256(f"{seed} {len(past)}".encode()).hexdigest()[:8]
            past[name] = PastTrial(name, TrialOutcome.PENDING, proposal.assignments, labels=proposal.labels)
            running[name] = task.start({v.name: float(proposal.assignments[v.name]) for v in task.variables}, seed)
            curves[name] = CostCurve(name)
        for name, loss in list(running.items()):
            epoch = curves[name].resource + 1
            curves[name] = curves[name].extended([CurvePoint(epoch, loss(epoch))])
            if epoch == FULL:
                end(name, CurveState.SUCCEEDED)
        for verdict in judge.judge(list(curves.values())):
            end(verdict.trial_name, CurveState.STOPPED)
    best = min(past.values(), key=lambda trial: trial.objective)
    point = {v.name: float(best.assignments[v.name]) for v in task.variables}
    return task.final(point) if task.final else best.objective, sum(curve.resource for curve in curves.values())


def main() -> None:
    given = options(__doc__, seeds=5, trials=60, problems="*-digits", searches="gp,tpe,random")
    warnings.simplefilter("ignore")
    for name, task in TASKS.items():
        for search in given.searches.split(",") if fnmatch.fnmatch(name, given.problems) else ():
            found = [least_loss(search, task, seed, given.trials) for seed in range(given.seeds)]
            losses, epochs = zip(*found, strict=True)
            print(f"{name:20}{search:10}{median(losses):10.4f}{median(epochs):8.0f} epochs", flush=True)


if __name__ == "__main__":
    main()
