"""Epochs that searches with a resource need for the results of random search with full trainings.

`python -m benchmarks.multi_fidelity [--split final] [--seeds 3] [--problems PATTERN] [--rows asha,bohb]` prints the
epochs until a full training, 27 epochs, has the value that random search reaches with forty of them: the median over
three seeds, in `GOALS`; `--goals` measures those again. A search that does not reach it within `--most` epochs counts
with that number. Promoted trials continue from their pause; one trial runs at a time.

`--resampled 240` gives each configuration the losses of a random one of 240, which are trained once. So searches that
draw by chance can be compared over a hundred seeds, and these alone. The goal is then a quantile of the 240, and
numbers of epochs are geometric means.

Problems: Hartmann's functions of three and six dimensions, whose heights are off by up to 0.4 with little training,
with four levels of noise; their value is the true one. And eight trainings with scikit-learn, with the loss on held-out
data as the value. The development split is for tuning algorithms, the final one for figures.

Rivals: `top-k` trains 27 random configurations for one epoch each, then in full, the best first; Optuna's TPESampler
with its SuccessiveHalvingPruner, which is ASHA, from one epoch with a reduction factor of 3 as ours. The limit for all
that draw random configurations is `foresight`: one epoch each, and all epochs for the first that reaches the goal.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import math
import statistics
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from random import Random
from typing import Any

import numpy as np

from benchmarks.search.own import Searching, parameter
from benchmarks.search.problems import Variable, doubles
from benchmarks.search.searches import suggested, value_at
from benchmarks.warm_start import hartmann

FULL = 27
TRAININGS = 40
BUDGET = FULL * TRAININGS
_WORST = 10.0  # of a training that diverges
_RUNGS = {"r_l": str(FULL), "resource_name": "epochs"}
OURS: Mapping[str, Mapping[str, str]] = {
    "asha": _RUNGS,
    "hyperband": {**_RUNGS, "rounds": "0"},
    "bohb": {**_RUNGS, "model": "gp"},
}
ROWS = ("foresight", "random", "top-k", "Optuna", *OURS)

Values = Mapping[str, float]
Curve = Callable[[int], float]
"""The loss after some epochs; queried with increasing numbers it trains no epoch twice."""


@dataclass(frozen=True)
class FidelityTask:
    """A search problem.

    Attributes:
        variables: All parameters except the epochs.
        start: Starts the training of a configuration; the seed is of noise and weights.
        final: The value that counts after all epochs, unless it is the last loss.
    """

    variables: tuple[Variable, ...]
    start: Callable[[Values, int], Curve]
    final: Callable[[Values], float] | None = None


def _hartmann_task(dimensions: int, noise: float) -> FidelityTask:
    variables = doubles(" ".join(f"x{i}" for i in range(dimensions)), 0.0, 1.0)

    def value(point: Values, z: float) -> float:
        x, off = [point[v.name] for v in variables], 0.4 * (1 - z)
        heights = [height - off for height in (1.0, 1.2, 3.0, 3.2)]
        return hartmann(x, heights=heights) if dimensions == 3 else hartmann6(x, heights)

    def start(point: Values, seed: int) -> Curve:
        def loss(epochs: int) -> float:
            text = f"{seed}/{epochs}/{sorted(point.items())}"
            random = Random(hashlib.sha256(text.encode()).digest())
            return value(point, math.log(epochs) / math.log(FULL)) + random.gauss(0, noise) / math.sqrt(epochs)

        return loss

    return FidelityTask(variables, start, lambda point: value(point, 1.0))


def hartmann6(x: Sequence[float], heights: Sequence[float]) -> float:
    a = np.array(
        [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
    )
    p = 1e-4 * np.array(
        [
            [1312, 1696, 5569, 124, 8283, 5886],
            [2329, 4135, 8307, 3736, 1004, 9991],
            [2348, 1451, 3522, 2883, 3047, 6650],
            [4047, 8828, 8732, 5743, 1091, 381],
        ]
    )
    return float(-np.dot(heights, np.exp(-np.sum(a * (np.asarray(x) - p) ** 2, axis=1))))


@cache
def _data(name: str) -> tuple[Any, ...]:
    from sklearn import datasets
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import StandardScaler

    made: Mapping[str, Callable[[], Any]] = {
        "friedman": lambda: datasets.make_friedman1(600, noise=1.0, random_state=0),
        "classes": lambda: datasets.make_classification(
            800, 20, n_informative=8, n_classes=4, n_clusters_per_class=2, random_state=0
        ),
        "hastie": lambda: datasets.make_hastie_10_2(600, random_state=0),
        "line": lambda: datasets.make_regression(400, 60, n_informative=10, noise=40, random_state=0),
    }
    x, y = made[name]() if name in made else getattr(datasets, f"load_{name}")(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))[:900]
    x, y = x[order], y[order]
    if name in ("friedman", "line", "diabetes"):
        y = (y - y.mean()) / y.std()
    x, test_x, y, test_y = train_test_split(x, y, test_size=0.5, random_state=0)
    scaler = StandardScaler().fit(x)
    return scaler.transform(x), scaler.transform(test_x), y, test_y


def _loss_of(model: Any, test_x: Any, test_y: Any) -> float:
    from sklearn.metrics import log_loss

    with np.errstate(all="ignore"):
        if hasattr(model, "classes_"):
            probabilities = np.nan_to_num(model.predict_proba(test_x), nan=0.5)
            return min(float(log_loss(test_y, np.clip(probabilities, 1e-6, 1), labels=model.classes_)), _WORST)
        errors = np.clip(np.nan_to_num(model.predict(test_x) - test_y, nan=100.0), -100.0, 100.0)
        return min(float(np.mean(errors**2)), _WORST)


def _training(
    data: str, make: Callable[[Values, int], Any], train: Callable[[Any, Any, Any, int, int], object]
) -> Callable[[Values, int], Curve]:
    def start(point: Values, seed: int) -> Curve:
        x, test_x, y, test_y = _data(data)
        model, losses, done = make(point, seed), dict[int, float](), 0

        def loss(epochs: int) -> float:
            nonlocal done
            if epochs not in losses:
                try:
                    train(model, x, y, done, epochs)
                    losses[epochs] = _loss_of(model, test_x, test_y)
                except ValueError:  # diverged
                    losses[epochs] = _WORST
                done = epochs
            return losses[epochs]

        return loss

    return start


def _network(point: Values, seed: int, *, classes: bool = True) -> Any:
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    kind = MLPClassifier if classes else MLPRegressor
    return kind(
        hidden_layer_sizes=(int(point["units"]),),
        learning_rate_init=point["lr"],
        alpha=point["decay"],
        batch_size=int(point["batch"]),
        beta_1=point["beta"],
        random_state=seed,
    )


def _one_by_one(model: Any, x: Any, y: Any, done: int, epochs: int) -> None:
    more = {"classes": np.unique(y)} if type(model).__name__.endswith("Classifier") else {}
    for _ in range(done, epochs):
        model.partial_fit(x, y, **more)


def _boosting(point: Values, seed: int, *, classes: bool = False) -> Any:
    from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor

    kind = GradientBoostingClassifier if classes else GradientBoostingRegressor
    return kind(
        learning_rate=point["lr"],
        max_depth=int(point["depth"]),
        subsample=point["rows"],
        max_features=point["columns"],
        min_samples_leaf=int(point["leaf"]),
        warm_start=True,
        random_state=seed,
    )


def _trees(model: Any, x: Any, y: Any, _done: int, epochs: int) -> None:
    model.set_params(n_estimators=epochs)
    model.fit(x, y)


def _descent(point: Values, seed: int, *, classes: bool = True) -> Any:
    from sklearn.linear_model import SGDClassifier, SGDRegressor

    shared = {
        "penalty": "elasticnet",
        "alpha": point["decay"],
        "l1_ratio": point["sparse"],
        "learning_rate": "invscaling",
        "eta0": point["lr"],
        "power_t": point["power"],
        "random_state": seed,
    }
    return SGDClassifier(loss="log_loss", **shared) if classes else SGDRegressor(**shared)


_NETWORK = (
    Variable("lr", "double", 1e-5, 0.3, log=True),
    Variable("units", "int", 2, 64),
    Variable("decay", "double", 1e-6, 1, log=True),
    Variable("batch", "int", 8, 128),
    Variable("beta", "double", 0, 0.99),
)
_BOOSTING = (
    Variable("lr", "double", 0.003, 1, log=True),
    Variable("depth", "int", 1, 8),
    Variable("rows", "double", 0.2, 1),
    Variable("columns", "double", 0.1, 1),
    Variable("leaf", "int", 1, 40),
)
_DESCENT = (
    Variable("lr", "double", 1e-5, 1, log=True),
    Variable("decay", "double", 1e-6, 1, log=True),
    Variable("sparse", "double", 0, 1),
    Variable("power", "double", 0, 1),
)


def _regressing(make: Callable[..., Any]) -> Callable[[Values, int], Any]:
    return lambda point, seed: make(point, seed, classes=False)


def _boosted_classes(point: Values, seed: int) -> Any:
    return _boosting(point, seed, classes=True)


TASKS: Mapping[str, FidelityTask] = {
    **{f"hartmann{d}-{noise:g}": _hartmann_task(d, noise) for d in (3, 6) for noise in (0.0, 0.1, 0.3, 1.0)},
    "network-digits": FidelityTask(_NETWORK, _training("digits", _network, _one_by_one)),
    "network-cancer": FidelityTask(_NETWORK, _training("breast_cancer", _network, _one_by_one)),
    "network-classes": FidelityTask(_NETWORK, _training("classes", _network, _one_by_one)),
    "network-friedman": FidelityTask(_NETWORK, _training("friedman", _regressing(_network), _one_by_one)),
    "boosting-diabetes": FidelityTask(_BOOSTING, _training("diabetes", _boosting, _trees)),
    "boosting-hastie": FidelityTask(_BOOSTING, _training("hastie", _boosted_classes, _trees)),
    "descent-digits": FidelityTask(_DESCENT, _training("digits", _descent, _one_by_one)),
    "descent-line": FidelityTask(_DESCENT, _training("line", _regressing(_descent), _one_by_one)),
}
DEVELOPMENT = (
    *(f"hartmann{dimensions}-{noise:g}" for dimensions in (3, 6) for noise in (0.0, 0.1, 0.3)),
    *("network-digits", "boosting-diabetes", "descent-line"),
)

GOALS: Mapping[str, float] = {
    **dict.fromkeys((name for name in TASKS if name.startswith("hartmann3")), -3.21769),
    **dict.fromkeys((name for name in TASKS if name.startswith("hartmann6")), -1.09730),
    "network-digits": 0.13956,
    "boosting-diabetes": 0.60782,
    "descent-line": 0.04858,
    "network-cancer": 0.08413,
    "network-classes": 0.74031,
    "network-friedman": 0.10388,
    "boosting-hastie": 0.48998,
    "descent-digits": 0.27354,
}
"""The value reached by random search, by problem."""

Step = tuple[int, float]
"""Epochs so far, and the value of a full training that ended then."""


class Trainer:
    """Trains configurations of a task and counts the epochs."""

    def __init__(self, task: FidelityTask, seed: int) -> None:
        self._task, self._seed = task, seed
        self.epochs = 0
        self._curves: dict[tuple[tuple[str, float], ...], tuple[Curve, int]] = {}

    def loss(self, point: Values, epochs: int) -> float:
        """Return the loss after this many epochs, continuing from those of the configuration."""
        key = tuple(sorted(point.items()))
        curve, done = self._curves.get(key) or (self._task.start(point, self._seed), 0)
        self.epochs += max(epochs - done, 0)
        self._curves[key] = curve, max(epochs, done)
        return curve(epochs)

    def step(self, point: Values) -> Step:
        """Return the step of a configuration that has had all epochs."""
        value = self._task.final(point) if self._task.final else self.loss(point, FULL)
        return self.epochs, value


def _random_points(task: FidelityTask, seed: int) -> Iterator[Values]:
    random = Random(f"random {seed}")
    while True:
        yield {v.name: float(value_at(v, random.random())) for v in task.variables}


def resampled(task: FidelityTask, count: int) -> tuple[FidelityTask, float]:
    """Return a task in which configurations have the losses of random ones, and the median of the best of forty."""
    found: list[tuple[Mapping[int, float], float]] = []
    for point in islice(_random_points(task, 0), count):
        loss = task.start(point, 0)
        losses = {epochs: loss(epochs) for epochs in (1, 3, 9, FULL)}
        found.append((losses, task.final(point) if task.final else losses[FULL]))

    def one_of(point: Values) -> tuple[Mapping[int, float], float]:
        return Random(str(sorted(point.items()))).choice(found)

    goal = sorted(value for _, value in found)[math.ceil(count * (1 - 0.5 ** (1 / TRAININGS))) - 1]
    final = (lambda point: one_of(point)[1]) if task.final else None
    return FidelityTask(task.variables, lambda point, _seed: one_of(point)[0].__getitem__, final), goal


def at_random(task: FidelityTask, seed: int, _most: int) -> Iterator[Step]:
    """Yield the full trainings of random search."""
    trainer = Trainer(task, seed)
    for point in _random_points(task, seed):
        trainer.loss(point, FULL)
        yield trainer.step(point)


def with_foresight(task: FidelityTask, seed: int, _most: int) -> Iterator[Step]:
    """Yield the full values of random configurations; each costs one epoch, and one of them all epochs."""
    trainer = Trainer(task, seed)
    for count, point in enumerate(_random_points(task, seed)):
        trainer.loss(point, FULL)
        _, value = trainer.step(point)
        yield count + FULL, value


def top_after_one(task: FidelityTask, seed: int, _most: int) -> Iterator[Step]:
    """Yield the full trainings of the best of as many configurations as a training has epochs, after one each."""
    trainer, points = Trainer(task, seed), _random_points(task, seed)
    first = [(trainer.loss(point, 1), i, point) for i, point in zip(range(FULL), points, strict=False)]
    for _, _, point in sorted(first, key=lambda found: found[:2]):
        trainer.loss(point, FULL)
        yield trainer.step(point)


def by_optuna(task: FidelityTask, seed: int, _most: int) -> Iterator[Step]:
    """Yield the full trainings of Optuna's ASHA with its default sampler."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed), pruner=pruner)
    trainer = Trainer(task, seed)
    while True:
        trial = study.ask()
        point = {v.name: float(suggested(trial, v)) for v in task.variables}
        for epoch in range(1, FULL + 1):
            loss = trainer.loss(point, epoch)
            trial.report(loss, epoch)
            if trial.should_prune():
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
                break
        else:
            study.tell(trial, loss)
            yield trainer.step(point)


