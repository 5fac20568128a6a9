"""Value of `--repeats`: the true value of the named best, and its optimism, for the same number of runs.

`python -m benchmarks.repeats` searches 20 problems with noise of 5 and 20 % of their range in three ways: one run of
each configuration, N of each, and up to N with the race. It prints by noise, in shares of the range: how far the true
value of the best configuration is above that of the best way, and the optimism of its value; the number of
configurations; and how often the race ended one that is truly better than the best at that moment.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from benchmarks.confirm import NOISES, problems, range_of
from benchmarks.search import searches
from benchmarks.search.problems import Setting, Task
from katib.model.features.repeats.race import Sample, Spread, cannot_win
from katib.model.features.repeats.runs import sample_of

WAYS = ("one run", "all runs", "race")


@dataclass(frozen=True, slots=True)
class SearchedValue:
    """One search.

    Attributes:
        true: True value of the named best.
        stated: Value that the search states for it.
        configurations: Number of configurations.
        wrong: Share of the ended configurations that were truly better than the best.
    """

    true: float
    stated: float
    configurations: int
    wrong: float = 0.0


def searched(task: Task, algorithm: str, way: str, noise: float, seed: int, repeats: int, budget: int) -> SearchedValue:
    """Search a problem with noise, one run at a time."""
    random, scale = Random(f"{task.name} {noise} {seed}"), range_of(task)
    each = 1 if way == "one run" else repeats
    search, used = searches.build(algorithm, task, Setting(seed, budget, 1)), 0
    done: list[tuple[bool, Sample, float]] = []
    ended, wrong = 0, 0
    while used < budget and (asked := search.ask()) is not None:
        true = task.evaluate(asked[1]) / scale
        values: list[float] = []
        while used < budget and len(values) < each:
            values.append(true + random.gauss(0, noise))
            used += 1
            best = best_of(done)
            samples = [*(sample for _, sample, _ in done), sample_of(values)]
            spread = Spread(sum(one.squares for one in samples), sum(one.number - 1 for one in samples))
            if way == "race" and best and len(values) < each and cannot_win(samples[-1], best[0], spread):
                ended, wrong = ended + 1, wrong + (true < best[1])
                break
        done.append((len(values) == each, sample_of(values), true))
        search.tell(asked[0], done[-1][1].mean)
    found = best_of(done) or (done[0][1], done[0][2])
    return SearchedValue(found[1], found[0].mean, len(done), wrong / ended if ended else 0.0)


def best_of(done: Sequence[tuple[bool, Sample, float]]) -> tuple[Sample, float] | None:
    """Return the best mean of all runs, and its true value."""
    whole = [(sample, true) for is_whole, sample, true in done if is_whole]
    return min(whole, key=lambda pair: pair[0].mean, default=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--algorithm", default="katib:tpe")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--budget", type=int, default=60)
    given = parser.parse_args()
    mean = statistics.fmean
    for noise in NOISES:
        found: dict[str, list[tuple[float, SearchedValue]]] = {way: [] for way in WAYS}
        for task in problems():
            for seed in range(given.seeds):
                outcomes = [
                    searched(task, given.algorithm, way, noise, seed, given.repeats, given.budget) for way in WAYS
                ]
                least = min(one.true for one in outcomes)
                for way, one in zip(WAYS, outcomes, strict=True):
                    found[way].append((one.true - least, one))
        for way, rows in found.items():
            print(
                f"noise {noise:.0%}, {way}: {mean(regret for regret, _ in rows):.3f} above the best way, "
                f"optimism {mean(one.true - one.stated for _, one in rows):.3f}, "
                f"{mean(one.configurations for _, one in rows):.1f} configurations, "
                f"{mean(one.wrong for _, one in rows):.1%} ended wrongly",
                flush=True,
            )


if __name__ == "__main__":
    main()
