"""What Katib's own page is answered: its forms, without what breaks them there."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta, timezone

import pytest

from katib.doors.ui.katib_forms import (
    PIPELINE_RUN,
    architecture_graph,
    architecture_rows,
    experiment_csv,
    experiment_row,
    template_rows,
    trial_csv,
)
from katib.model.metrics import MetricLog
from tests.support.tuning import condition, make_experiment, make_trial, patched

MOMENT = datetime(2030, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)
DONE = condition("Succeeded")


def test_the_status_of_an_experiment_lies_beside_its_name() -> None:
    experiment = make_experiment("demo", condition("Created"), condition("Running"), trials=3, trialsFailed=1)
    row = experiment_row(experiment)

    assert (row["name"], row["namespace"], row["type"], row["status"]) == ("demo", "default", "hp", "Running")
    assert (row["trials"], row["trialsFailed"], len(row["conditions"])) == (3, 1, 2)

    experiment = patched(make_experiment(), spec={"nasConfig": {"operations": []}}, status=None)

    assert experiment_row(experiment) == {"name": "demo", "namespace": "default", "type": "nas", "status": "Created"}


def test_the_table_of_an_experiment_has_the_best_that_was_ever_read() -> None:
    experiment = patched(make_experiment(), spec={"objective": {"additionalMetricNames": ["accuracy"]}})
    experiment = patched(experiment, spec={"parameters": [{"name": "x"}, {"name": "opt"}]})
    good = make_trial("good", DONE, x="0.1", opt="adam")
    metrics = [
        {"name": "accuracy", "min": "0.2", "max": "0.9", "latest": "0.5"},
        {"name": "loss", "min": "0.1", "max": "3", "latest": "0.4"},
        {"name": "undeclared", "min": "1", "max": "1", "latest": "1"},
    ]
    good = patched(good, status={"observation": {"metrics": metrics}})
    running = make_trial("running", condition("Running"), loss="0.7", x="0.2", opt="sgd")
    stopped = make_trial("stopped", condition("EarlyStopped"), loss="0.5", x="0.3", opt="a,b")
    unread = make_trial("unread", DONE, loss="unavailable", x="0.4", opt='say "x"')

    averaged = patched(good, status={"observation": {"metrics": [{**metrics[1], "mean": "0.25"}]}})
    assert experiment_csv(experiment, [averaged]).splitlines()[1] == "Succeeded,good,0.25,,0.1,adam"
    assert experiment_csv(experiment, [good, running, stopped, unread]) == (
        "Status,trialName,loss,accuracy,x,opt\n"
        "Succeeded,good,0.1,0.2,0.1,adam\n"
        "Running,running,,,0.2,sgd\n"
        'EarlyStopped,stopped,0.5,,0.3,"a,b"\n'
        'Succeeded,unread,,,0.4,"say ""x"""'
    )


def test_tables_of_pipelines_have_their_columns_and_heads() -> None:
    trial = patched(make_trial("demo-0", DONE, loss="0.5", x="0.1"), metadata={"annotations": {PIPELINE_RUN: "run-7"}})
    lines = experiment_csv(make_experiment(), [trial, make_trial("demo-1", x="0.2")]).split("\n")

    assert lines == ["Status,trialName,loss,x,KFP Run", "Succeeded,demo-0,0.5,0.1,run-7", "Created,demo-1,,0.2,"]

    experiment = patched(make_experiment(), spec={"parameters": [{"name": "x"}]})

    assert experiment_csv(experiment, []) == "Status,trialName,loss,x"

    trial = make_trial("demo-0", DONE, loss="0.5", x="a\nb,c")
    rows = list(csv.reader(io.StringIO(experiment_csv(make_experiment(), [trial]))))

    assert rows[1] == ["Succeeded", "demo-0", "0.5", "a\nb,c"]


