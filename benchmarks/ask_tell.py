"""Throughput of ask and tell in trials per second, against Optuna in the same run.

    python -m benchmarks.ask_tell                 in process, and over REST with 1 and 50 clients
    python -m benchmarks.ask_tell --trials 300    with fewer trials each
    python -m benchmarks.ask_tell --long 100000 --algorithm tpe    one experiment of many trials: time and memory

`random` with one double; nothing is evaluated. Optuna stores in SQLite and in its journal, in process. The REST server
is a separate process, and all clients are threads of this one, which keep their connections. The time of a trial is
from its ask to the answer of its tell, without the pause of clients that have one: fifty clients without a pause are a
queue of fifty, in which a trial takes fifty times as long as the server works on it.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from benchmarks.support import first_line, memory_mb, module_process, options
from katib.doors.rest.client import HttpTuningService
from katib.doors.rest.server import Server
from katib.model.types import Trial
from katib.places.machine import open_engine
from katib.service.tuning.service import TuningService
from tests.support.experiments import an_experiment

CLIENTS = 50
WANTED = 300
"""Total trials per second of all clients with pauses."""


def document(name: str, trials: int, parallel: int, algorithm: str = "random") -> str:
    counts = {"maxTrialCount": trials, "parallelTrialCount": parallel}
    algorithm_spec = {"algorithmName": algorithm}
    return json.dumps(an_experiment(name=name, namespace="", algorithm=algorithm_spec, trialTemplate=None, **counts))


def one_client(service: TuningService, name: str, times: list[float], limit: int, period: float = 0.0) -> None:
    """Ask and tell until the experiment has ended, or up to the limit; a trial per period if there is one."""
    due = time.perf_counter() + period * random.random()
    for _ in range(limit):
        time.sleep(max(due - time.perf_counter(), 0.0))
        due += period
        began = time.perf_counter()
        trial = next_trial(service, name)
        if trial is None:
            return
        service.tell("default", trial.name, {"loss": 1.0}, request_id=uuid.uuid4().hex)
        times.append(time.perf_counter() - began)


def next_trial(service: TuningService, name: str) -> Trial | None:
    """Return the next trial; None if the experiment has ended."""
    request_id = uuid.uuid4().hex
    while True:
        answer = service.ask("default", name, request_id=request_id, wait_seconds=20)
        if answer.trial is not None or answer.is_over:
            return answer.trial


def race(
    services: list[TuningService], keeper: TuningService, name: str, trials: int, period: float = 0.0
) -> tuple[float, list[float]]:
    """Return the trials per second of all clients together, and the seconds of each ask with its tell."""
    keeper.submit(document(name, trials, max(len(services), 4)), source=name)
    warm: list[float] = []
    one_client(services[0], name, warm, 5)  # starts the suggestion service
    times: list[float] = []
    threads = [threading.Thread(target=one_client, args=(service, name, times, trials, period)) for service in services]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(times) / (time.perf_counter() - began), times


def optuna_pace(storage: Any, trials: int) -> float:
    """Return the trials per second of Optuna's own ask and tell."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(storage=storage, sampler=optuna.samplers.RandomSampler())
    began = time.perf_counter()
    for _ in range(trials):
        trial = study.ask()
        trial.suggest_float("x", 0, 1)
        study.tell(trial, 1.0)
    return trials / (time.perf_counter() - began)


def show(what: str, pace: float, times: list[float] | None = None, target: str = "") -> None:
    median = f", median {statistics.median(times) * 1e3:.1f} ms" if times else ""
    print(f"{what:34} {pace:8.0f} trials/s{median}{f' (target: {target})' if target else ''}", flush=True)


def main() -> None:
    given = options(__doc__, trials=1000, serve="", long=0, algorithm="random", seconds=600.0)
    if given.serve:
        serve(Path(given.serve))
        return
    if given.long:
        long_run(given.long, given.algorithm, given.seconds)
        return
    count = given.trials
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        few = min(count, 200)
        rivals: dict[str, Callable[[], Any]] = {
            "Optuna, journal, in process": lambda: JournalStorage(JournalFileBackend(str(directory / "journal"))),
            "Optuna, SQLite, in process": lambda: f"sqlite:///{directory / 'optuna.db'}",
        }
        for name, storage in rivals.items():
            show(name, optuna_pace(storage(), few))
        engine = stack.enter_context(open_engine(data_dir=directory / "data", own_process=False))
        engine.start()
        show("in process, 1 client", *race([engine.service], engine.service, "one", count), "at least 500")
        server = module_process("benchmarks.ask_tell", "--serve", str(directory / "served"))
        url = first_line(stack.enter_context(server))
        clients: list[TuningService] = [stack.enter_context(HttpTuningService(url, None)) for _ in range(CLIENTS)]
        show("REST, 1 client", *race(clients[:1], clients[0], "rest-one", count), "at least 200")
        show(f"REST, {CLIENTS} clients", *race(clients, clients[0], "rest-many", count), "at least 300")
        pace = f"REST, {CLIENTS} clients, {WANTED} trials/s wanted"
        show(pace, *race(clients, clients[0], "rest-paced", count, CLIENTS / WANTED), "median at most 20 ms")


def long_run(trials: int, algorithm: str, seconds: float) -> None:
    """Show how time and memory grow with the trials of one experiment, for a limited time."""
    with tempfile.TemporaryDirectory() as directory, open_engine(data_dir=Path(directory)) as engine:
        engine.start()
        engine.service.submit(document("long", trials, 4, algorithm), source="long")
        one_client(engine.service, "long", [], 20)
        times: list[float] = []
        began = time.perf_counter()
        while len(times) < trials - 20 and time.perf_counter() - began < seconds:
            one_client(engine.service, "long", times, min(trials // 10, trials - 20 - len(times)))
            first, last = (statistics.median(some) * 1e3 for some in (times[:100], times[-100:]))
            memory = memory_mb(os.getpid())
            shown = f"{len(times):7} trials: {first:.1f} ms at first, {last:.1f} ms now, {memory:.0f} MB"
            print(f"{algorithm:8} {shown}", flush=True)


def serve(directory: Path) -> None:
    """Print the address of a server that ends when its standard input does."""
    with open_engine(data_dir=directory) as engine:
        engine.start()
        with Server(engine.service, host="127.0.0.1", port=0) as server:
            print(server.url, flush=True)
            sys.stdin.read()


if __name__ == "__main__":
    main()
