"""`katib export`."""

from __future__ import annotations

import re
import sys
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest

from katib.doors.rest.server import Server
from katib.model.metrics import MetricLog
from katib.service.histories.reading import read_source
from metrics_collector.sources.event_directory import EventDirectory
from tests.support.golden import Golden
from tests.support.hostile import SCRIPT, hostile_service
from tests.support.reports import data_of
from tests.support.tuning import START, MemoryTuningService, condition, make_experiment, make_trial
from tests.unit.cli.conftest import Katib

SCRIPTS = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def put_run(service: MemoryTuningService, *losses: str, namespace: str = "default") -> None:
    service.put(make_experiment("demo", condition("Succeeded", message="all trials ran"), namespace=namespace))
    for index, loss in enumerate(losses):
        service.put(
            make_trial(f"demo-{index}", condition("Succeeded"), namespace=namespace, loss=loss, index=index, x=loss)
        )


def test_the_page_of_an_experiment_is_one_file(katib: Katib, service: MemoryTuningService, tmp_path: Path) -> None:
    put_run(service, "0.5", "0.25", "0.75")
    code, out, _ = katib("export", "demo", "--to", "html")

    text = (tmp_path / "demo.html").read_text()
    data = data_of(text)
    columns = {column["key"]: column["values"] for column in data["trials"]["columns"]}
    assert code == 0
    assert out.startswith("demo.html: 3 trials, ")
    assert {"history", "parallel", "slice"} <= set(data["figures"])
    assert (columns["trial"], columns["loss"]) == (["demo-0", "demo-1", "demo-2"], [0.5, 0.25, 0.75])
    assert (data["trials"]["best"], data["trials"]["sort"]) == (1, {"key": "loss", "descending": False})
    assert "<strong>Succeeded</strong>: all trials ran" in text
    assert "kind: Experiment" in text


def test_the_policy_lets_nothing_in_and_only_the_two_scripts_run(
    katib: Katib, service: MemoryTuningService, tmp_path: Path
) -> None:
    put_run(service, "0.5")
    katib("export", "demo")

    text = (tmp_path / "demo.html").read_text()
    [policy] = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    [script] = SCRIPTS.findall(text)
    digest = b64encode(sha256(script.encode()).digest()).decode()
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert len(rules["script-src"].split()) == 2
    assert f"'sha256-{digest}'" in rules["script-src"]
    assert not [mark for mark in ('src="http', 'href="http', "@import", "url(http") if mark in text]


def test_the_suffix_of_the_file_decides_what_it_holds(
    katib: Katib, service: MemoryTuningService, tmp_path: Path
) -> None:
    put_run(service, "0.5")

    assert katib("export", "demo", "-o", "a.csv").code == 0
    assert (tmp_path / "a.csv").read_text().startswith("trial,number,state,loss,")


@pytest.mark.parametrize("command", ["export", "plot"])
def test_without_a_name_the_newest_experiment_is_written(
    katib: Katib, service: MemoryTuningService, tmp_path: Path, command: str
) -> None:
    put_run(service, "0.5")

    assert katib(command).code == 0
    assert (tmp_path / "demo.html").exists()


def test_what_others_choose_is_text(katib: Katib, tmp_path: Path) -> None:
    with Server(hostile_service(), host="127.0.0.1", port=0) as server:
        code, _, _ = katib("export", "demo", "--server", server.url)

    text = (tmp_path / "demo.html").read_text()
    assert code == 0
    assert "<script>w" not in text
    assert "<img src=x" not in text
    assert f"loss{SCRIPT}".replace('"', "'") in [column["name"] for column in data_of(text)["trials"]["columns"]]


def test_an_experiment_without_trials_has_a_page(katib: Katib, service: MemoryTuningService, tmp_path: Path) -> None:
    service.put(make_experiment("fresh"))

    assert katib("export", "fresh", "-o", "one.html").out.startswith("one.html: 0 trials, ")
    text = (tmp_path / "one.html").read_text()
    assert "No trial yet." in text
    assert data_of(text) == {"figures": {}, "trials": None}


@pytest.mark.parametrize(
    ("form", "read"),
    [
        pytest.param("csv", pd.read_csv, id="csv"),
        pytest.param("json", partial(pd.read_json, precise_float=True), id="json"),
        pytest.param("parquet", pd.read_parquet, id="parquet"),
    ],
)
def test_trials_are_exported_as_a_table_that_pandas_reads(
    katib: Katib, service: MemoryTuningService, tmp_path: Path, form: str, read: Callable[[Path], pd.DataFrame]
) -> None:
    put_run(service, "0.5", "0.1234567890123456")
    code, out, _ = katib("export", "demo", "--to", form)

    found = read(tmp_path / f"demo.{form}").astype({"x": float})  # the experiment does not describe it
    assert code == 0
    assert out.startswith(f"demo.{form}: 2 trials, ")
    assert found[["trial", "state", "loss", "x"]].to_dict("records") == [
        {"trial": "demo-0", "state": "Succeeded", "loss": 0.5, "x": 0.5},
        {"trial": "demo-1", "state": "Succeeded", "loss": 0.1234567890123456, "x": 0.1234567890123456},
    ]