def test_the_table_of_a_trial_has_the_best_reading_of_each_second() -> None:
    trial = patched(make_trial("demo-0"), spec={"objective": {"additionalMetricNames": ["accuracy"]}})
    seconds = timedelta(seconds=1)
    readings = [
        MetricLog(MOMENT, "accuracy", "0.5"),
        MetricLog(MOMENT, "loss", "0.9"),
        MetricLog(MOMENT + seconds / 2, "loss", "0.8"),
        MetricLog(MOMENT + seconds / 2, "loss", "NaN"),
        MetricLog(MOMENT + seconds, "loss", "0.85"),
        MetricLog(MOMENT + seconds, "undeclared", "1"),
        MetricLog((MOMENT + 2 * seconds).astimezone(timezone(timedelta(hours=5))), "loss", "1e-3"),
    ]

    assert trial_csv(trial, readings) == (
        "metricName,time,value\n"
        "loss,2030-01-01T12:00:00,0.8\n"
        "loss,2030-01-01T12:00:01,0.85\n"
        "loss,2030-01-01T12:00:02,1e-3\n"
        "accuracy,2030-01-01T12:00:00,0.5\n"
    )


ARCHITECTURE = "[[1], [0, 1], [1, 1, 0]]"
CONFIG = (
    "{'num_layers': 3, 'embedding': {'0': {'opt_id': 0, 'opt_type': 'reduction', 'opt_params': {}}, "
    "'1': {'opt_id': 1, 'opt_type': 'convolution', 'opt_params': {'filter_size': '5'}}}}"
)


def test_an_architecture_is_drawn_with_its_operations_and_links() -> None:
    graph = architecture_graph(ARCHITECTURE, CONFIG).split("\n")

    assert graph[:6] == [
        "digraph G {",
        '0 [label="Input"];',
        '1 [label="convolution\\nfilter_size=5"];',
        '2 [label="reduction"];',
        '3 [label="convolution\\nfilter_size=5"];',
        '4 [label="Output"];',
    ]
    assert graph[6:] == ["0->1;", "1->2;", "2->3;", "3->4;", "1->3;", "}"]


@pytest.mark.parametrize("text", ["", "Genotype(normal=[])", "[]]", "{}", "[1, 2]", "[[]]", "null"])
def test_what_is_no_architecture_is_drawn_as_nothing(text: str) -> None:
    assert architecture_graph(text, CONFIG) == ""


@pytest.mark.parametrize("config", ["", "[]", "{'embedding': []}", "{'embedding': {'1': 3}}"])
def test_an_architecture_without_its_key_has_numbers(config: str) -> None:
    assert '1 [label="operation 1"];' in architecture_graph("[[1]]", config)


def test_architectures_that_succeeded_are_generations() -> None:
    trials = [
        make_trial("a", DONE, loss="0.5", architecture="[[1]]", nn_config=CONFIG),
        make_trial("b", condition("Failed"), architecture="[[1]]", nn_config=CONFIG),
        make_trial("c", DONE, loss="Genotype(1)"),
    ]
    rows = architecture_rows(trials)

    assert [(row["Name"], row["TrialName"]) for row in rows] == [("Generation 0", "a"), ("Generation 1", "c")]
    assert rows[0]["Architecture"].startswith("digraph")
    assert rows[1] == {
        "Name": "Generation 1",
        "TrialName": "c",
        "Architecture": "",
        "MetricsName": ["loss"],
        "MetricsValue": ["Genotype(1)"],
    }


def test_templates_are_told_by_namespace_and_in_order() -> None:
    def config_map(namespace: str, name: str, **data: str) -> dict[str, object]:
        return {"metadata": {"namespace": namespace, "name": name}, "data": data}

    found = template_rows(
        [config_map("team", "b", z="1", a="2"), config_map("kubeflow", "t"), config_map("team", "a", x="3")]
    )

    assert found == {
        "Data": [
            {"ConfigMapNamespace": "kubeflow", "ConfigMaps": [{"ConfigMapName": "t", "Templates": []}]},
            {
                "ConfigMapNamespace": "team",
                "ConfigMaps": [
                    {"ConfigMapName": "a", "Templates": [{"Path": "x", "Yaml": "3"}]},
                    {"ConfigMapName": "b", "Templates": [{"Path": "a", "Yaml": "2"}, {"Path": "z", "Yaml": "1"}]},
                ],
            },
        ]
    }
