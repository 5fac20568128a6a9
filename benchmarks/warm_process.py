"""What a trial of `katib.tune` takes beyond its function, with a warm process and without.

    python -m benchmarks.warm_process                 110 trials less 10, of a function that does nothing
    python -m benchmarks.warm_process --trials 500

The difference of two runs is divided by the difference of their trials, so that start and end do not count. Each run is
a process of its own: the processor time is that of the process and of all that it waited for.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time

import katib
from benchmarks.support import options

FEW = 10


def nothing(x: float) -> float:
    return x


def cpu_seconds(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def run(trials: int, preload: list[str] | None) -> None:
    """Print how long a search takes, and how much of the processor."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as directory:
        space = {"x": katib.search.double(0, 1)}
        how = {"algorithm": "random", "parallel": 1, "preload": preload, "verbose": False}
        katib.tune(nothing, space, max_trials=trials, data_dir=directory, **how)
    used = sum(map(cpu_seconds, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))
    print(time.perf_counter() - began, used)


def measured(trials: int, kind: str) -> tuple[float, float]:
    command = [sys.executable, "-m", "benchmarks.warm_process", "--run", kind, "--trials", str(trials)]
    wall, used = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(wall), float(used)


def main() -> None:
    given = options(__doc__, trials=110, run="")
    if given.run:
        run(given.trials, ["json"] if given.run == "warm" else None)
        return
    for kind in ("warm", "job"):
        few, many = measured(FEW, kind), measured(given.trials, kind)
        wall, used = ((b - a) / (given.trials - FEW) * 1e3 for a, b in zip(few, many, strict=True))
        print(f"{kind:5} {wall:6.1f} ms a trial, {used:6.1f} ms of the processor (target of warm: at most 15)")


if __name__ == "__main__":
    main()
