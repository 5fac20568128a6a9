"""Parts of pages: what templates do to text, numbers, words for a state, small lines, and tables of trials."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from katib.doors.rest.streams import Closing
from katib.doors.ui.live import table_events
from katib.doors.ui.numbers import four_digits, shown_number
from katib.doors.ui.rendering import fragment, visible
from katib.doors.ui.sparks import Sparks, best_so_far, path_of
from katib.doors.ui.tables import LiveTable
from katib.doors.ui.trial_reading import Attempt
from katib.doors.ui.views import experiment_head
from katib.doors.ui.words import trial_sentence
from katib.model.marks import Marks
from katib.model.types import Experiment, Trial, TrialState
from katib.service.tuning.reading import short
from katib.service.tuning.service import Change, Diagnosis, TuningService
from tests.support.tuning import MemoryTuningService, condition, document, make_experiment, make_trial, patched
from tests.support.waiting import eventually


@pytest.mark.parametrize("mark", ["\u061c", "\u200e", "\u200f", "\u202a", "\u202e", "\u2066", "\u2069"])
def test_marks_that_turn_the_direction_of_output_are_shown(mark: str) -> None:
    assert visible(f"a{mark}b") == f"a\\u{ord(mark):04x}b"


def test_letters_of_every_direction_stay() -> None:
    assert visible("loss שלום مرحبا \u200d") == "loss שלום مرحبا \u200d"


def test_the_end_of_an_output_cannot_turn_the_direction_of_a_page() -> None:
    why = Diagnosis("Trial", "demo", "Failed", "ended \u202ewith", ("x\u2066y",), ("do\u2069",), log_tail=("a\u202eb",))
    trial = {"version": "1", "reason": "turns \u202e", "state": str(TrialState.FAILED), "name": "demo"}
    trial |= dict.fromkeys(("suspendField", "started", "ended", "best", "distance", "namespace", "experiment"), "") | {
        "values": [],
        "runs": False,
        "marks": asdict(Marks()),
    }
    values = dict.fromkeys(("files", "parameters", "observed", "replicas", "lineage", "events"), ())
    problems = {"replicas_problem": "", "events_problem": ""}
    page = fragment("parts/trial_parts.html", trial=trial, why=Attempt(why), **values, **problems)

    assert not {"\u202e", "\u2066", "\u2069"} & set(page)
    assert "a\\u202eb" in page


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, "0"),
        (32.0, "32"),
        (123_456.0, "123456"),
        (0.981_349, "0.9813"),
        (0.5, "0.5"),
        (9999.7, "10000"),
        (12_345.678, "12,346"),
        (0.000_123_456, "0.0001235"),
        (0.000_099_999_99, "0.0001"),
        (1.23456e-7, "1.235e-07"),
        (1.5e12, "1500000000000"),
        (1_000_000_001.0, "1000000001"),
        (1.5e18, "1.500e+18"),
        (-0.123_456, "-0.1235"),
        (math.inf, "inf"),
    ],
)
def test_a_number_has_four_significant_digits(value: float, expected: str) -> None:
    assert four_digits(value) == expected


@given(st.floats(-1e300, 1e300))
def test_what_is_shown_is_the_number_but_for_the_digits_behind_the_fourth(value: float) -> None:
    assert math.isclose(float(four_digits(value).replace(",", "")), value, rel_tol=5.1e-4, abs_tol=0)


def test_a_text_is_shown_as_its_number_and_other_text_as_it_is() -> None:
    kept = ["1000000001", "-1000000002", "12345678901234567890", "adam", "", "unavailable"]

    assert [shown_number(text) for text in kept] == kept
    assert [short(text) for text in kept[:3]] == kept[:3]
    assert (shown_number(0.123456), shown_number("0.123456")) == ("0.1235", "0.1235")


WORDS = [
    ("Created", "Experiment is created", ""),
    ("Running", "Experiment is running", ""),
    ("Succeeded", "Experiment has succeeded because max trial count has reached", "Finished: all 16 trials ran"),
    (
        "Succeeded",
        "Experiment has succeeded because Objective goal has reached",
        "Finished: loss reached the goal after 16 trials",
    ),
    (
        "Succeeded",
        "Experiment has succeeded because suggestion service has reached the end",
        "Finished: random has no more to try after 16 trials",
    ),
    ("Failed", "Experiment has failed because max failed count has reached", "Failed: 3 trials brought no value"),
    ("Failed", "Experiment has failed because none had a value", "Failed: none had a value"),
    ("Failed", "Suggestion has failed: no module", "Suggestion has failed: no module"),
]
TRIAL_WORDS = [
    ("Created", "Trial is created", ""),
    ("Running", "Trial is running", ""),
    ("Running", "Trial is running: waits for the second worker", "Waits for the second worker"),
    ("Succeeded", "Trial has succeeded", ""),
    ("Succeeded", "Trial has succeeded. Job message: all well", "Job message: all well"),
    ("Failed", "Trial has failed: its program ended with exit code 3", "Exit code 3."),
    ("Failed", "Trial has failed: no such file: data.csv (exit code 2)", "no such file: data.csv (exit code 2)"),
    (
        "MetricsUnavailable",
        'Metrics are not available: nothing reported "loss" within 5 s of the end of the job',
        "No value of loss in its output.",
    ),
    (
        "MetricsUnavailable",
        'Metrics are not available: the job ended without reporting "loss"; call katib.report',
        'The job ended without reporting "loss"; call katib.report',
    ),
    ("EarlyStopped", "Trial is early stopped: worse than the median", "worse than the median"),
]


@pytest.mark.parametrize(("state", "message", "expected"), WORDS, ids=[words[2] or words[0] for words in WORDS])
def test_an_experiment_says_why_only_where_its_state_does_not(state: str, message: str, expected: str) -> None:
    counts = {"trialsSucceeded": 13, "trialsFailed": 2, "trialMetricsUnavailable": 1}
    experiment = make_experiment("demo", condition(state, message=message), **counts)

    assert experiment_head(experiment)["sentence"] == expected


@pytest.mark.parametrize(
    ("state", "message", "expected"), TRIAL_WORDS, ids=[words[2] or words[0] for words in TRIAL_WORDS]
)
def test_a_trial_says_why_only_where_its_state_does_not(state: str, message: str, expected: str) -> None:
    assert trial_sentence(make_trial("demo-1", condition(state, message=message))) == expected


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


TRIALS = 2_000


class SlowService(MemoryTuningService):
    """A service whose opening listing stops in its middle until it may continue."""

    def __init__(self) -> None:
        super().__init__()
        self.submit(document("demo", trials=TRIALS), source="demo.yaml")
        self.go_on = threading.Event()

    def changes(self, namespace: str, experiment: str, *, since: str = "", **_options: Any) -> Iterator[Change]:
        if since:
            threading.Event().wait(1)
            return
        yield Change("ADDED", self.get(Experiment, namespace, experiment).encode())
        for index in range(TRIALS):
            if index == TRIALS // 2:
                self.go_on.wait(30)
            trial = make_trial(f"demo-{index:04d}", condition("Succeeded"), index=index)
            yield Change("ADDED", trial.encode(), "end" if index == TRIALS - 1 else "")


def test_a_table_that_is_still_read_shows_what_is_there_and_notifies_a_few_times() -> None:
    service, closing, noticed = SlowService(), Closing(), list[int]()
    table = LiveTable(service, "default", "demo", closing)
    end = table.watch(lambda: noticed.append(1))

    eventually(lambda: table.snapshot(wait_seconds=0.1).trials.names.size == TRIALS // 2)
    partial = table.snapshot()
    service.go_on.set()
    whole = table.snapshot(wait_seconds=30)
    end()
    closing.begin()

    assert not partial.complete
    assert whole.complete
    assert len(whole.trials) == TRIALS
    assert whole.version > partial.version
    assert len(noticed) < TRIALS / 10


def test_a_table_that_is_made_later_has_later_versions() -> None:
    service, closing = SlowService(), Closing()
    service.go_on.set()

    first = LiveTable(service, "default", "demo", closing).snapshot(wait_seconds=30)
    second = LiveTable(service, "default", "demo", closing).snapshot(wait_seconds=30)
    closing.begin()

    assert first.complete
    assert second.version > first.version


def test_the_stream_of_a_table_that_was_given_up_ends_so_that_the_page_gets_another() -> None:
    service, closing = MemoryTuningService(), Closing()
    service.submit(document("demo"), source="demo.yaml")
    table = LiveTable(service, "default", "demo", closing)
    table.snapshot(wait_seconds=30)
    table.give_up()

    async def read() -> list[bytes]:
        return [part async for part in table_events(table, closing)]

    assert any(part.startswith(b"event: change") for part in asyncio.run(asyncio.wait_for(read(), 60)))
