"""All problems together, and the search for the optima of the trainings: `python -m benchmarks.search.suite`."""

from __future__ import annotations

from functools import cache

from benchmarks.search import bbob, conditional, many, mixed, runs, trainings
from benchmarks.search.problems import Setting, Task


@cache
def tasks(split: str) -> tuple[Task, ...]:
    """Return the problems of a split: `development`, `final`, `many` or `many-final`."""
    if split.startswith("many"):
        return tuple(many.tasks(split))
    return tuple(task for source in (bbob, mixed, conditional, trainings) for task in source.tasks(split))


def main() -> None:
    """Search for losses below the optima of `trainings`, by random search and TPE, and print the result."""
    for split in ("final", "development"):
        for task in trainings.tasks(split):
            found = [
                runs.run(name, split, task, Setting(seed, evaluations, 1)).best(evaluations)
                for name, evaluations in (("random", 500), ("optuna:multivariate-tpe", 400), ("optuna:cmaes", 300))
                for seed in (1000,)
            ]
            print(f'    "{task.name}": {min(found):.5f},', flush=True)


if __name__ == "__main__":
    main()