def by_ours(name: str) -> Callable[[FidelityTask, int, int], Iterator[Step]]:
    def search(task: FidelityTask, seed: int, most: int) -> Iterator[Step]:
        parameters = list(map(parameter, (*task.variables, Variable("epochs", "int", 1, FULL))))
        searching, trainer = Searching(name, parameters, {**OURS[name], "random_state": seed}), Trainer(task, seed)
        while trainer.epochs < most and (found := searching.suggest()):
            (proposal,) = found
            point = {v.name: float(proposal.assignments[v.name]) for v in task.variables}
            resource = int(proposal.assignments["epochs"])
            searching.add(proposal, trainer.loss(point, resource))
            if resource == FULL:
                yield trainer.step(point)

    return search


SEARCHES: Mapping[str, Callable[[FidelityTask, int, int], Iterator[Step]]] = {
    "foresight": with_foresight,
    "random": at_random,
    "top-k": top_after_one,
    "Optuna": by_optuna,
    **{name: by_ours(name) for name in OURS},
}


def goal_of(task: FidelityTask) -> float:
    """Return the median over three seeds of the best value of random search with its whole budget."""
    runs = (islice(at_random(task, seed, BUDGET), TRAININGS) for seed in range(3))
    return statistics.median(min(value for _, value in run) for run in runs)


