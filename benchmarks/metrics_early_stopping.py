"""Savings by early stopping: the digits example, 30 epochs, and power laws of 300 epochs; four trials at a time.

60 random trials, three seeds. All curves are computed once, each trial to its end. Then every algorithm judges them as
if they were running: four trials at a time, an epoch each per tick, and the slot of a stopped trial is filled at once.
Optuna's `MedianPruner` judges the same curves. Prints the share of the epochs that were run and the best accuracy,
against the same search without early stopping. Targets: at most 0.5 % below the best accuracy, and of the epochs `asha`
at most 40 %, `medianstop` at most 70 %, `median` at most 35 % of the power laws.

Run: python -m benchmarks.metrics_early_stopping [--trials 60] [--epochs 30] [--seeds 3] [--parallel 4] [--curves FILE]
The file stores the curves, and later runs read them from there.
"""

from __future__ import annotations

import json
import random
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import optuna
from optuna.trial import TrialState

from benchmarks.support import options
from suggestion_services.algorithms import find_entry
from suggestion_services.base.settings import Settings
from suggestion_services.early_stopping import CostCurve, CurvePoint, CurveState, StoppingAlgorithm, StoppingProblem

Curves = list[list[float]]

ALGORITHMS: tuple[tuple[str, dict[str, float], float | None], ...] = (
    ("asha", {}, 0.4),
    ("asha", {"reduction_factor": 2}, None),
    ("asha", {"min_resource": 3}, None),
    ("hyperband", {"max_resource": 30}, None),
    ("median", {}, None),
    ("medianstop", {}, 0.7),
    ("patience", {}, None),
    ("threshold", {"bound": 0.8, "step": 5}, None),
)
POWER_LAWS: tuple[tuple[str, dict[str, float], float | None], ...] = (
    ("asha", {}, None),
    ("median", {}, 0.35),
    ("median", {"percentile": 75}, None),
    ("medianstop", {}, None),
)
LONG = 300
"""Epochs of the power laws."""
MOST_LOST = 0.005


class StoppingOutcome(NamedTuple):
    """Epochs and best accuracy of a search."""

    epochs: int
    best: float


def record(seed: int, trials: int, epochs: int) -> Curves:
    """Train random configurations of the example's search space and return their accuracies after each epoch."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
    from sklearn.neural_network import MLPClassifier

    images, labels = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(images / 16.0, labels, test_size=0.3, random_state=0)
    source = random.Random(seed)
    curves = []
    for _ in range(trials):
        model = MLPClassifier(
            hidden_layer_sizes=(source.randrange(16, 129, 16),),
            solver="sgd",
            learning_rate_init=5e-4 * 1000 ** source.random(),
            momentum=source.uniform(0.5, 0.99),
            batch_size=source.choice((16, 32, 64, 128)),
            random_state=0,
        )
        curve = []
        for _ in range(epochs):
            model.partial_fit(train_x, train_y, classes=range(10))
            curve.append(float(model.score(test_x, test_y)))
        curves.append(curve)
    return curves


def power_laws(seed: int, trials: int, epochs: int) -> Curves:
    """Return accuracies that approach each trial's limit with a power of the epochs, with some noise."""
    source = random.Random(seed)
    curves = []
    for _ in range(trials):
        reached, fall, speed = 1 - source.uniform(0.02, 0.5), source.uniform(0.2, 0.8), source.uniform(0.3, 1.2)
        curves.append([reached - fall * t**-speed + source.gauss(0, 0.003) for t in range(1, epochs + 1)])
    return curves


