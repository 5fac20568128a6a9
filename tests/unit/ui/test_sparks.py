"""The best so far of an experiment as a small line."""

from __future__ import annotations

from typing import Any, cast

import pytest

from katib.api.types import Experiment, Trial
from katib.tuning.service import TuningService
from katib.ui.sparks import Sparks, best_so_far, path_of
from tests.support.tuning import MemoryTuningService, condition, make_experiment, make_trial, patched


def ended(index: int, loss: str, minute: int) -> Trial:
    trial = make_trial(f"demo-{index}", condition("Succeeded"), loss=loss, index=index)
    return patched(trial, status={"completionTime": f"2030-01-01T00:{minute:02}:00Z"})


def test_a_line_has_a_corner_where_the_best_became_better_and_ends_with_the_last_trial() -> None:
    trials = [ended(0, "0.5", 3), ended(1, "0.75", 1), ended(2, "nan", 2), ended(3, "0.6", 4), ended(4, "0.25", 5)]
    trials.append(ended(5, "0.9", 9))
    points = best_so_far(make_experiment("demo"), trials)

    start = points[0][0]
    assert [(moment - start, value) for moment, value in points] == [
        (0, 0.75),
        (2 * 60, 0.5),
        (4 * 60, 0.25),
        (8 * 60, 0.25),
    ]


@pytest.mark.parametrize(
    ("points", "path"),
    [
        ([], ""),
        ([(0.0, 1.0), (0.0, 1.0)], "M2.0 12.0H2.0V12.0H94.0"),
        ([(0.0, 2.0), (10.0, 1.0), (20.0, 1.0)], "M2.0 2.0H48.0V22.0H94.0V22.0"),
    ],
    ids=["nothing", "one trial", "steps"],
)
def test_a_path_goes_in_steps(points: list[tuple[float, float]], path: str) -> None:
    assert path_of(points) == path


class Counting:
    """A service that counts how often trials are read."""

    def __init__(self, service: MemoryTuningService) -> None:
        self._service, self.read = service, 0

    def get(self, *arguments: Any) -> Any:
        return self._service.get(*arguments)

    def trials(self, *arguments: Any, **options: Any) -> Any:
        self.read += 1
        return self._service.trials(*arguments, **options)


def test_a_line_is_read_once_until_the_experiment_changes() -> None:
    service = MemoryTuningService()
    service.put(make_experiment("demo", condition("Running"), trials=1))
    service.put(ended(0, "0.5", 1))
    counting, sparks = Counting(service), Sparks()
    first = [sparks.path(cast("TuningService", counting), None, "default", "demo") for _ in range(3)]
    service.put(ended(1, "0.25", 2))
    service.put(patched(service.get(Experiment, "default", "demo"), status={"trials": 2}))
    second = sparks.path(cast("TuningService", counting), None, "default", "demo")

    assert (len(set(first)), counting.read) == (1, 2)
    assert second not in first


def test_what_cannot_be_read_has_no_line() -> None:
    assert Sparks().path(MemoryTuningService(), None, "default", "ghost") == ""
