"""The set of an experiment's best trials, kept current trial by trial."""

from __future__ import annotations

from random import Random

import pytest

from katib.engine.controllers.pareto_set import ParetoSet


@pytest.mark.parametrize("objectives", [2, 3])
@pytest.mark.parametrize("seed", range(10))
def test_what_it_says_is_what_a_new_one_says_of_the_same_trials(seed: int, objectives: int) -> None:
    random, kept = Random(seed), ParetoSet()
    trials: dict[str, tuple[int, tuple[float, ...]]] = {}
    for _ in range(80):
        name = f"t{random.randrange(40)}"
        kept.remove(name)
        if name in trials and random.random() < 0.3:
            del trials[name]
        else:
            order = trials[name][0] if name in trials else len(name) + random.randrange(100)
            trials[name] = order, tuple(float(random.randrange(12)) for _ in range(objectives))
            kept.add(name, *trials[name])
        fresh = ParetoSet()
        for other, place in sorted(trials.items(), key=lambda _: random.random()):
            fresh.add(other, *place)

        assert kept.summary() == fresh.summary()


def test_a_trial_that_is_written_again_changes_nothing() -> None:
    """As its status is when its job is removed: what the set is summed up to is not computed anew."""
    kept = ParetoSet()
    for i, point in enumerate([(0.0, 3.0), (1.0, 1.0), (3.0, 0.0), (4.0, 4.0)]):
        kept.add(f"t{i}", i, point)
    summary = kept.summary()

    for i, point in [(1, (1.0, 1.0)), (3, (4.0, 4.0))]:
        kept.remove(f"t{i}")
        kept.add(f"t{i}", i, point)

        assert kept.summary() is summary
