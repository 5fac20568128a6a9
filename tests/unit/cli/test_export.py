"""`katib export`."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path

import pandas as pd
import pytest

from katib.rest.server import Server
from tests.support.hostile import SCRIPT, hostile_service
from tests.support.reports import data_of
from tests.support.tuning import MemoryTuningService, condition, make_experiment, make_trial
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


def test_a_cluster_may_be_asked(katib: Katib, cluster: object, service: MemoryTuningService, tmp_path: Path) -> None:
    put_run(service, "1", namespace="team")

    assert katib("export", "demo", "--context", "work").code == 0


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["ghost"], 'experiment "ghost" is not in namespace default'),
        (["demo", "-o", "gone/x.html"], "gone/x.html: there is no directory gone; name a file in a directory that"),
        (["demo", "-o", "."], ".: it is a directory; name a file in a directory that exists"),
        (["demo", "--to", "pdf"], "'pdf' is not one of 'html', 'csv', 'json', 'parquet'"),
    ],
    ids=["experiment", "directory", "is a directory", "form"],
)
def test_what_is_wrong_is_said_and_nothing_is_written(
    katib: Katib, service: MemoryTuningService, tmp_path: Path, arguments: list[str], line: str
) -> None:
    put_run(service, "1")
    code, out, err = katib("export", *arguments)

    assert (code, out) == (2, "")
    assert line in err
    assert not list(tmp_path.glob("*.html"))