def simulate_optuna(recorded: Curves, parallel: int) -> StoppingOutcome:
    """Run the trials in order under Optuna's median pruner with its defaults."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", pruner=optuna.pruners.MedianPruner())
    waiting, epochs, best = list(recorded)[::-1], 0, 0.0
    running: list[tuple[optuna.Trial, list[float]]] = []
    while waiting or running:
        while waiting and len(running) < parallel:
            running.append((study.ask(), waiting.pop()[::-1]))
        for trial, left in list(running):
            epochs, value = epochs + 1, left.pop()
            best = max(best, value)
            trial.report(value, len(recorded[trial.number]) - len(left))
            if left and not trial.should_prune():
                continue
            study.tell(trial, None if left else value, state=TrialState.PRUNED if left else TrialState.COMPLETE)
            running.remove((trial, left))
    return StoppingOutcome(epochs, best)


def simulate(algorithm: StoppingAlgorithm | None, recorded: Curves, parallel: int) -> StoppingOutcome:
    """Run the trials in order; return the epochs that were run and the best observed accuracy."""
    waiting = list(enumerate(recorded))[::-1]
    running: dict[str, list[float]] = {}
    curves: dict[str, CostCurve] = {}
    epochs = 0
    while waiting or running:
        while waiting and len(running) < parallel:
            i, values = waiting.pop()
            running[f"trial-{i:03}"] = values
            curves[f"trial-{i:03}"] = CostCurve(f"trial-{i:03}")
        for name, values in list(running.items()):  # one after the other, as readings arrive
            if name not in running:
                continue  # stopped by the reading of another one
            done = len(curves[name])
            curve = curves[name].extended([CurvePoint(done + 1, -values[done])])
            epochs += 1
            if len(curve) == len(values):
                curve = curve.ended(CurveState.SUCCEEDED)
                del running[name]
            curves[name] = curve
            for verdict in [] if algorithm is None else algorithm.judge(list(curves.values())):
                curves[verdict.trial_name] = curves[verdict.trial_name].ended(CurveState.STOPPED)
                del running[verdict.trial_name]
    return StoppingOutcome(epochs, max(-curve.best for curve in curves.values()))


def algorithm_of(name: str, settings: dict[str, float]) -> StoppingAlgorithm:
    found: StoppingAlgorithm = find_entry(name, early_stopping=True).load()(
        StoppingProblem("accuracy", True, Settings(settings))
    )
    return found


def compare(
    all_curves: Sequence[Curves], parallel: int, algorithms: Sequence[tuple[str, dict[str, float], float | None]]
) -> bool:
    """Print a row for each algorithm and one of Optuna; return whether all targets are met in every seed."""
    fine = True
    references = [simulate(None, curves, parallel) for curves in all_curves]
    accuracies = ", ".join(f"{reference.best:.4f}" for reference in references)
    print(f"without early stopping: {references[0].epochs} epochs, best accuracy {accuracies}")
    for name, settings, target in (*algorithms, ("Optuna's MedianPruner", {}, None)):
        if name.startswith("Optuna"):
            outcomes = [simulate_optuna(curves, parallel) for curves in all_curves]
        else:
            outcomes = [simulate(algorithm_of(name, settings), curves, parallel) for curves in all_curves]
        shares = [o.epochs / r.epochs for o, r in zip(outcomes, references, strict=True)]
        lost = [(r.best - o.best) / r.best for o, r in zip(outcomes, references, strict=True)]
        words = " ".join(f"{key}={value}" for key, value in settings.items())
        limit = "" if target is None else f" (target {target:.0%}, lost at most {MOST_LOST:.1%})"
        print(
            f"{name + ' ' + words:35} epochs {', '.join(f'{share:.1%}' for share in shares)}; "
            f"best accuracy lost {', '.join(f'{part:.2%}' for part in lost)}{limit}"
        )
        if target is not None:
            fine = fine and max(shares) <= target and max(lost) <= MOST_LOST
    return fine


def main() -> int:
    given = options(__doc__, trials=60, epochs=30, seeds=3, parallel=4, curves="")
    warnings.simplefilter("ignore")  # a diverging network is part of the search
    curves = Path(given.curves)
    if curves.is_file():
        recorded = json.loads(curves.read_text())
    else:
        recorded = [record(seed, given.trials, given.epochs) for seed in range(given.seeds)]
        if given.curves:
            curves.write_text(json.dumps(recorded))
    fine = compare(recorded, given.parallel, ALGORITHMS)
    print(f"\npower laws of {LONG} epochs")
    laws = [power_laws(seed, given.trials, LONG) for seed in range(given.seeds)]
    return 0 if compare(laws, given.parallel, POWER_LAWS) and fine else 1


if __name__ == "__main__":
    sys.exit(main())
