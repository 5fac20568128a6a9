"""One GetSuggestions of tpe with 1,000 past trials, against Optuna's own ask in this process.

Prints both medians and their ratio, for both variants. The request goes through gRPC on loopback to another process and
carries all trials; each time one trial more, as in a running experiment. Optuna's study has the same trials, and its
answer is told back to it. Target: a ratio of 1.2 at most.

Run: python benchmarks/suggestion_tpe.py [--trials 1000] [--rounds 30]
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import optuna

from katib.rpc._generated import api_pb2 as pb
from tests.support.suggestion import a_parameter, a_trial, an_experiment, served_apart

NAMES = ("a", "b", "c", "d")
TARGET = 1.2


def loss(point: dict[str, float]) -> float:
    return sum((x - 0.3) ** 2 for x in point.values())


def history(n: int) -> list[dict[str, float]]:
    source = random.Random(1)
    return [{name: source.random() for name in NAMES} for _ in range(n)]


def optuna_seconds(points: list[dict[str, float]], rounds: int, *, multivariate: bool) -> list[float]:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=1, multivariate=multivariate, constant_liar=True)
    study = optuna.create_study(sampler=sampler)
    space = {name: optuna.distributions.FloatDistribution(0.0, 1.0) for name in NAMES}
    study.add_trials([optuna.trial.create_trial(params=p, distributions=dict(space), value=loss(p)) for p in points])
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        trial = study.ask(dict(space))
        seconds.append(time.perf_counter() - start)
        study.tell(trial, loss(trial.params))
    return seconds


def service_seconds(algorithm: str, points: list[dict[str, float]], rounds: int) -> list[float]:
    experiment = an_experiment(algorithm, [a_parameter(name) for name in NAMES], settings={"random_state": 1})
    trials = [a_trial(f"t{i:06}", {k: repr(v) for k, v in p.items()}, loss(p)) for i, p in enumerate(points)]
    seconds = []
    with tempfile.TemporaryDirectory() as folder, served_apart(algorithm, Path(folder)) as service:
        service.ask(experiment, trials)  # what a service does once: import, decode the whole history
        for _ in range(rounds):
            request = pb.GetSuggestionsRequest(
                experiment=experiment, trials=trials, current_request_number=1, total_request_number=len(trials) + 1
            )
            start = time.perf_counter()
            (point,) = service.send(request)
            seconds.append(time.perf_counter() - start)
            value = loss({k: float(v) for k, v in point.items()})
            trials.append(a_trial(f"t{len(trials):06}", point, value))
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    points, worst = history(options.trials), 0.0
    for algorithm, multivariate in (("tpe", False), ("multivariate-tpe", True)):
        ours = statistics.median(service_seconds(algorithm, points, options.rounds)) * 1000
        theirs = statistics.median(optuna_seconds(points, options.rounds, multivariate=multivariate)) * 1000
        worst = max(worst, ours / theirs)
        print(
            f"{algorithm:17} {options.trials} trials: GetSuggestions {ours:6.2f} ms, study.ask {theirs:6.2f} ms, "
            f"ratio {ours / theirs:.2f} (target {TARGET})"
        )
    return 0 if worst <= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
