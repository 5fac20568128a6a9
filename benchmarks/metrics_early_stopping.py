"""What early stopping saves: the digits example, 30 epochs, 60 random trials, three seeds, four trials at a time.

All curves are computed once, each trial to its end. Then every algorithm decides over them as they would have come:
four trials at a time, an epoch each per tick, and the slot of a stopped trial is filled at once. Prints the share of
the epochs that were run and the best accuracy, against the same search without early stopping. Targets: `asha` at most
40 % of the epochs and at most 0.5 % below the best accuracy, `medianstop` at most 70 %.

Run: python -m benchmarks.metrics_early_stopping [--trials 60] [--epochs 30] [--seeds 3] [--parallel 4] [--curves FILE]
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

from suggestion_services.algorithms import find_entry
from suggestion_services.base.settings import Settings
from suggestion_services.early_stopping import Curve, Point, Standing, StoppingAlgorithm, StoppingProblem

Curves = list[list[float]]

ALGORITHMS: tuple[tuple[str, dict[str, float], float | None], ...] = (
    ("asha", {}, 0.4),
    ("asha", {"reduction_factor": 2}, None),
    ("asha", {"min_resource": 3}, None),
    ("hyperband", {"max_resource": 30}, None),
    ("medianstop", {}, 0.7),
    ("patience", {}, None),
    ("threshold", {"bound": 0.8, "step": 5}, None),
)
MOST_LOST = 0.005


class Outcome(NamedTuple):
    """What a search took and what it found."""

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


def simulate(algorithm: StoppingAlgorithm | None, recorded: Curves, parallel: int) -> Outcome:
    """Run the trials in their order; return the epochs that were run and the best accuracy that was seen."""
    waiting = list(enumerate(recorded))[::-1]
    running: dict[str, list[float]] = {}
    curves: dict[str, Curve] = {}
    epochs = 0
    while waiting or running:
        while waiting and len(running) < parallel:
            i, values = waiting.pop()
            running[f"trial-{i:03}"] = values
            curves[f"trial-{i:03}"] = Curve(f"trial-{i:03}")
        for name, values in list(running.items()):  # one after the other, as readings come
            done = len(curves[name])
            curve = curves[name].extended([Point(done + 1, -values[done])])
            epochs += 1
            if len(curve) == len(values):
                curve = curve.ended(Standing.SUCCEEDED)
                del running[name]
            curves[name] = curve
            for verdict in [] if algorithm is None else algorithm.judge(list(curves.values())):
                curves[verdict.trial_name] = curves[verdict.trial_name].ended(Standing.STOPPED)
                del running[verdict.trial_name]
    return Outcome(epochs, max(-curve.best for curve in curves.values()))


def algorithm_of(name: str, settings: dict[str, float]) -> StoppingAlgorithm:
    found: StoppingAlgorithm = find_entry(name, early_stopping=True).load()(
        StoppingProblem("accuracy", True, Settings(settings))
    )
    return found


def compare(all_curves: Sequence[Curves], parallel: int) -> bool:
    """Print a row for each algorithm and return whether all targets are met in every seed."""
    fine = True
    references = [simulate(None, curves, parallel) for curves in all_curves]
    accuracies = ", ".join(f"{reference.best:.4f}" for reference in references)
    print(f"without early stopping: {references[0].epochs} epochs, best accuracy {accuracies}")
    for name, settings, target in ALGORITHMS:
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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--parallel", type=int, default=4)
    parser.add_argument("--curves", type=Path, help="keep the curves in this file, and take them from there")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # a diverging network is part of the search
    if options.curves and options.curves.exists():
        recorded = json.loads(options.curves.read_text())
    else:
        recorded = [record(seed, options.trials, options.epochs) for seed in range(options.seeds)]
        if options.curves:
            options.curves.write_text(json.dumps(recorded))
    return 0 if compare(recorded, options.parallel) else 1


if __name__ == "__main__":
    sys.exit(main())
