"""`katib ask` and `katib tell`, with controllers behind the service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from katib.doors.cli import connection
from katib.doors.cli.connection import Connected
from katib.model.types import Experiment, Trial
from katib.service.tuning.service import TuningService
from katib.service.tuning.states import is_completed, state_of
from tests.support.asking import over_controllers
from tests.support.experiments import an_experiment
from tests.support.golden import Golden
from tests.support.waiting import eventually
from tests.unit.cli.conftest import Katib, Result


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[TuningService]:
    """A service that every command connects to."""
    with over_controllers() as service:

        @contextmanager
        def connect(*_arguments: object, **_options: object) -> Iterator[Connected]:
            yield Connected(service, "default")

        monkeypatch.setattr(connection, "connect", connect)
        yield service


def submit(service: TuningService, **spec: Any) -> None:
    service.submit(json.dumps(an_experiment(trialTemplate=None, **spec)), source="demo.yaml")


def given(done: Result) -> dict[str, Any]:
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


def test_a_trial_is_asked_for_and_told(katib: Katib, asked: TuningService, golden: Golden) -> None:
    submit(asked, maxTrialCount=1, parallelTrialCount=1)
    trial = given(katib("ask", "demo", "--client", "me"))["trial"]
    told = katib("tell", "demo", trial, "loss=0.1")
    eventually(lambda: is_completed(asked.get(Experiment, "default", "demo")))
    over = katib("ask", "demo")

    assert (told.code, told.out) == (0, f"trial/{trial}: ended\n")
    assert asked.get(Experiment, "default", "demo").status.current_optimal_trial.best_trial_name == trial
    assert (over.code, over.out) == (1, "")
    golden(over.err)


def test_a_request_that_is_repeated_gets_the_same_trial_with_its_numbers(katib: Katib, asked: TuningService) -> None:
    submit(asked)

    assert given(katib("ask", "demo"))["parameters"] == {"lr": 0.01}

    submit(asked)
    first, again = (given(katib("ask", "demo", "--request-id", "one")) for _ in range(2))

    assert first == again


@pytest.mark.parametrize(
    ("options", "state"),
    [pytest.param(("--failed", "no memory"), "Failed", id="failed"), pytest.param(("--stopped",), "EarlyStopped")],
)
def test_a_trial_may_fail_or_be_stopped(
    katib: Katib, asked: TuningService, options: tuple[str, ...], state: str
) -> None:
    submit(asked)
    trial = given(katib("ask", "demo"))["trial"]

    assert katib("tell", "demo", trial, *options).code == 0
    eventually(lambda: state_of(asked.get(Trial, "default", trial)) == state)


def test_nothing_free_within_the_time_is_said(katib: Katib, asked: TuningService) -> None:
    submit(asked, parallelTrialCount=1)
    katib("ask", "demo")
    none = katib("ask", "demo", "--wait", "100ms")

    assert none.code == 1
    assert none.err.startswith("experiment/demo: no trial: ")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        pytest.param(("loss",), '"loss" is no METRIC=VALUE', id="no value"),
        pytest.param((), "give METRIC=VALUE, --failed or --stopped", id="nothing"),
        pytest.param(("loss=1", "loss=2"), "loss has two values", id="twice"),
        pytest.param(("loss=low",), "is not a number", id="text"),
    ],
)
def test_what_is_told_wrongly_is_explained(
    katib: Katib, asked: TuningService, words: tuple[str, ...], told: str
) -> None:
    submit(asked)
    done = katib("tell", "demo", given(katib("ask", "demo"))["trial"], *words)

    assert done.code == 2
    assert told in done.err


def test_a_trial_of_another_experiment_is_not_told(katib: Katib, asked: TuningService) -> None:
    submit(asked)
    done = katib("tell", "other", given(katib("ask", "demo"))["trial"], "loss=1")

    assert (done.code, "it belongs to demo" in done.err) == (2, True)


def test_run_refuses_a_file_that_nothing_would_evaluate(katib: Katib, tmp_path: Any) -> None:
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(an_experiment(trialTemplate=None)))
    done = katib("run", str(file))

    assert done.code == 2
    assert "spec.trialTemplate: it is missing" in done.err
