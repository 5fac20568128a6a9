"""Throughput of Optuna's own client through our endpoint, against Optuna's own server on SQLite.

    .venv-optuna/bin/python -m benchmarks.optuna_storage                  1 and 4 processes, two samplers
    .venv-optuna/bin/python -m benchmarks.optuna_storage --trials 200     with fewer trials each
    .venv-optuna/bin/python -m benchmarks.optuna_storage --long 100000    one study of many trials: time and memory

Five parameters and one report per trial; nothing is evaluated. Both servers are separate processes in the same run, and
clients have imported Optuna before the clock starts. `make test-optuna` creates the environment: the client needs a
newer protobuf than the other tests.
"""

from __future__ import annotations

import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import GrpcStorageProxy, get_storage, run_grpc_proxy_server

from benchmarks.support import memory_mb, module_process, options
from katib.doors.optuna_storage.server import PORT, SOCKET, StorageServer
from katib.places.machine import open_engine
from tests.support.ports import free_port

SAMPLERS, PROCESSES = ("RandomSampler", "TPESampler"), (1, 4)

Place = tuple[str, int]


def objective(trial: optuna.Trial) -> float:
    value = sum(trial.suggest_float(f"x{number}", -1, 1) ** 2 for number in range(5))
    trial.report(value, 0)
    trial.should_prune()
    return value


def client(place: Place) -> GrpcStorageProxy:
    storage = GrpcStorageProxy(host=place[0], port=place[1])
    storage.wait_server_ready(60)
    return storage


def work(place: Place, name: str, sampler: str, trials: int, start: Any) -> None:
    quiet()
    study = optuna.load_study(study_name=name, storage=client(place), sampler=getattr(optuna.samplers, sampler)())
    start.wait()
    study.optimize(objective, n_trials=trials)


def pace(place: Place, sampler: str, processes: int, trials: int) -> float:
    """Return the trials per second of all processes together."""
    name = f"{sampler}-{processes}"
    optuna.create_study(study_name=name, storage=client(place))
    spawn = multiprocessing.get_context("spawn")
    start = spawn.Barrier(processes + 1)
    workers = [
        spawn.Process(target=work, args=(place, name, sampler, trials // processes, start)) for _ in range(processes)
    ]
    for worker in workers:
        worker.start()
    start.wait()
    began = time.perf_counter()
    for worker in workers:
        worker.join()
    return trials / (time.perf_counter() - began)


def quiet() -> None:
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.WARNING)


@contextmanager
def served(directory: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    """Run a server in a separate process: Optuna's if there is a port, else ours."""
    command = ("benchmarks.optuna_storage", "--serve", str(directory), "--port", str(port))
    with module_process(*command) as server:
        try:
            yield server
        finally:
            server.terminate()


def serve(directory: Path, port: int) -> None:
    quiet()
    if port:
        run_grpc_proxy_server(get_storage(f"sqlite:///{directory / 'optuna.db'}"), host="localhost", port=port)
        return
    with open_engine(data_dir=directory) as engine:
        engine.start()
        with StorageServer(engine.chosen_trials, directory):
            sys.stdin.read()


def long_run(directory: Path, trials: int) -> None:
    """Show how the time of a trial and the server's memory grow with the trials of one study."""
    place = (f"unix:{directory}/{SOCKET}", PORT)
    with served(directory, 0) as server:
        study = optuna.create_study(study_name="long", storage=client(place), sampler=optuna.samplers.RandomSampler())
        times: list[float] = []
        for number in range(trials):
            began = time.perf_counter()
            trial = study.ask()
            study.tell(trial, trial.suggest_float("x", 0, 1))
            times.append(time.perf_counter() - began)
            if number + 1 in (100, 1_000) or (number + 1) % max(trials // 10, 1_000) == 0:
                first, last = (statistics.median(some) * 1e3 for some in (times[:100], times[-100:]))
                memory = memory_mb(server.pid)
                print(f"{number + 1:7} trials: {first:.1f} ms at first, {last:.1f} ms now, {memory:.0f} MB", flush=True)


def main() -> None:
    given = options(__doc__, trials=400, long=0, serve="", port=0)
    if given.serve:
        serve(Path(given.serve), given.port)
        return
    quiet()
    port = free_port()
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        if given.long:
            long_run(root, given.long)
            return
        ours, theirs = (f"unix:{root}/{SOCKET}", PORT), ("localhost", port)
        with served(root, 0), served(root, port):
            for sampler in SAMPLERS:
                for processes in PROCESSES:
                    own = pace(ours, sampler, processes, given.trials)
                    rival = pace(theirs, sampler, processes, max(given.trials // 10, 4 * processes))
                    print(
                        f"{sampler:14} {processes} processes: {own:6.0f} trials/s, Optuna's server on SQLite"
                        f" {rival:5.0f}: {own / rival:4.1f} times (target: at least 5)",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
