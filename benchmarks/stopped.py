"""Searches whose hopeless trials early stopping by `asha` ends: the final loss after a budget of trials.

    python -m benchmarks.stopped [--seeds 5] [--first 0] [--trials 60] [--problems 'network-*']
        [--searches gp,tpe,random]
    python -m benchmarks.stopped --most 540 [--searches gp,tpe,asha,Optuna]

The trainings of `benchmarks.multi_fidelity`, of up to 27 epochs, run two at a time, an epoch of each in turn, and are
judged after each. Printed are the median over seeds of the least loss, and of the epochs that were run. With `--most`
it is the median, the mean (geometric) and each number of epochs until a full training has the value of random search,
one trial at a time; then `asha`, `Optuna` and the other rows of that benchmark are searches as well.
"""

from __future__ import annotations

import fnmatch
import hashlib
import warnings
from collections.abc import Iterator
from dataclasses import replace
from statistics import geometric_mean, median

from benchmarks.multi_fidelity import FULL, GOALS, SEARCHES, TASKS, Curve, FidelityTask, epochs_to
from benchmarks.search.own import Searching, parameter
from benchmarks.support import options
from suggestion_services.base import PastTrial, TrialOutcome
from suggestion_services.base.settings import Settings
from suggestion_services.early_stopping.algorithm import StoppingProblem
from suggestion_services.early_stopping.asha import AshaStopping
from suggestion_services.early_stopping.curves import CostCurve, CurvePoint, CurveState

_AT_ONCE = 2

Ended = tuple[int, PastTrial, float]


def ended(
    search: str, task: FidelityTask, seed: int, trials: int | None = None, at_once: int = _AT_ONCE
) -> Iterator[Ended]:
    """Yield the epochs so far, a trial that has ended, and its last loss."""
    searching = Searching(
        search, [*map(parameter, task.variables)], {"random_state": seed}, budget=trials, parallel=at_once
    )
    judge = AshaStopping(StoppingProblem("loss", maximize=False, settings=Settings({})))
    curves: dict[str, CostCurve] = {}
    running: dict[str, Curve] = {}
    past: dict[str, PastTrial] = {}

    def end(name: str, state: CurveState) -> Ended:
        del running[name]
        curve = curves[name] = curves[name].ended(state)
        stopped_at = curve.resource if state is CurveState.STOPPED else None
        measured = TrialOutcome.MEASURED
        trial = past[name] = replace(past[name], outcome=measured, objective=curve.best, stopped_at=stopped_at)
        return sum(curve.resource for curve in curves.values()), trial, curve.costs[-1]

    while running or trials is None or len(past) < trials:
        while (trials is None or len(past) < trials) and len(running) < at_once:
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
                yield end(name, CurveState.SUCCEEDED)
        for verdict in judge.judge(list(curves.values())):
            yield end(verdict.trial_name, CurveState.STOPPED)


def value_of(task: FidelityTask, trial: PastTrial, loss: float) -> float:
    """Return the true value of a trial of a synthetic task, and the loss of any other."""
    return task.final({v.name: float(trial.assignments[v.name]) for v in task.variables}) if task.final else loss


def least_loss(search: str, task: FidelityTask, seed: int, trials: int) -> tuple[float, int]:
    """Return the value of the trial with the least loss, and the number of epochs."""
    found = list(ended(search, task, seed, trials))
    best = min((trial for _, trial, _ in found), key=lambda trial: trial.objective)
    return value_of(task, best, best.objective), found[-1][0]


def epochs_of(search: str, name: str, seed: int, most: int) -> int:
    """Return the epochs until a full training has the value of random search, at most `most`."""
    if search in SEARCHES:
        return epochs_to(GOALS[name], SEARCHES[search](TASKS[name], seed, most), most)
    task, runs = TASKS[name], ended(search, TASKS[name], seed, at_once=1)
    full = ((epochs, value_of(task, trial, loss)) for epochs, trial, loss in runs if trial.stopped_at is None)
    return epochs_to(GOALS[name], full, most)


def main() -> None:
    given = options(__doc__, seeds=5, first=0, trials=60, most=0, problems="*-digits", searches="gp,tpe,random")
    warnings.simplefilter("ignore")
    for name, task in TASKS.items():
        for search in given.searches.split(",") if fnmatch.fnmatch(name, given.problems) else ():
            seeds = range(given.first, given.first + given.seeds)
            if given.most:
                all_epochs = [epochs_of(search, name, seed, given.most) for seed in seeds]
                average = geometric_mean(all_epochs)
                print(f"{name:20}{search:10}{median(all_epochs):8.0f}{average:8.0f}  {all_epochs}", flush=True)
                continue
            losses, epochs = zip(*(least_loss(search, task, seed, given.trials) for seed in seeds), strict=True)
            print(f"{name:20}{search:10}{median(losses):10.4f}{median(epochs):8.0f} epochs", flush=True)


if __name__ == "__main__":
    main()
