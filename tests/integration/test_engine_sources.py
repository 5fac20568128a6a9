"""The engine with every kind of collector, on real processes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from katib.model.types import Experiment, Trial
from katib.places.machine import open_engine
from katib.service.tuning.service import TuningService
from katib.service.tuning.states import is_completed, last_condition, objective_value, state_of
from metrics_collector.sources.prometheus import PrometheusEndpoint
from tests.support.experiments import an_experiment

NS = "default"
PROGRAM = Path(__file__).parents[1] / "support" / "exporting_program.py"

PUSHES = (
    "import os, signal, threading; "
    "from datetime import UTC, datetime; "
    "from katib.model.metrics import MetricLog; "
    "from katib.wire.rpc.db_manager_client import DbManagerClient; "
    "from katib.wire.rpc.credentials import DbManagerCredentials; "
    "log = DbManagerClient(os.environ['KATIB_DB_MANAGER_ADDRESS'], credentials=DbManagerCredentials.of(os.environ)); "
    "ended = threading.Event(); signal.signal(signal.SIGTERM, lambda *_: ended.set()); "
    "open('/out/ready', 'w').close(); "
    "ended.wait(60); "
    "log.report(os.environ['KATIB_TRIAL_NAME'], [MetricLog(datetime.now(UTC), 'loss', open('/out/loss').read())])"
)


def run(directory: Path, raw: dict[str, Any], service: TuningService) -> list[Trial]:
    """Run an experiment to its end and return its trials."""
    service.submit(yaml.safe_dump(raw), source=str(directory / "demo.yaml"))
    for change in service.changes(NS, "demo", timeout_seconds=180):
        if isinstance(change.object, Experiment) and is_completed(change.object):
            return list(service.trials(NS, "demo").items)
    raise AssertionError(service.why(NS, "demo"))


def test_endpoints_of_trials_side_by_side_are_scraped(tmp_path: Path) -> None:
    raw = an_experiment(
        command=f"{sys.executable} {PROGRAM} $KATIB_METRICS_PORT 0.5 ${{trialParameters.learningRate}}",
        metricsCollectorSpec={"collector": {"kind": "PrometheusMetric"}},
        maxTrialCount=2,
    )
    with open_engine(tmp_path) as engine:
        engine.start()
        trials = run(tmp_path, raw, engine.service)

        assert [state_of(trial) for trial in trials] == ["Succeeded"] * 2
        assert all(len(engine.service.metrics(NS, trial.name)) == 2 for trial in trials)
        assert all(float(objective_value(trial) or "nan") <= 0.1 for trial in trials)


ENDS_SLOWLY = """
import http.server, os, signal, threading
loss = ["0.9"]

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(f"loss {loss[0]}".encode() + bytes([10]))
        if loss[0] != "0.9":
            threading.Thread(target=server.shutdown).start()
        loss[0] = "0.7"  # for whoever asks next

server = http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["KATIB_METRICS_PORT"])), Handler)
signal.signal(signal.SIGTERM, lambda *_: None)
server.serve_forever()
"""


def test_an_endpoint_is_scraped_at_once_when_its_program_is_told_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PrometheusEndpoint.__init__.__kwdefaults__, "interval_seconds", 3600.0)
    (tmp_path / "program.py").write_text(ENDS_SLOWLY)
    raw = an_experiment(
        command=f"exec {sys.executable} {tmp_path}/program.py ${{trialParameters.learningRate}}",
        metricsCollectorSpec={"collector": {"kind": "PrometheusMetric"}},
        earlyStopping={"algorithmName": "threshold", "algorithmSettings": [{"name": "bound", "value": "0.5"}]},
        maxTrialCount=1,
        parallelTrialCount=1,
    )
    with open_engine(tmp_path / "data") as engine:
        engine.start()
        (trial,) = run(tmp_path, raw, engine.service)

        assert state_of(trial) == "EarlyStopped"
        assert [log.value for log in engine.service.metrics(NS, trial.name)] == ["0.9", "0.7"]


def test_an_endpoint_that_never_answers_is_explained(tmp_path: Path) -> None:
    spec = {"collector": {"kind": "PrometheusMetric"}}
    raw = an_experiment(metricsCollectorSpec=spec, maxTrialCount=1, parallelTrialCount=1)
    with open_engine(tmp_path) as engine:
        engine.start()
        (trial,) = run(tmp_path, raw, engine.service)

        assert state_of(trial) == "MetricsUnavailable"
        assert "no answer from http://localhost:" in last_condition(trial).message


def test_event_files_of_each_trial_are_read(tmp_path: Path) -> None:
    writer = "from tests.support.event_records import write; write('/logs', [0.5, ${trialParameters.learningRate}])"
    raw = an_experiment(
        command=f'cd {PROGRAM.parents[2]} && {sys.executable} -c "{writer}"',
        objective={"type": "minimize", "objectiveMetricName": "loss", "additionalMetricNames": ["logs/part1/loss"]},
        metricsCollectorSpec={
            "collector": {"kind": "TensorFlowEvent"},
            "source": {"fileSystemPath": {"path": "/logs", "kind": "Directory"}},
        },
        maxTrialCount=2,
    )
    with open_engine(tmp_path) as engine:
        engine.start()
        trials = run(tmp_path, raw, engine.service)

        assert [state_of(trial) for trial in trials] == ["Succeeded"] * 2
        readings = [engine.service.metrics(NS, trial.name, metric="loss") for trial in trials]
        assert [[log.step for log in logs] for logs in readings] == [[1, 2]] * 2
        others = [engine.service.metrics(NS, trial.name, metric="logs/part1/loss") for trial in trials]
        assert [len(logs) for logs in others] == [1, 1]
        assert len({objective_value(trial) for trial in trials}) == 2


def test_a_collector_of_the_users_runs_beside_the_trial_and_pushes(tmp_path: Path) -> None:
    custom = {"name": "mine", "image": "mine:1", "command": [sys.executable, "-c", PUSHES]}
    raw = an_experiment(
        command="while ! [ -e /out/ready ]; do sleep 0.05; done; echo ${trialParameters.learningRate} > /out/loss",
        metricsCollectorSpec={
            "collector": {"kind": "Custom", "customCollector": custom},
            "source": {"fileSystemPath": {"path": "/out", "kind": "Directory"}},
        },
        maxTrialCount=2,
    )
    with open_engine(tmp_path) as engine:
        engine.start()
        trials = run(tmp_path, raw, engine.service)

        assert [state_of(trial) for trial in trials] == ["Succeeded"] * 2
        assert len({objective_value(trial) for trial in trials}) == 2


def test_a_trial_that_nothing_is_collected_of_succeeds(tmp_path: Path) -> None:
    raw = an_experiment(
        command="true ${trialParameters.learningRate}",
        metricsCollectorSpec={"collector": {"kind": "None"}},
        maxTrialCount=2,
    )
    with open_engine(tmp_path) as engine:
        engine.start()
        trials = run(tmp_path, raw, engine.service)

        assert [last_condition(trial).reason for trial in trials] == ["TrialSucceededUnmeasured"] * 2
        assert engine.service.best(NS, "demo") is None
