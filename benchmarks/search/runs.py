"""Runs: one search on one problem with one seed, and the file that stores them.

The file has one JSON object per line and only grows, so a comparison can be interrupted, continued, and computed in
pieces by several processes and Python environments.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.search.problems import Setting, Task
from benchmarks.search.searches import build


@dataclass(frozen=True, slots=True)
class SearchRun:
    """A completed run.

    Attributes:
        evaluations: The budget given to the search.
        values: Values of the evaluations, in the order of requests; fewer if the search ended by itself.
        milliseconds: Median time of a suggestion, over the second half: of asking and of telling the previous result,
            since some libraries fit their model here and some there.
    """

    search: str
    split: str
    task: str
    seed: int
    parallel: int
    evaluations: int
    values: tuple[float, ...]
    milliseconds: float

    @property
    def key(self) -> tuple[str, str, str, int, int, int]:
        return self.search, self.split, self.task, self.seed, self.parallel, self.evaluations

    def best(self, evaluations: int) -> float:
        """Return the least value among the first `evaluations`."""
        return min(self.values[:evaluations])


def run(search: str, split: str, task: Task, setting: Setting) -> SearchRun:
    """Run a search on a problem.

    With parallel evaluations the oldest ends first, and the next point is requested while the others run.
    """
    searching = build(search, task, setting)
    values: list[float] = []
    seconds: list[float] = []
    running: deque[tuple[Any, float]] = deque()
    for _ in range(setting.evaluations):
        start = time.perf_counter()
        if len(running) == setting.parallel:
            searching.tell(*running.popleft())
        asked = searching.ask()
        seconds.append(time.perf_counter() - start)
        if asked is None:
            break
        handle, point = asked
        values.append(task.evaluate(point))
        running.append((handle, values[-1]))
    milliseconds = 1000 * statistics.median(seconds[len(seconds) // 2 :])
    return SearchRun(
        search,
        split,
        task.name,
        setting.seed,
        setting.parallel,
        setting.evaluations,
        tuple(values),
        round(milliseconds, 3),
    )


def read(path: Path) -> Iterator[SearchRun]:
    """Yield the runs of a file; a truncated line is skipped."""
    if not path.exists():
        return
    for line in path.read_text().splitlines():
        try:
            document = json.loads(line)
        except json.JSONDecodeError:
            continue
        yield SearchRun(**{**document, "values": tuple(document["values"])})


def append(path: Path, done: SearchRun) -> None:
    """Add a run to the file, with one write, so that several processes may add at once."""
    document = asdict(done)
    document["values"] = [float(f"{value:.10g}") for value in done.values]
    line = json.dumps(document) + "\n"
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)
