"""Waiting times: for `katib --help`, for the first trial's process, and between two trials.

Rivals: the interpreter's own start, and the same command spawned without a service.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from benchmarks.support import KATIB, ROOT_ENVIRONMENT, experiment, times_of

RUNS = 7
GAP_TRIALS = 200


def seconds_of(command: list[str], directory: Path) -> float:
    run = partial(subprocess.run, cwd=directory, env=ROOT_ENVIRONMENT, stdout=subprocess.DEVNULL, check=True)
    return statistics.median(times_of(lambda: run(command), RUNS))


def to_first_process() -> float:
    """Return the median time from `katib run` to the start of the first trial's process."""
    times = []
    for _ in range(RUNS):
        with tempfile.TemporaryDirectory() as text:
            directory = Path(text)
            mark = directory / "started"
            path = experiment(directory, f"date +%s.%N > {mark}; echo loss=1", trials=1, parallel=1)
            began = time.time()
            subprocess.run([*KATIB, "run", str(path), "-q"], cwd=directory, env=ROOT_ENVIRONMENT, check=True)
            times.append(float(mark.read_text()) - began)
    return statistics.median(times)


def gaps() -> list[float]:
    """Return the times between the end of a trial and the start of the next, one trial at a time."""
    with tempfile.TemporaryDirectory() as text:
        directory = Path(text)
        marks = directory / "marks"
        command = f"exec bash -c 'echo $EPOCHREALTIME >> {marks}; echo loss=1; echo $EPOCHREALTIME >> {marks}'"
        path = experiment(directory, command, trials=GAP_TRIALS, parallel=1)
        subprocess.run([*KATIB, "run", str(path), "-q"], cwd=directory, env=ROOT_ENVIRONMENT, check=True)
        moments = [float(line) for line in marks.read_text().split()]
    ends, starts = moments[1:-1:2], moments[2::2]
    return [start - end for end, start in zip(ends, starts, strict=True)]


def main() -> None:
    here = Path.cwd()
    interpreter = seconds_of([sys.executable, "-c", "pass"], here)
    bash = seconds_of(["bash", "-c", "true"], here)
    helped = seconds_of([*KATIB, "--help"], here)
    first = to_first_process()
    between = gaps()
    print(f"python -c pass              {interpreter * 1e3:8.1f} ms")
    print(
        f"katib --help                {helped * 1e3:8.1f} ms, {helped / interpreter:.1f} times (target: at most 200 ms)"
    )
    print(
        f"katib run to first process  {first * 1e3:8.1f} ms, {first / interpreter:.1f} times (target: at most 1000 ms)"
    )
    print(f"bash -c true                {bash * 1e3:8.1f} ms")
    print(f"end of a trial to the next  {statistics.median(between) * 1e3:8.1f} ms median (target: at most 20 ms)")
    print(f"                            {statistics.quantiles(between, n=20)[-1] * 1e3:8.1f} ms at the 95th percentile")


if __name__ == "__main__":
    main()
