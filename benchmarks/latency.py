"""Latency of suggestions, and costs of a service: start, memory.

    python -m benchmarks.latency [--algorithms tpe,gp] [--trials 100,1000,10000] [--rounds 9]

For every algorithm and number of past trials (six doubles), medians in milliseconds, of `gRPC` also the fastest:

- `gRPC`: one GetSuggestions through a Unix socket to a separate process, with the whole history in the request, each
  time one trial more, as in a running experiment and encoded as by the controller. Algorithms that read no history get
  none, as from the controller.
- `service`: the processor time of that process for the request: decoding, the algorithm, the reply.
- `alone`: the algorithm in this process, with the decoded history.
- `library`: the library called directly, if the algorithm uses one, with the same trials in its own storage.

Only `gRPC` is wall time; the others are processor time, which depends less on other work on the machine. Targets are
for `gRPC`; on a busy machine its fastest answer is more meaningful than the median. `start` is the processor time of
the process, in seconds, until its first health check returns SERVING, before any library is imported; `memory` is its
peak resident memory after it has answered.

Histories are random points, except for algorithms that read labels: theirs are their own searches, a hundred trials at
a time.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import grpc

from benchmarks.search.problems import Setting, Task, doubles
from benchmarks.search.searches import OptunaSearch, SkoptSearch
from benchmarks.support import median_ms, memory_mb, module_process, options, processor_seconds
from katib.model.space import Point
from katib.model.types import ObjectiveSpec
from katib.wire.rpc._generated import api_pb2 as pb
from suggestion_services.algorithms import ENTRIES, find_entry
from suggestion_services.base import messages
from suggestion_services.base.algorithm import AwaitingTrials, PastTrial, Problem, Proposal
from tests.support.suggestion import PATIENCE_SECONDS, Service, a_parameter, a_trial, an_experiment

NAMES = tuple("abcdef")
FLAT = {100: 3.0, 1_000: 5.0, 10_000: 20.0}
MODEL = {60: 50.0, 100: 90.0, 1_000: 1_000.0}
TARGETS: dict[str, dict[int, float]] = {
    "tpe": {100: 10.0, 1_000: 40.0, 10_000: 300.0},
    **dict.fromkeys(("cmaes", "sobol", "random", "grid"), FLAT),
    "gp": MODEL,
}
MOST_TRIALS = {"bayesianoptimization": 100, "gp": 1_000, "auto": 1_000, "bohb": 1_000}
"""Maximum trials: beyond, a suggestion takes seconds, or another algorithm should be used."""
LABELLED = ("cmaes", "nsga2", "hyperband", "bohb", "asha", "pbt")
"""Algorithms that need the labels of their suggestions in the history."""
BATCH = 100
SKIPPED = ("enas", "darts")
"""Algorithms that search architectures."""
START_SECONDS, MEMORY_MB = 0.5, 250.0


def loss(point: dict[str, float]) -> float:
    return sum((x - 0.3) ** 2 for x in point.values())


def history(n: int) -> list[dict[str, float]]:
    source = random.Random(1)
    return [{name: source.randrange(64) / 64 for name in NAMES} for _ in range(n)]


def experiment(algorithm: str) -> pb.Experiment:
    """Return an experiment over six doubles, with a step for grids, or a resource."""
    step = {"step": "0.015625"} if algorithm == "grid" else {}
    parameters = [a_parameter(name, min="0", max="1", **step) for name in NAMES]
    settings: dict[str, object] = {"random_state": 1}
    if algorithm in ("hyperband", "bohb", "asha"):
        parameters.append(a_parameter("epochs", pb.INT, min="1", max="27"))
        settings |= {"r_l": 27, "resource_name": "epochs"}
        settings |= {"rounds": 0} if algorithm in ("hyperband", "bohb") else {}
    return an_experiment(algorithm, parameters, settings=settings)


def problem(algorithm: str) -> Problem:
    return Problem.of("demo", messages.experiment_spec(experiment(algorithm)), find_entry(algorithm).info)


def trial(number: int, point: Mapping[str, str], labels: Mapping[str, str] | None = None) -> pb.Trial:
    measured = {name: float(point[name]) for name in NAMES}
    return a_trial(f"t{number:06}", point, loss(measured), labels=labels)


def past_trial(message: pb.Trial) -> PastTrial:
    return messages.past_trial(message, ObjectiveSpec(objective_metric_name="loss"))


def suggested(found: Point | Proposal) -> tuple[dict[str, str], Mapping[str, str]]:
    """Return texts and labels of a suggestion."""
    if isinstance(found, Proposal):
        return dict(found.assignments), found.labels
    return {name: repr(value) for name, value in found.items()}, {}


@cache
def past_trials(algorithm: str, n: int) -> tuple[pb.Trial, ...]:
    """Return a history; empty if the algorithm reads none."""
    entry = find_entry(algorithm)
    if not entry.info.reads_history:
        return ()
    if algorithm not in LABELLED:
        points = ({name: repr(x) for name, x in point.items()} for point in history(n))
        return tuple(trial(i, point) for i, point in enumerate(points))
    searching, known = entry.load()(problem(algorithm)), list[pb.Trial]()
    past: list[PastTrial] = []
    while len(known) < n:
        with suppress(AwaitingTrials):
            count = min(BATCH, n - len(known))
            for found in searching.suggest(list(past), first=len(known), count=count):
                known.append(trial(len(known), *suggested(found)))
        past += map(past_trial, known[len(past) :])
    return tuple(known)


@contextmanager
def served(algorithm: str) -> Iterator[tuple[Service, int, float]]:
    """Serve an algorithm in another process; yield the service, its process id and its processor time so far."""
    with tempfile.TemporaryDirectory() as folder:
        address = f"unix:{folder}/{algorithm}.sock"
        command = ("suggestion_services", "--algorithm", algorithm, "--address", address, "--exit-with-stdin")
        with (
            module_process(*command) as process,
            grpc.insecure_channel(address, [("grpc.max_reconnect_backoff_ms", 20)]) as channel,
        ):
            service = Service(channel)
            service.health()
            yield service, process.pid, processor_seconds(process.pid)


def through_grpc(service: Service, pid: int, algorithm: str, n: int, rounds: int) -> tuple[float, float, float]:
    """Return median and least time of a call, and the service's processor time; building requests is not counted."""
    reads_history = find_entry(algorithm).info.reads_history
    call = service.channel.unary_unary("/api.v1.beta1.Suggestion/GetSuggestions")
    trials = [pb.GetSuggestionsRequest(trials=[one]).SerializeToString() for one in past_trials(algorithm, n)]
    demo, seconds, busy = experiment(algorithm), [], []
    for k in range(n, n + rounds + 1):
        head = pb.GetSuggestionsRequest(experiment=demo, current_request_number=1, total_request_number=k + 1)
        request = head.SerializeToString() + b"".join(trials)
        before, start = processor_seconds(pid), time.perf_counter()
        answer = call(request, timeout=PATIENCE_SECONDS)
        seconds.append(time.perf_counter() - start)
        busy.append(processor_seconds(pid) - before)
        (found,) = pb.GetSuggestionsReply.FromString(answer).parameter_assignments
        if reads_history:
            new = trial(k, {a.name: a.value for a in found.assignments}, dict(found.labels))
            trials.append(pb.GetSuggestionsRequest(trials=[new]).SerializeToString())
    usual, least, spent = statistics.median(seconds[1:]), min(seconds[1:]), statistics.median(busy[1:])
    return usual * 1000, least * 1000, spent * 1000