def test_a_table_may_go_to_standard_output(katib: Katib, service: MemoryTuningService, tmp_path: Path) -> None:
    put_run(service, "0.5")

    assert katib("export", "demo", "--to", "csv", "-o", "-").out.startswith("trial,number,state,loss,")
    assert not list(tmp_path.glob("demo*"))


def put_curve(service: MemoryTuningService) -> None:
    """Put an experiment with a trial that reported, one that failed, and one that runs."""
    put_run(service, "0.25")
    for name, state in (("demo-failed", "Failed"), ("demo-runs", "Running")):
        service.put(make_trial(name, condition(state), index=1))
    for step, value in enumerate(("0.5", "0.25")):
        service.store_readings("demo-0", MetricLog(START, "loss", value, step))


def test_tensorboard_gets_the_curves_and_the_parameters_once(
    katib: Katib, service: MemoryTuningService, tmp_path: Path
) -> None:
    pytest.importorskip("tensorboardX")
    put_curve(service)

    assert katib("export", "demo", "--to", "tensorboard").out == "demo-tensorboard: 2 trials written\n"
    place = tmp_path / "demo-tensorboard"
    events = EventDirectory(place / "demo-0", ["loss"])
    assert [(one.value, one.step) for part in events.poll() for one in part] == [("0.5", 0), ("0.25", 1)]
    events.close()
    [file] = (place / "demo-0").iterdir()
    assert b"_hparams_/session_start_info" in file.read_bytes()
    assert sorted(path.name for path in place.iterdir()) == ["demo-0", "demo-failed"]
    assert katib("export", "demo", "--to", "tensorboard").out == "demo-tensorboard: 0 trials written\n"


@pytest.mark.slow
@pytest.mark.skipif(find_spec("mlflow") is None, reason="mlflow is not installed")
@pytest.mark.filterwarnings("default")
def test_mlflow_gets_a_run_for_each_trial_once(katib: Katib, service: MemoryTuningService, tmp_path: Path) -> None:
    put_curve(service)
    uri = f"sqlite:///{tmp_path}/mlflow.db"

    assert katib("export", "demo", "--to", "mlflow", "-o", uri).out == f"{uri}: 2 trials written\n"
    assert katib("export", "demo", "--to", "mlflow", "-o", uri).out == f"{uri}: 0 trials written\n"
    source = read_source(uri, study="", objectives=(), parameters=())
    by_failure = {record.failure is None: record for record in source.records}
    assert [(one.step, one.value) for one in by_failure[True].curve] == [(0, "0.5"), (1, "0.25")]
    assert by_failure[True].parameters == {"x": 0.25}
    assert by_failure[False].failure == "it failed in MLflow"


@pytest.mark.parametrize("form", ["mlflow", "tensorboard"])
def test_a_package_that_is_missing_is_named(
    katib: Katib, service: MemoryTuningService, monkeypatch: pytest.MonkeyPatch, form: str, golden: Golden
) -> None:
    put_curve(service)
    monkeypatch.setitem(sys.modules, "mlflow" if form == "mlflow" else "tensorboardX", None)
    code, _, err = katib("export", "demo", "--to", form)

    assert code == 2
    golden(err)


def test_a_cluster_may_be_asked(katib: Katib, cluster: object, service: MemoryTuningService, tmp_path: Path) -> None:
    put_run(service, "1", namespace="team")

    assert katib("export", "demo", "--context", "work").code == 0


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["ghost"], 'experiment "ghost" is not in namespace default'),
        (["demo", "-o", "gone/x.html"], "gone/x.html: there is no directory gone; name a file in a directory that"),
        (["demo", "-o", "."], ".: it is a directory; name a file in a directory that exists"),
        (["demo", "-o", "csv"], "csv: the name has no suffix, so the form is not known; end the name with .html, .csv"),
        (["demo", "--to", "pdf"], "'pdf' is not one of 'html', 'csv', 'json', 'parquet', 'mlflow', 'tensorboard'"),
    ],
    ids=["experiment", "directory", "is a directory", "suffix", "form"],
)
def test_what_is_wrong_is_said_and_nothing_is_written(
    katib: Katib, service: MemoryTuningService, tmp_path: Path, arguments: list[str], line: str
) -> None:
    put_run(service, "1")
    code, out, err = katib("export", *arguments)

    assert (code, out) == (2, "")
    assert line in err
    assert not list(tmp_path.glob("*.html"))
