"""Overhead of the service per trial, against a bare loop that spawns the same commands.

    python -m benchmarks.overhead             500 trials against the loop
    python -m benchmarks.overhead --trials 10000   and the last hundred against the first, with memory
    python -m benchmarks.overhead --lines 200000   delay of a trial's end by that many metric lines

The time of a trial is the time stamp of its output file, so nothing is added to the measured code.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.support import KATIB, ROOT_ENVIRONMENT, experiment, options, wait_with_memory

COMMAND = "echo loss=1"
PARALLEL = 2
WINDOW = 100


def bare_loop(count: int) -> float:
    """Return the seconds for spawning the commands, two at a time."""
    began = time.perf_counter()
    running: list[subprocess.Popen[bytes]] = []
    for _ in range(count):
        running.append(subprocess.Popen(["sh", "-c", COMMAND], stdout=subprocess.DEVNULL))
        if len(running) == PARALLEL:
            running.pop(0).wait()
    for process in running:
        process.wait()
    return time.perf_counter() - began


def service(count: int, directory: Path) -> tuple[float, float, list[float]]:
    """Run the experiment; return its seconds, the peak memory in MB, and the times of all trials in order."""
    path = experiment(directory, COMMAND, trials=count, parallel=PARALLEL)
    began = time.perf_counter()
    process = subprocess.Popen([*KATIB, "run", str(path), "-q"], cwd=directory, env=ROOT_ENVIRONMENT)
    code, memory = wait_with_memory(process)
    seconds = time.perf_counter() - began
    if code:
        raise SystemExit(f"katib run ended with {code}")
    logs = (directory / ".katib" / "trials").glob("*/*/*/*.log")
    return seconds, memory, sorted(log.stat().st_mtime_ns / 1e9 for log in logs)


PRINTING = """
import time
began = time.time()
for number in range({lines}):
    print(f"loss={{1 / (number + 1):.6f}}")
open("printed", "w").write(f"{{time.time() - began}} {{time.time()}}")
"""


def held_back(lines: int, directory: Path) -> tuple[float, float, float]:
    """Return the seconds of printing the readings alone and in a trial, and from there to the run's end."""
    (directory / "print.py").write_text(PRINTING.format(lines=lines))
    alone = [sys.executable, "-u", "print.py"]
    subprocess.run(alone, cwd=directory, stdout=subprocess.DEVNULL, check=True)
    by_itself = float((directory / "printed").read_text().split()[0])
    path = experiment(directory, "python print.py", trials=1, parallel=1)
    subprocess.run([*KATIB, "run", str(path), "-q"], cwd=directory, env=ROOT_ENVIRONMENT, check=True)
    ended = time.time()
    seconds, printed = map(float, (directory / "printed").read_text().split())
    return by_itself, seconds, ended - printed


def main() -> None:
    arguments = options(__doc__, trials=500, lines=0)
    if arguments.lines:
        with tempfile.TemporaryDirectory() as directory:
            alone, trial, rest = held_back(arguments.lines, Path(directory))
        print(f"printing by itself          {alone:.2f} s")
        print(f"printing in a trial         {trial:.2f} s, {trial / alone:.1f} times")
        print(f"from there to the end       {rest:.2f} s, {rest / alone:.1f} times")
        return
    count = arguments.trials
    with tempfile.TemporaryDirectory() as directory:
        bare = bare_loop(min(count, 500)) / min(count, 500) * count
        seconds, memory, moments = service(count, Path(directory))
    # From first to last trial: the start of the program is measured by `benchmarks.startup`.
    pace = (moments[-1] - moments[0]) / (len(moments) - 1)
    print(f"trials                      {len(moments)}")
    print(f"bare loop                   {bare / count * 1e3:8.2f} ms per trial")
    print(f"katib run                   {pace * 1e3:8.2f} ms per trial ({seconds:.1f} s in all)")
    print(f"overhead                    {(pace - bare / count) * 1e3:8.2f} ms per trial (target: at most 10)")
    if len(moments) >= 10 * WINDOW:
        first, last = _pace(moments[: WINDOW + 1]), _pace(moments[-WINDOW - 1 :])
        print(f"first {WINDOW} trials            {first * 1e3:8.2f} ms per trial")
        print(f"last {WINDOW} trials             {last * 1e3:8.2f} ms per trial")
        print(f"last against first          {last / first:8.2f} times (target: at most 1.3)")
        hundreds = [_pace(moments[i : i + WINDOW + 1]) for i in range(0, len(moments) - WINDOW, WINDOW)]
        print(f"median of all hundreds      {statistics.median(hundreds) * 1e3:8.2f} ms per trial")
    print(f"peak memory of the server   {memory:8.0f} MB (target: at most 150)")


def _pace(moments: list[float]) -> float:
    return (moments[-1] - moments[0]) / (len(moments) - 1)


if __name__ == "__main__":
    main()
