"""Cost of starting a process through the guard, against subprocess.Popen.

Prints milliseconds per start (call to running child) and per whole round (start to exit notice) of `/bin/true`.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from katib.places.machine.processes.client import Processes
from katib.places.machine.processes.handle import Command

ROUNDS = 300


def measure(start: Callable[[], Callable[[], object]]) -> tuple[float, float]:
    starts, rounds = [], []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        finish = start()
        starts.append(time.perf_counter() - begin)
        finish()
        rounds.append(time.perf_counter() - begin)
    return 1000 * statistics.median(starts), 1000 * statistics.median(rounds)


def main() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    begin = time.perf_counter()
    processes = Processes()
    processes.start()

    def by_guard() -> Callable[[], object]:
        ended = threading.Event()
        processes.spawn(
            Command(["/bin/true"], dict(os.environ), Path.cwd()), null, on_exit=lambda _handle, _exit: ended.set()
        )
        return ended.wait

    def by_popen() -> Callable[[], object]:
        process = subprocess.Popen(["/bin/true"], stdin=null, stdout=null, stderr=null, start_new_session=True)
        return process.wait

    by_guard()()
    print(f"guard up and first process done: {1000 * (time.perf_counter() - begin):.1f} ms")
    for name, start in (("guard", by_guard), ("popen", by_popen)):
        to_start, whole = measure(start)
        print(f"{name}: start {to_start:.2f} ms, start to exit {whole:.2f} ms")
    processes.stop()


if __name__ == "__main__":
    main()
