"""The comparison of runs: score and rank.

Notation: b the best value of a run, o the optimum of its problem, g = b - o its gap, r the geometric mean of random
search's gaps on that problem over the same seeds. Score = mean over problems and seeds of log10(g / r): -1 means a gap
ten times smaller than random search's. Gaps are cut off at the resolution of their problem, as a share of r, so that
one lucky hit does not outweigh the rest. Rank = mean over problems of the rank by mean log10(g), 1 is best.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.search.problems import Task
from benchmarks.search.runs import SearchRun

BASELINE = "random"
_LEAST = 1e-8  # gaps of BBOB below it are zero by its rules


@dataclass(frozen=True, slots=True)
class ReportRow:
    """One search in the table.

    Attributes:
        score: Mean log10 of the gap against random search's.
        error: Standard error of the score over seeds; NaN with one seed.
        rank: Mean rank among the rows.
        groups: Score by group of problems.
        milliseconds: Median over runs of the time of a suggestion.
    """

    search: str
    score: float
    error: float
    rank: float
    groups: dict[str, float]
    milliseconds: float


@dataclass(frozen=True, slots=True)
class ReportTable:
    """Rows over their common cells (problem, seed).

    Attributes:
        rows: Best score first.
        cells: Number of pairs of a problem and a seed.
    """

    evaluations: int
    parallel: int
    rows: tuple[ReportRow, ...]
    tasks: int
    cells: int


def compare(
    runs: Iterable[SearchRun], tasks: Sequence[Task], searches: Sequence[str], evaluations: int, parallel: int
) -> ReportTable | None:
    """Compare searches; None if they have no cell in common.

    A run with a larger budget counts with its beginning, unless there is one with exactly this budget.
    """
    wanted = [*dict.fromkeys([BASELINE, *searches])]
    found: dict[str, dict[tuple[str, int], SearchRun]] = {search: {} for search in wanted}
    for run in runs:
        if run.search in found and run.parallel == parallel and run.evaluations >= evaluations:
            cell = run.task, run.seed
            known = found[run.search].get(cell)
            if known is None or run.evaluations < known.evaluations:
                found[run.search][cell] = run
    by_name = {task.name: task for task in tasks}
    cells = {cell for cell in set.intersection(*map(set, found.values())) if cell[0] in by_name}
    if not cells:
        return None
    logs = {search: _logs(found[search], found[BASELINE], cells, by_name, evaluations) for search in wanted}
    ranks = _ranks(logs)
    rows = [_row(search, logs[search], ranks[search], by_name, found[search]) for search in wanted]
    rows.sort(key=lambda row: row.score)
    return ReportTable(evaluations, parallel, tuple(rows), len({task for task, _ in cells}), len(cells))


def _logs(
    runs: dict[tuple[str, int], SearchRun],
    baseline: dict[tuple[str, int], SearchRun],
    cells: set[tuple[str, int]],
    tasks: dict[str, Task],
    evaluations: int,
) -> dict[tuple[str, int], float]:
    """Return log10(g / r) by cell."""
    references = defaultdict(list)
    for name, seed in cells:
        gap = baseline[name, seed].best(evaluations) - tasks[name].optimum
        references[name].append(math.log10(max(gap, _LEAST)))
    logs = {}
    for name, seed in cells:
        r = 10 ** statistics.fmean(references[name])
        gap = runs[name, seed].best(evaluations) - tasks[name].optimum
        logs[name, seed] = math.log10(max(gap / r, tasks[name].resolution))
    return logs


def _by_task(logs: dict[tuple[str, int], float]) -> dict[str, float]:
    grouped = defaultdict(list)
    for (name, _), value in logs.items():
        grouped[name].append(value)
    return {name: statistics.fmean(values) for name, values in grouped.items()}


def _ranks(logs: dict[str, dict[tuple[str, int], float]]) -> dict[str, float]:
    """Return the mean rank of each search; equal ones share the mean of their places."""
    means = {search: _by_task(values) for search, values in logs.items()}
    ranks: dict[str, list[float]] = defaultdict(list)
    for name in next(iter(means.values())):
        here = {search: means[search][name] for search in means}
        for search, value in here.items():
            better = sum(other < value - 1e-9 for other in here.values())
            equal = sum(abs(other - value) <= 1e-9 for other in here.values())
            ranks[search].append(better + (equal + 1) / 2)
    return {search: statistics.fmean(values) for search, values in ranks.items()}


def _row(
    search: str,
    logs: dict[tuple[str, int], float],
    rank: float,
    tasks: dict[str, Task],
    runs: dict[tuple[str, int], SearchRun],
) -> ReportRow:
    means = _by_task(logs)
    groups = defaultdict(list)
    for name, value in means.items():
        groups[tasks[name].group].append(value)
    seeds = defaultdict(list)
    for (_, seed), value in logs.items():
        seeds[seed].append(value)
    by_seed = [statistics.fmean(values) for values in seeds.values()]
    error = statistics.stdev(by_seed) / math.sqrt(len(by_seed)) if len(by_seed) > 1 else math.nan
    return ReportRow(
        search,
        statistics.fmean(means.values()),
        error,
        rank,
        {group: statistics.fmean(values) for group, values in groups.items()},
        statistics.median(run.milliseconds for cell, run in runs.items() if cell in logs),
    )


def markdown(table: ReportTable) -> str:
    groups = sorted({group for row in table.rows for group in row.groups}, key=lambda group: (len(group), group))
    at_once = "one at a time" if table.parallel == 1 else f"{table.parallel} at a time"
    lines = [
        f"{table.evaluations} evaluations, {at_once}, {table.tasks} problems, {table.cells} runs each",
        "",
        "| search | score | rank | " + " | ".join(groups) + " | ms |",
        "|" + "---|" * (len(groups) + 4),
    ]
    for row in table.rows:
        error = "" if math.isnan(row.error) else f" ± {row.error:.2f}"
        cells = " | ".join(f"{row.groups[group]:.2f}" for group in groups)
        lines.append(f"| `{row.search}` | {row.score:.2f}{error} | {row.rank:.1f} | {cells} | {row.milliseconds:.1f} |")
    return "\n".join(lines)


def listing(runs: Iterable[SearchRun], tasks: Sequence[Task], searches: Sequence[str], evaluations: int) -> str:
    """Return the gap of every problem and search as Markdown: the median of the seeds, and all in their order."""
    found: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    optima = {task.name: task.optimum for task in tasks}
    for run in runs:
        if run.task in optima and run.parallel == 1 and run.evaluations >= evaluations:
            found[run.task, run.search][run.seed] = run.best(evaluations) - optima[run.task]
    lines = [f"| gap after {evaluations} | " + " | ".join(f"`{search}`" for search in searches) + " |"]
    lines.append("|" + "---|" * (len(searches) + 1))
    for name in optima:
        cells = [[gap for _, gap in sorted(found[name, search].items())] for search in searches]
        if any(cells):
            texts = (f"{statistics.median(c):.3g} ({', '.join(f'{g:.2g}' for g in c)})" if c else "" for c in cells)
            lines.append(f"| {name} | {' | '.join(texts)} |")
    return "\n".join(lines)