def epochs_to(goal: float, steps: Iterator[Step], most: int) -> int:
    """Return the epochs until a value is at least as good as the goal, at most `most`."""
    for epochs, value in steps:
        if epochs >= most:
            break
        if value <= goal:
            return epochs
    return most


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.multi_fidelity", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--split", choices=("development", "final", "all"), default="final")
    parser.add_argument("--most", type=int, default=BUDGET // 4)
    parser.add_argument("--problems", default="*")
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--goals", action="store_true")
    parser.add_argument("--resampled", type=int, default=0)
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    if options.goals:
        for name, task in TASKS.items():
            sys.stdout.write(f"{name:<20}{goal_of(task):.5f}\n")
        return 0
    rows = options.rows.split(",")
    write = sys.stdout.write
    write(f"{'':<20}" + "".join(f"{row:>11}" for row in rows) + "\n")
    found: dict[str, list[float]] = {row: [] for row in rows}
    for name, original in TASKS.items():
        if not fnmatch.fnmatch(name, options.problems) or (
            options.split != "all" and (name in DEVELOPMENT) != (options.split == "development")
        ):
            continue
        task, goal = resampled(original, options.resampled) if options.resampled else (original, GOALS[name])
        write(f"{name:<20}")
        for row in rows:
            runs = [
                epochs_to(goal, SEARCHES[row](task, seed, options.most), options.most) for seed in range(options.seeds)
            ]
            found[row].append((statistics.geometric_mean if options.resampled else statistics.median)(runs))
            write(f"{found[row][-1]:>11.0f}")
            sys.stdout.flush()
        write("\n")
    for what, average in (("median", statistics.median), ("geometric mean", statistics.geometric_mean)):
        write(f"{what:<20}" + "".join(f"{average(found[row]):>11.0f}" for row in rows) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
