"""Cost of the first process of a trial's container: `python -m benchmarks.launcher`.

Below the launcher, below a shell that does nothing but run it, and bare, in turns: a program that ends at once, and one
that prints 400,000 lines, whose output goes to a pipe as a container's does, and below the launcher to a file as well.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.launcher import launcher_binary

ROUNDS = 200
LINES = 400_000
LIMIT_MS = 2.0
"""Limit of the difference to a bare start: that of the 35 lines of shell that the launcher replaced."""


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        launch = [launcher_binary(), "-d", directory, "-o", f"{directory}/metrics.log", "--"]
        ways = {"bare": [], "shell": ["sh", "-c", '"$0" "$@"; exit $?'], "launcher": launch}
        starts = in_turns(ways, ["/bin/true"], ROUNDS)
        floods = in_turns(ways, ["seq", str(LINES)], 10)
        lines = Path(directory, "metrics.log").read_bytes().count(b"\n")
    for way in ways:
        print(f"{way:9} start and end {starts[way]:6.2f} ms, {LINES:,} lines {floods[way]:6.1f} ms")
    more = starts["launcher"] - starts["bare"]
    print(f"a start costs {more:.2f} ms more than bare, limit {LIMIT_MS:g} ms")
    return int(more > LIMIT_MS or lines != 10 * LINES)


def in_turns(ways: dict[str, list[str]], program: Sequence[str], rounds: int) -> dict[str, float]:
    """Return the median milliseconds of a program for each way of running it."""
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, before in ways.items():
            began = time.perf_counter()
            subprocess.run([*before, *program], stdout=subprocess.PIPE, check=True)
            taken[way].append(1000 * (time.perf_counter() - began))
    return {way: statistics.median(times) for way, times in taken.items()}


if __name__ == "__main__":
    sys.exit(main())
