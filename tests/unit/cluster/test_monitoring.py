"""What Prometheus and probes read."""

from __future__ import annotations

import json
import logging
import urllib.error
import urllib.request
from typing import Any

import pytest
from prometheus_client.exposition import generate_latest

from katib.engine.controllers.metrics import ControllerMetrics, check_page
from katib.engine.runtime.controller import DONE, Controller, ReconcileResult
from katib.engine.runtime.objects import Key
from katib.places.cluster.monitoring.health import ClusterMetrics, serve_pages
from katib.places.cluster.monitoring.log_records import JsonFormatter, ReconcileFields
from tests.support.controllers import JobEnd, World
from tests.support.experiments import an_experiment
from tests.support.waiting import eventually


def read(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_what_happens_to_experiments_and_trials_is_counted_under_katib_s_names() -> None:
    expected = {
        'katib_experiment_created_total{namespace="default"} 1.0',
        'katib_experiment_succeeded_total{namespace="default"} 1.0',
        'katib_trial_created_total{namespace="default"} 4.0',
        'katib_trial_succeeded_total{namespace="default"} 3.0',
        'katib_trial_failed_total{namespace="default"} 1.0',
        'katib_experiments_current{namespace="default",status="Succeeded"} 1.0',
        'katib_trials_current{namespace="default",status="Succeeded"} 3.0',
        'katib_trials_current{namespace="default",status="Failed"} 1.0',
    }
    metrics = ControllerMetrics()
    ends = {"0.010": JobEnd("Failed", "BackoffLimitExceeded", readings=())}

    def script(made: object) -> JobEnd:
        return ends.get(made.spec.parameter_assignments[0].value, JobEnd())  # type: ignore[attr-defined]

    world = World(script=script)
    metrics.follow(world.caches)
    with world:
        world.submit(an_experiment(maxTrialCount=4))
        world.ended()
        eventually(lambda: expected <= set(generate_latest(metrics.registry).decode().splitlines()))


def test_a_restarted_controller_counts_nothing_that_happened_before() -> None:
    with World() as world:
        world.submit(an_experiment(maxTrialCount=2))
        world.ended()
    metrics = ControllerMetrics()
    again = World(world.store, observations=world.observations)
    metrics.follow(again.caches)
    with again:
        text = generate_latest(metrics.registry).decode()

    assert "katib_trial_created_total{" not in text
    assert 'katib_trials_current{namespace="default",status="Succeeded"} 2.0' in text


def test_pages_answer_and_checks_say_which_one_fails() -> None:
    metrics = ClusterMetrics()
    metrics.requests.labels("create", "kubeflow.org", "trials", "201").inc()
    pages = {
        "/healthz": check_page(dict),
        "/readyz": check_page(lambda: {"webhooks": False, "caches": True}),
        "/metrics": metrics.page,
        "/broken": lambda: next(iter(())),
    }
    with serve_pages("127.0.0.1:0", pages) as port:
        answers = {path: read(port, path) for path in [*pages, "/nothing"]}
        with pytest.raises(urllib.error.HTTPError, match="405"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", data=b"")

    assert answers["/healthz"] == (200, "{}")
    assert answers["/readyz"][0] == 503
    assert json.loads(answers["/readyz"][1]) == {"webhooks": False, "caches": True}
    assert (
        'katib_api_requests_total{group="kubeflow.org",resource="trials",status="201",verb="create"} 1.0'
        in answers["/metrics"][1]
    )
    assert answers["/nothing"][0] == 404
    assert answers["/broken"][0] == 500
    with serve_pages("0", pages) as port:
        assert port == 0


@pytest.mark.parametrize("broken", [False, True])
def test_a_log_line_is_one_json_object_with_its_reconcile_id(broken: bool) -> None:
    error = ValueError("no\nway")
    exc_info = (ValueError, error, None) if broken else None
    record = logging.LogRecord(
        "katib.engine.runtime", logging.WARNING, "f.py", 1, "Reconcile %s", ("failed",), exc_info
    )
    record.reconcile_id = "trial-controller-7"
    line = JsonFormatter().format(record)

    assert "\n" not in line
    written = json.loads(line)
    assert (written["level"], written["message"]) == ("warning", "Reconcile failed")
    assert written["reconcile_id"] == "trial-controller-7"
    assert ("ValueError: no\nway" in written.get("traceback", "")) is broken


def test_what_others_log_during_a_reconcile_carries_its_id() -> None:
    """The connection to the API server, say, knows nothing of reconciles."""
    handler = _Lines()
    handler.setFormatter(JsonFormatter())
    handler.addFilter(ReconcileFields())
    logger = logging.getLogger("katib.places.cluster.client.somewhere")
    logger.addHandler(handler)

    def reconcile(_key: Key) -> ReconcileResult:
        logger.warning("Request sent again", extra={"key": "its own"})
        return DONE

    try:
        logger.warning("Before")
        controller = Controller("trial-controller", reconcile)
        controller.queue.add(Key("team", "a"))
        controller.process_next()
    finally:
        logger.removeHandler(handler)
    before, during = handler.lines

    assert "reconcile_id" not in before
    assert (during["reconcile_id"], during["controller"]) == ("trial-controller-1", "trial-controller")
    assert during["key"] == "its own"


class _Lines(logging.Handler):
    """Keeps what would be written."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(self.format(record)))