def alone(algorithm: str, n: int, rounds: int) -> float:
    """Return the median time of the algorithm itself."""
    entry = find_entry(algorithm)
    searching = entry.load()(problem(algorithm))
    past = [past_trial(message) for message in past_trials(algorithm, n)]
    k = n

    def ask() -> None:
        nonlocal k
        found = next(iter(searching.suggest(past, first=k, count=1)))
        if entry.info.reads_history:
            past.append(past_trial(trial(k, *suggested(found))))
        k += 1

    ask()  # for warming up
    return median_ms(ask, rounds, time.process_time)


def of_library(algorithm: str, n: int, rounds: int) -> float | None:
    """Return the median time of the library that the algorithm uses; None without one."""
    task = Task("latency", "latency", doubles(" ".join(NAMES), 0.0, 1.0), loss, 0.0)  # type: ignore[arg-type]  # floats only
    setting = Setting(seed=1, evaluations=n + rounds + 1, parallel=1)
    if algorithm == "bayesianoptimization":
        searching: Any = SkoptSearch(task, setting)
        searching.tell_all([list(point.values()) for point in history(n)], [loss(point) for point in history(n)])
    elif algorithm in OPTUNA:
        searching = _optuna(task, setting, algorithm, n)
    else:
        return None

    def ask() -> None:
        handle, values = searching.ask()
        searching.tell(handle, loss(values))  # the library fits its model here or there: both belong to a suggestion

    ask()  # for warming up
    return median_ms(ask, rounds, time.process_time)


