"""Quality of searches: ours and the libraries called directly, on the same problems with the same seeds.

    python -m benchmarks.quality --rows random,katib:tpe,optuna:tpe --results FILE

runs the combinations missing in FILE, appends them there, and prints the comparison of the rows over the common cells
(problem and seed); `--report-only` runs nothing. `random` is always among the rows: the others are measured against it
(`benchmarks/search/report.py` defines score and rank). Run it again with other rows, seeds or problems to add to FILE.
A library that is not installed here can be measured from another environment: start this same command with that
environment's interpreter (Optuna's GPSampler needs torch, `hebo` needs its package) and the same FILE.

A run of 150 evaluations also counts at 60, by its beginning, if the search ignores its budget; `katib:auto` uses it, so
it is run with each budget. Problems are listed by `--list`. Never tune on `--split final`.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import itertools
import sys
import time
import warnings
from pathlib import Path

from benchmarks.search import problems, report, runs, searches, suite

LOOKS_AT_ITS_BUDGET = ("katib:auto", "katib:grid")
DEFAULT_ROWS = "random,katib:*"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--split", choices=("development", "final", "many", "many-final"), default="development")
    parser.add_argument(
        "--rows", default=DEFAULT_ROWS, help="searches, separated by commas; patterns with * may be used"
    )
    parser.add_argument("--problems", default="*", help="names or groups, separated by commas; patterns may be used")
    parser.add_argument("--evaluations", default="60,150")
    parser.add_argument("--seeds", default="0-4", help="such as 0-4 or 0,2")
    parser.add_argument("--parallel", default="1", help="evaluations under way at once, such as 1,4")
    parser.add_argument("--results", type=Path, default=Path("quality.jsonl"))
    parser.add_argument("--report-only", action="store_true")
    parser.add_argument("--each", action="store_true", help="print the gaps of every problem and seed, too")
    parser.add_argument("--list", action="store_true", help="print rows and problems")
    options = parser.parse_args()
    tasks = suite.tasks(options.split)
    if options.list:
        print("rows:", *searches.names(), "problems:", *(f"{task.name} ({task.group})" for task in tasks), sep="\n  ")
        return 0
    tasks = tuple(task for task in tasks if _matches(options.problems, task.name, task.group))
    rows = [*dict.fromkeys(["random", *_rows(options.rows)])]
    budgets = sorted(map(int, options.evaluations.split(",")))
    parallels = [int(text) for text in options.parallel.split(",")]
    if not options.report_only:
        _run_missing(options, tasks, rows, budgets, parallels)
    done = [run for run in runs.read(options.results) if run.split == options.split]
    for parallel, evaluations in itertools.product(parallels, budgets):
        table = report.compare(done, tasks, rows, evaluations, parallel)
        print(f"\n{report.markdown(table)}" if table else "\nthe rows have no run in common", flush=True)
        if options.each and parallel == 1:
            print(f"\n{report.listing(done, tasks, rows, evaluations)}", flush=True)
    return 0


def _run_missing(
    options: argparse.Namespace,
    tasks: tuple[problems.Task, ...],
    rows: list[str],
    budgets: list[int],
    parallels: list[int],
) -> None:
    """Run the missing combinations: all rows of a cell together, in an order that mixes the kinds of problems.

    So an interrupted comparison compares the same cells, which are representative.
    """
    warnings.simplefilter("ignore")
    done = {run.key for run in runs.read(options.results)}
    failed: set[tuple[str, str]] = set()
    mixed = sorted(tasks, key=lambda task: hashlib.sha256(task.name.encode()).hexdigest())
    for seed, parallel, task, row in itertools.product(_numbers(options.seeds), parallels, mixed, rows):
        for evaluations in budgets if row in LOOKS_AT_ITS_BUDGET else budgets[-1:]:
            key = (row, options.split, task.name, seed, parallel)
            if (*key, evaluations) in done or (row, task.name) in failed:
                continue
            start = time.monotonic()
            try:
                run = runs.run(row, options.split, task, problems.Setting(seed, evaluations, parallel))
            except Exception as error:  # noqa: BLE001  # one search that fails must not end the comparison of the others
                failed.add((row, task.name))
                print(f"{row} on {task.name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                continue
            runs.append(options.results, run)
            seconds = time.monotonic() - start
            if seconds > 5:
                print(f"{row} on {task.name}, seed {seed}: {seconds:.0f} s", file=sys.stderr, flush=True)


def _rows(text: str) -> list[str]:
    known = searches.names()
    rows = []
    for pattern in text.split(","):
        found = fnmatch.filter(known, pattern)
        if not found:
            raise SystemExit(f'no row "{pattern}"; there are {", ".join(known)}')
        rows += found
    return rows


def _matches(patterns: str, *texts: str) -> bool:
    return any(fnmatch.fnmatchcase(text, pattern) for pattern in patterns.split(",") for text in texts)


def _numbers(text: str) -> list[int]:
    if "-" in text:
        first, last = map(int, text.split("-"))
        return list(range(first, last + 1))
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
