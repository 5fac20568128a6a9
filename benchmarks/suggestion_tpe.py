"""One GetSuggestions of tpe with 1,000 past trials, against Optuna's own ask in this process.

Prints both medians and their ratio. The request goes through gRPC on loopback to another process and carries all
trials; each time one trial more, as in a running experiment. Optuna's study has the same trials, and gets the value of
its answer. Target: a ratio of 1.2 at most for tpe. The joint variant is printed beside it: Optuna needs half the time
for it, so the transport of a thousand trials weighs more.

Run: python -m benchmarks.suggestion_tpe [--trials 1000] [--rounds 50]
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

from katib.wire.rpc._generated import api_pb2 as pb
from tests.support.suggestion import Service, a_parameter, a_trial, an_experiment, served_apart

NAMES = ("a", "b", "c", "d")
TARGET = 1.2


def loss(point: dict[str, float]) -> float:
    return sum((x - 0.3) ** 2 for x in point.values())


def history(n: int) -> list[dict[str, float]]:
    source = random.Random(1)
    return [{name: source.random() for name in NAMES} for _ in range(n)]


class OptunaAlone:
    """A study in this process."""

    def __init__(self, points: list[dict[str, float]], *, multivariate: bool) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.TPESampler(seed=1, multivariate=multivariate, constant_liar=True)
        self._study = optuna.create_study(sampler=sampler)
        self._space = {name: optuna.distributions.FloatDistribution(0.0, 1.0) for name in NAMES}
        create = optuna.trial.create_trial
        self._study.add_trials([create(params=p, distributions=dict(self._space), value=loss(p)) for p in points])

    def ask(self) -> float:
        """Ask once and return the seconds; then tell the answer's value."""
        start = time.perf_counter()
        trial = self._study.ask(dict(self._space))
        seconds = time.perf_counter() - start
        self._study.tell(trial, loss(trial.params))
        return seconds


class OurService:
    """A service in another process, with a client that sends the whole history each time."""

    def __init__(self, service: Service, algorithm: str, points: list[dict[str, float]]) -> None:
        self._service = service
        self._experiment = an_experiment(algorithm, [a_parameter(name) for name in NAMES], settings={"random_state": 1})
        self._trials = [a_trial(f"t{i:06}", {k: repr(v) for k, v in p.items()}, loss(p)) for i, p in enumerate(points)]

    def ask(self) -> float:
        """Ask once and return the seconds; then add the answer to the history."""
        n = len(self._trials)
        request = pb.GetSuggestionsRequest(
            experiment=self._experiment, trials=self._trials, current_request_number=1, total_request_number=n + 1
        )
        start = time.perf_counter()
        (point,) = self._service.send(request)
        seconds = time.perf_counter() - start
        self._trials.append(a_trial(f"t{n:06}", point, loss({k: float(v) for k, v in point.items()})))
        return seconds


def compare(algorithm: str, trials: int, rounds: int, *, multivariate: bool) -> float:
    """Print the medians of alternating turns, which balances other load, and return their ratio."""
    points = history(trials)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        with served_apart(algorithm, Path(folder)) as service:
            up = time.perf_counter() - start
            ours, theirs = OurService(service, algorithm, points), OptunaAlone(points, multivariate=multivariate)
            first = ours.ask()  # waits for the import and decodes the whole history
            pairs = [(ours.ask(), theirs.ask()) for _ in range(rounds)]
    a, b = (statistics.median(seconds) * 1000 for seconds in zip(*pairs, strict=True))
    print(
        f"{algorithm:17} {trials} trials: GetSuggestions {a:.2f} ms, study.ask {b:.2f} ms, ratio {a / b:.2f} "
        f"(target {TARGET}); serving after {up:.2f} s, first answer {first:.2f} s later"
    )
    return a / b


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=50)
    options = parser.parse_args()
    ratio = compare("tpe", options.trials, options.rounds, multivariate=False)
    compare("multivariate-tpe", options.trials, options.rounds, multivariate=True)
    return 0 if ratio <= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
