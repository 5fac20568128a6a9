"""Shared helpers of the benchmarks."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.support.experiments import an_experiment

KATIB = [str(Path(sys.executable).parent / "katib")]

ROOT_ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("KATIB_")}


def options(description: str | None, /, **defaults: Any) -> argparse.Namespace:
    """Parse the command line: an option for each keyword, with the type of its default; a flag for False."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        kind: dict[str, Any] = {"type": type(default)} if default is not False else {"action": "store_true"}
        parser.add_argument(f"--{name.replace('_', '-')}", default=default, **kind)
    return parser.parse_args()


def experiment(directory: Path, command: str, *, trials: int, parallel: int, **spec: Any) -> Path:
    """Write an experiment of random search over one double that runs a shell command; return its path."""
    command = f"{command} # ${{trialParameters.learningRate}}"
    document = an_experiment(name="bench", command=command, maxTrialCount=trials, parallelTrialCount=parallel, **spec)
    path = directory / "experiment.json"
    path.write_text(json.dumps(document))
    return path


@contextmanager
def module_process(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a Python module in another process, which ends with its standard input."""
    command = [sys.executable, "-m", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.communicate()


def first_line(process: subprocess.Popen[str]) -> str:
    """Return the first line that a process prints, such as its address."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def wait_with_memory(process: subprocess.Popen[bytes]) -> tuple[int, float]:
    """Wait for a process; return its exit code and its peak memory in MB, without that of its children."""
    peak = 0.0
    status = Path(f"/proc/{process.pid}/status")
    while process.poll() is None:
        try:
            lines = status.read_text().splitlines()
        except OSError:
            break
        peak = max(peak, *(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)
        time.sleep(0.1)
    return process.wait(), peak


def times_of(action: Callable[[], object], runs: int, clock: Callable[[], float] = time.perf_counter) -> list[float]:
    """Return the seconds of each of some calls."""
    moments = [clock()]
    for _ in range(runs):
        action()
        moments.append(clock())
    return [end - start for start, end in pairwise(moments)]


def median_ms(action: Callable[[], object], runs: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the median milliseconds of some calls."""
    return statistics.median(times_of(action, runs, clock)) * 1e3


def processor_seconds(pid: int) -> float:
    """Return the processor time of another process so far."""
    return time.clock_gettime(~pid << 3 | 2)  # its clock, as in clock_getcpuclockid(3)


def memory_mb(pid: int, field: str = "VmRSS") -> float:
    """Return the memory of another process: the present one, or with `VmHWM` the peak."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024