OPTUNA: dict[str, Callable[[Any], Any]] = {
    "random": lambda samplers: samplers.RandomSampler(seed=1),
    "tpe": lambda samplers: samplers.TPESampler(seed=1, multivariate=False),
    "multivariate-tpe": lambda samplers: samplers.TPESampler(seed=1, multivariate=True),
    "cmaes": lambda samplers: samplers.CmaEsSampler(seed=1),
    "sobol": lambda samplers: samplers.QMCSampler(seed=1, scramble=True),
}


def _optuna(task: Task, setting: Setting, algorithm: str, n: int) -> OptunaSearch:
    import optuna

    searching = OptunaSearch(lambda samplers, _: OPTUNA[algorithm](samplers), task, setting)
    space = {name: optuna.distributions.FloatDistribution(0.0, 1.0) for name in NAMES}
    create = optuna.trial.create_trial
    searching.study.add_trials([create(params=p, distributions=dict(space), value=loss(p)) for p in history(n)])
    return searching


def main() -> int:
    suggesting = [entry.info.name for entry in ENTRIES if not entry.info.early_stopping]
    algorithms = ",".join(name for name in suggesting if name not in SKIPPED)
    given = options(__doc__, algorithms=algorithms, trials="60,100,1000,10000", rounds=9)
    missed = []
    print(
        "| algorithm | trials | gRPC ms | service ms | alone ms | library ms | target ms | start s | memory MB |\n"
        + "|---" * 9
        + "|"
    )
    for algorithm in given.algorithms.split(","):
        for n in map(int, given.trials.split(",")):
            if n > MOST_TRIALS.get(algorithm, n) or (n == 60 and algorithm not in MOST_TRIALS):
                continue
            with served(algorithm) as (service, pid, start):
                usual, fastest, spent = through_grpc(service, pid, algorithm, n, given.rounds)
                memory = memory_mb(pid, "VmHWM")
            own, library = alone(algorithm, n, given.rounds), of_library(algorithm, n, given.rounds)
            target = TARGETS.get(algorithm, {}).get(n)
            theirs, wanted = (f"{ms:g}" if ms is not None else "" for ms in (library and round(library, 1), target))
            row = (
                f"`{algorithm}`",
                f"{n:,}",
                f"{usual:.1f} ({fastest:.1f})",
                f"{spent:.1f}",
                f"{own:.1f}",
                theirs,
                wanted,
            )
            print(f"| {' | '.join(row)} | {start:.2f} | {memory:.0f} |", flush=True)
            if (target and fastest > target) or start > START_SECONDS or memory > MEMORY_MB:
                missed.append(f"{algorithm} at {n:,}")
    if missed:
        print(f"\nmissed a target: {', '.join(missed)}", file=sys.stderr)
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
