from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from unittest import mock

import pytest
import yaml

from katib.doors.cli.printing import Table
from katib.doors.rest.notes import noted
from katib.doors.rest.server import Server
from katib.engine.runtime.objects import Kind
from katib.model.metrics import MetricLog
from katib.service.tuning.service import Diagnosis
from tests.support.experiments import a_double
from tests.support.golden import Golden
from tests.support.training_jobs import RUNTIMES
from tests.support.tuning import (
    START,
    MemoryTuningService,
    condition,
    document,
    make_experiment,
    make_pareto_experiment,
    make_pod,
    make_trial,
    patched,
)
from tests.unit.cli.conftest import Katib


@pytest.fixture
def played(service: MemoryTuningService) -> MemoryTuningService:
    """A service in which `demo` ran three trials, and `waiting` none."""
    service.submit(document("demo"), source="demo.yaml")
    service.play("default", "demo")
    service.put(make_experiment("waiting", condition("Created")))
    return service


@pytest.fixture
def server(played: MemoryTuningService) -> Iterator[str]:
    with Server(played, host="127.0.0.1", port=0, token="secret") as running:
        yield running.url


def test_get_lists_experiments_in_aligned_columns(katib: Katib, played: MemoryTuningService) -> None:
    head, first, second = katib("get").out.splitlines()

    assert head.split() == ["NAME", "STATE", "PROGRESS", "BEST", "AGE"]
    assert first.split()[:3] == ["demo", "Succeeded", "3/3"]
    assert second.split()[:4] == ["waiting", "Created", "0/12", "-"]
    assert first.index("Succeeded") == head.index("STATE")


@pytest.mark.parametrize(
    ("command", "before"),
    [(("get", "trials"), []), (("get", "trials", "-A"), ["NAMESPACE"]), (("trials", "demo"), [])],
    ids=["get", "all-namespaces", "trials"],
)
def test_trials_of_a_population_show_their_generation_and_parent(
    katib: Katib, service: MemoryTuningService, command: tuple[str, ...], before: list[str]
) -> None:
    kind = "pbt.suggestion.katib.kubeflow.org"
    child = patched(
        make_trial("b", condition("Succeeded"), loss="0.25", lr="0.5", index=1),
        metadata={"labels": {f"{kind}/generation": "1", f"{kind}/parent": "a"}},
    )
    first = patched(
        make_trial("a", condition("Succeeded"), loss="0.5", lr="0.5"), metadata={"labels": {f"{kind}/generation": "0"}}
    )
    for obj in (make_experiment(), first, child, make_trial("by-hand", condition("Succeeded"), loss="1", index=2)):
        service.put(obj)

    head, *rows = (line.split()[len(before) :] for line in katib(*command).out.splitlines())

    assert head == ["NAME", "STATE", "OBJECTIVE", "DURATION", "AGE", "GENERATION", "PARENT", "PARAMETERS"]
    assert [(row[0], row[5], row[6]) for row in rows] == [("a", "0", "-"), ("b", "1", "a"), ("by-hand", "-", "-")]
    assert katib(*command, "-o", "wide").out.splitlines()[0].split() == [*before, *head, "METRICS", "MESSAGE"]


def test_other_trials_show_no_lineage(katib: Katib, played: MemoryTuningService) -> None:
    for command in (("get", "trials"), ("trials", "demo"), ("get", "trial", "demo-0")):
        assert "GENERATION" not in katib(*command).out


def test_long_numbers_are_shortened_in_tables_and_whole_everywhere_else(
    katib: Katib, service: MemoryTuningService
) -> None:
    service.put(make_experiment(currentOptimalTrial={"bestTrialName": "t"}))
    service.put(make_trial("t", condition("Succeeded"), loss="0.11075317082435882", lr="1.0000000001e-05"))

    assert katib("trials", "demo").out.splitlines()[1].split()[2] == "0.110753"
    assert katib("trials", "demo").out.split()[-1] == "lr=1e-05"
    assert "0.11075317082435882" in katib("best", "demo").out


def test_rows_that_outgrow_their_column_keep_their_distance(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(("NAME", "AGE"))
    table.print([("a", "1s")])
    table.print([("much-longer", "2s")])

    assert capsys.readouterr().out.splitlines() == ["NAME   AGE", "a      1s", "much-longer   2s"]


def test_get_says_so_when_there_is_nothing(katib: Katib, golden: Golden) -> None:
    assert katib("get").err == "no experiments found\n"
    assert katib("get", "pods").err == "no pods found\n"

    result = katib("get", "exp", "ghost")

    assert result.code == 2
    golden(result.err)


def test_get_prints_for_other_programs_and_of_all_namespaces(katib: Katib, played: MemoryTuningService) -> None:
    listing = json.loads(katib("get", "trials", "-o", "json").out)

    assert listing["kind"] == "List"
    assert len(listing["items"]) == 3

    assert katib("get", "-o", "name").out.split() == ["experiment/demo", "experiment/waiting"]
    for words in (("exp", "demo"), ("demo",)):
        assert yaml.safe_load(katib("get", *words, "-o", "yaml").out)["metadata"]["name"] == "demo"

    played.put(make_experiment("other", namespace="team"))

    assert katib("get", "-A").out.splitlines()[-1].split()[:2] == ["team", "other"]


def test_trials_are_sorted_by_objective_and_chosen_by_state(katib: Katib, played: MemoryTuningService) -> None:
    played.put(make_trial("demo-lost", condition("Failed", message="exit code 1"), index=9))
    names = [line.split()[0] for line in katib("trials", "demo", "--sort", "objective").out.splitlines()[1:]]

    assert names == ["demo-0002", "demo-0001", "demo-0000", "demo-lost"]

    result = katib("trials", "demo", "-s", "failed", "-o", "wide")

    assert [line.split()[0] for line in result.out.splitlines()[1:]] == ["demo-lost"]
    assert "exit code 1" in result.out


def test_best_shows_metrics_and_parameters_and_without_a_value_how_to_learn_more(
    katib: Katib, played: MemoryTuningService
) -> None:
    assert katib("best", "demo").out.splitlines() == [
        "Best trial: demo-0002",
        "  loss   0.3",
        "Parameters:",
        "  x      0.3",
    ]
    assert katib("best", "demo", "-o", "csv").out == "trial,loss,x\ndemo-0002,0.3,0.3\n"

    result = katib("best", "waiting")

    assert result.code == 1
    assert "`katib why waiting`" in result.err


def test_steps_of_metrics_are_shown_where_there_are_any(katib: Katib, played: MemoryTuningService) -> None:
    for name, value, step in (("loss", "0.4", 1), ("accuracy", "0.6", 1), ("loss", "0.3", 0)):
        played.store_readings("demo-0000", MetricLog(START, name, value, step))

    assert katib("metrics", "demo-0000").out.split()[:4] == ["TIME", "STEP", "METRIC", "VALUE"]
    assert json.loads(katib("metrics", "demo-0000", "-o", "json").out)[:2] == [
        {"time": "2030-01-01T12:00:00Z", "metric": "loss", "value": "0.5"},
        {"time": "2030-01-01T12:00:00Z", "step": 0, "metric": "loss", "value": "0.3"},
    ]
    assert katib("metrics", "demo-0000", "-m", "loss", "-o", "csv").out.splitlines()[1:] == [
        "2030-01-01T12:00:00Z,,loss,0.5",
        "2030-01-01T12:00:00Z,0,loss,0.3",
        "2030-01-01T12:00:00Z,1,loss,0.4",
    ]


def test_metrics_by_step_stand_side_by_side(katib: Katib, played: MemoryTuningService) -> None:
    for name, value, step in (("loss", "0.4", 1), ("accuracy", "0.6", 1), ("loss", "0.3", 0), ("loss", "0.2", 1)):
        played.store_readings("demo-0000", MetricLog(START, name, value, step))

    assert katib("metrics", "demo-0000", "--by-step", "-o", "csv").out == "step,loss,accuracy\n0,0.3,\n1,0.2,0.6\n"
    assert json.loads(katib("metrics", "demo-0000", "--by-step", "-o", "json").out) == [
        {"step": 0, "metrics": {"loss": "0.3"}},
        {"step": 1, "metrics": {"loss": "0.2", "accuracy": "0.6"}},
    ]
    assert katib("metrics", "demo-0000", "--by-step").out.split()[:3] == ["STEP", "loss", "accuracy"]


def test_metrics_are_a_table_or_a_csv_file_and_without_steps_none_by_step(
    katib: Katib, played: MemoryTuningService
) -> None:
    assert katib("metrics", "demo-0000").out.split()[3:] == ["2030-01-01T12:00:00Z", "loss", "0.5"]
    assert katib("metrics", "demo-0000", "-o", "csv").out == "time,metric,value\n2030-01-01T12:00:00Z,loss,0.5\n"

    shown = katib("metrics", "demo-0000", "--by-step")

    assert (shown.out, shown.code) == ("", 0)
    assert "--by-step" in shown.err


def test_logs_are_printed_as_they_were_written(katib: Katib, played: MemoryTuningService, golden: Golden) -> None:
    played.write_log("default", "demo-0000", b"\x00 no newline")

    assert katib("logs", "demo-0000").out == "loss=0.5\n\x00 no newline"
    assert katib("logs", "demo-0000", "--tail", "1").out == "\x00 no newline"
    golden(katib("logs", "demo").err)


def test_describe_shows_an_experiment_or_a_trial_and_where_to_look_for_nothing(
    katib: Katib, played: MemoryTuningService, golden: Golden
) -> None:
    out = katib("describe", "demo").out

    for part in (
        "3 trials, 2 at a time",
        "3/3 (3 succeeded)",
        "Best trial: demo-0002",
        "JobSucceeded",
        "minimize loss",
    ):
        assert part in out

    assert "loss=0.4" in katib("describe", "demo-0001").out

    result = katib("describe", "ghost")

    assert result.code == 2
    golden(result.err)


def test_describe_says_when_a_parameter_has_a_value(katib: Katib, service: MemoryTuningService, golden: Golden) -> None:
    momentum = {**a_double("momentum"), "when": {"parameter": "optimizer", "values": ["sgd", "rmsprop"]}}
    service.put(patched(make_experiment(), spec={"parameters": [momentum]}))

    golden(katib("describe", "demo").out)


def test_describe_tells_what_the_algorithm_chose(katib: Katib, played: MemoryTuningService, golden: Golden) -> None:
    assert "Its choice" not in katib("describe", "demo").out

    metadata = {"name": "demo", "namespace": "default"}
    suggestion = {"apiVersion": "kubeflow.org/v1beta1", "kind": "Suggestion", "metadata": metadata}
    played.put({**suggestion, "status": {"explanation": "auto uses gp, since it can."}})

    golden(katib("describe", "demo").out)


def test_why_puts_the_answer_first(katib: Katib, played: MemoryTuningService, golden: Golden) -> None:
    played.explain(
        "default", Diagnosis("Trial", "t", "Failed", "t failed.", ("It was tried twice.",), ("Fix it.",), ("boom",))
    )

    golden(katib("why", "t").out.splitlines())


def test_apply_tells_what_became_of_each_file(katib: Katib, server: str, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text(document(name))
    result = katib("apply", "one.yaml", "-f", "two.yaml", "--server", server, "--token", "secret")

    assert result.code == 0
    assert result.out == "experiment/one created\nexperiment/two created\n"
    assert [line.startswith("note: ") for line in result.err.splitlines()] == [True, True]


def test_apply_goes_on_behind_a_broken_file_and_names_it(katib: Katib, server: str, tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("a sentence")
    (tmp_path / "good.yaml").write_text(document("good"))
    result = katib("apply", "broken.yaml", "good.yaml", "--server", server, "--token", "secret")

    assert result.code == 2
    assert result.out == "experiment/good created\n"
    assert result.err.startswith("error: broken.yaml: ")
    assert str(tmp_path) not in result.err


def test_apply_stores_a_file_of_training_runtimes_and_says_so(katib: Katib, server: str, tmp_path: Path) -> None:
    file, asked = tmp_path / "runtimes.yaml", ("apply", "-f", "runtimes.yaml", "--server", server, "--token", "secret")
    file.write_text(RUNTIMES.replace("NODES", "2"))
    first, again = katib(*asked), katib(*asked)
    file.write_text(RUNTIMES.replace("NODES", "3"))
    changed, named = katib(*asked), katib(*asked, "-o", "name")

    assert first == (0, "trainingruntime/mine created\nclustertrainingruntime/shared created\n", "")
    assert again == (0, "trainingruntime/mine unchanged\nclustertrainingruntime/shared unchanged\n", "")
    assert changed == (0, "trainingruntime/mine configured\nclustertrainingruntime/shared unchanged\n", "")
    assert named.out == "trainingruntime/mine\nclustertrainingruntime/shared\n"


def test_apply_stores_training_runtimes_in_the_data_directory_where_no_server_runs(
    katib: Katib, tmp_path: Path, engine: ModuleType, service: MemoryTuningService
) -> None:
    (tmp_path / "runtimes.yaml").write_text(RUNTIMES.replace("NODES", "2"))
    result = katib("apply", "runtimes.yaml", "--data-dir", "d")

    assert result == (0, "trainingruntime/mine created\nclustertrainingruntime/shared created\n", "")
    assert [made.started for made in engine.engines] == [False]


def test_a_wrong_field_of_a_runtime_is_one_line_and_nothing_is_stored(
    katib: Katib, server: str, tmp_path: Path, service: MemoryTuningService
) -> None:
    (tmp_path / "runtimes.yaml").write_text(RUNTIMES.replace("numNodes: NODES", "numNode: 2").lstrip())
    checked = katib("validate", "runtimes.yaml")
    result = katib("apply", "runtimes.yaml", "--server", server, "--token", "secret")

    line = "runtimes.yaml: TrainingRuntime at line 1: spec.mlPolicy.numNode: unknown field; did you mean numNodes"
    assert (checked.code, checked.err) == (2, f"{line}\n")
    assert (result.code, result.out, result.err) == (2, "", f"error: {line}\n")
    assert service.store.list(Kind("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime")).items == ()


def test_run_says_that_a_file_of_runtimes_is_for_apply(katib: Katib, tmp_path: Path, golden: Golden) -> None:
    (tmp_path / "runtimes.yaml").write_text(RUNTIMES.replace("NODES", "2"))
    result = katib("run", "runtimes.yaml")

    assert result.code == 2
    golden(result.err)


def test_delete_removes_what_it_names(katib: Katib, server: str, played: MemoryTuningService) -> None:
    result = katib("delete", "experiment/demo", "ghost", "--server", server, "--token", "secret")

    assert result.code == 2
    assert result.out == "experiment/demo deleted\n"
    assert '"ghost"' in result.err
    assert [e.name for e in played.experiments()] == ["waiting"]

    as_kubectl = katib("delete", "experiment", "waiting", "--server", server, "--token", "secret")

    assert as_kubectl == (0, "experiment/waiting deleted\n", "")


def test_a_server_that_works_elsewhere_is_reported_where_experiments_are_kept_here(
    katib: Katib, played: MemoryTuningService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    (tmp_path / "mine.yaml").write_text(document("mine"))
    (tmp_path / ".katib" / "katib.db").touch()
    with (
        Server(MemoryTuningService(), host="127.0.0.1", port=0) as elsewhere,
        noted(elsewhere.url, None, tmp_path / "state" / "katib"),
    ):
        for module in ("connection", "options", "run_options"):
            monkeypatch.setattr(f"katib.doors.cli.{module}.DEFAULT_SERVER", elsewhere.url)
        asked, ran = katib("get"), katib("run", "mine.yaml")
        here = katib("get", "--data-dir", ".katib")
        with noted(elsewhere.url, None, tmp_path / ".katib"):
            own = katib("get")

    golden(asked.err.replace(elsewhere.url, "URL"))
    golden(ran.out.splitlines()[-1])
    assert (here.err, "demo" in here.out) == ("", True)
    assert own.err == "no experiments found\n"


def test_a_trial_is_added_by_hand(katib: Katib, server: str, service: MemoryTuningService, golden: Golden) -> None:
    service.submit(document("fresh"), source="fresh.yaml")
    suggestion = {"apiVersion": "kubeflow.org/v1beta1", "kind": "Suggestion", "metadata": {}}
    service.store.create({**suggestion, "metadata": {"name": "fresh", "namespace": "default"}, "spec": {}})
    ask = ("trial", "add", "fresh", "x=0.5", "--server", server, "--token", "secret")

    first, second = katib(*ask), katib(*ask)

    assert first.err == ""
    golden(first.out)
    golden(second.out)


@pytest.mark.parametrize(
    ("assignments", "line"),
    [
        (("x",), '"x" is no PARAMETER=VALUE'),
        (("x=1", "x=2"), "x has two values; give it one"),
        (("x=7",), "parameterAssignments[0].value: x: 7 is not between"),
        (("y=1",), 'parameterAssignments[0].name: "y" is not a parameter of this experiment; use x'),
    ],
)
def test_a_trial_that_cannot_be_added_is_refused(
    katib: Katib, server: str, service: MemoryTuningService, assignments: tuple[str, ...], line: str
) -> None:
    service.submit(document("fresh"), source="fresh.yaml")
    result = katib("trial", "add", "fresh", *assignments, "--server", server, "--token", "secret")

    assert result.code == 2
    assert line in result.err
    assert "Traceback" not in result.err


def test_a_server_that_was_named_or_wants_a_token_is_asked_for(katib: Katib, server: str, golden: Golden) -> None:
    result = katib("get", "--server", server)

    assert result.code == 1
    assert "--token or in KATIB_TOKEN" in result.err

    result = katib("stop", "demo")

    assert result.code == 1
    golden(result.err)


def test_without_a_server_a_reading_command_opens_the_data_directory(
    katib: Katib, played: MemoryTuningService, golden: Golden
) -> None:
    assert katib("get").err == ""
    golden(katib("get", "-v").err)

    result = katib("get", "--server", "http://127.0.0.1:1")

    assert result.code == 1
    golden(result.err)


def test_with_neither_server_nor_data_directory_the_error_names_both_and_a_cluster(
    katib: Katib, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    (tmp_path / ".katib").rmdir()
    config = tmp_path / "config"
    config.write_text("apiVersion: v1\nkind: Config\ncurrent-context: kind-katib\n")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'none'}{os.pathsep}{config}")
    result = katib("get")

    assert result.code == 1
    golden(result.err)
    (tmp_path / ".kube").mkdir()
    config.rename(tmp_path / ".kube" / "config")
    monkeypatch.setenv("KUBECONFIG", "")  # as if it were not set: kubectl reads the file at home
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "; --context kind-katib asks" in katib("get").err
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", mock.Mock(side_effect=KeyError))  # an account that the machine does not know
    golden(katib("get").err)


@pytest.mark.parametrize("url", ["nonsense", "ftp://host", "http://", "http://host:notaport"])
def test_a_server_url_that_is_none_is_bad_input(katib: Katib, url: str, golden: Golden) -> None:
    result = katib("get", "--server", url)

    assert result.code == 2
    golden(result.err)


# --- several objectives and constraints -------------------------------------------------------------------------------


@pytest.fixture
def several(service: MemoryTuningService) -> MemoryTuningService:
    """A service with a Pareto set."""
    experiment = make_pareto_experiment("demo", condition("Running"))
    trial = make_trial("slow", condition("Succeeded"), x="0.5")
    made = experiment.encode()
    observation = made["status"]["currentOptimalTrial"]["observation"]
    trial = patched(trial, spec={"objective": made["spec"]["objective"]}, status={"observation": observation})
    service.put(experiment)
    service.put(trial)
    return service


def test_best_of_several_objectives_is_what_no_other_trial_beats(
    katib: Katib, several: MemoryTuningService, golden: Golden
) -> None:
    golden(katib("best", "demo").out.splitlines())

    assert "hypervolume=12.5" in katib("get", "demo").out
    assert "accuracy=0.9 seconds=30" in katib("trials", "demo").out
    assert "Objective:      accuracy=0.9 seconds=30" in katib("describe", "slow").out
    described = katib("describe", "demo").out
    assert "(goal 0.99), minimize seconds, " in described
    assert "Pareto set: 3 trials" in described


def test_best_of_several_objectives_in_other_forms(katib: Katib, several: MemoryTuningService) -> None:
    assert katib("best", "demo", "-o", "csv").out.splitlines() == [
        "trial,accuracy,seconds,memory,x",
        "slow,0.9,30,4,0.5",
        "quick,0.70000001,3,2,0.25",
    ]
    assert katib("best", "demo", "-o", "name").out.split() == ["trial/slow", "trial/quick"]
    assert json.loads(katib("best", "demo", "-o", "json").out)["hypervolume"] == 12.5
    assert yaml.safe_load(katib("best", "demo", "-o", "yaml").out)["trialCount"] == 3


def test_best_says_when_no_trial_satisfies_the_constraints(
    katib: Katib, service: MemoryTuningService, golden: Golden
) -> None:
    service.put(make_pareto_experiment("demo", currentOptimalTrial={}, paretoSet=None, trialsInfeasible=4))

    result = katib("best", "demo")

    assert result.code == 1
    golden(result.err)
    golden(katib("describe", "demo").out)


@pytest.fixture
def gang(service: MemoryTuningService) -> MemoryTuningService:
    """A service in which the only trial of `demo` runs a master and a worker, which failed."""
    service.put(make_experiment("demo", condition("Created")))
    service.put(make_trial("demo-0", condition("Running")))
    service.put(make_pod("demo-0-master-0", replica="master-0"))
    service.put(make_pod("demo-0-worker-0", replica="worker-0", code=137))
    return service


@pytest.mark.parametrize("name", [(), ("demo",), ("demo-0",)], ids=["all", "of an experiment", "of a trial"])
def test_pods_are_listed_in_the_columns_of_kubectl(
    katib: Katib, gang: MemoryTuningService, name: tuple[str, ...]
) -> None:
    head, master, worker = katib("get", "pods", *name).out.splitlines()

    assert head.split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "TRIAL"]
    assert master.split()[:4] == ["demo-0-master-0", "1/1", "Running", "0"]
    assert worker.split()[:4] == ["demo-0-worker-0", "0/1", "Error", "0"]
    assert worker.split()[-1] == "demo-0"


def test_a_pod_is_found_by_its_name_and_a_trial_described_with_its_replicas(
    katib: Katib, gang: MemoryTuningService, golden: Golden
) -> None:
    assert katib("get", "pod/demo-0-worker-0", "-o", "name").out == "pod/demo-0-worker-0\n"
    assert katib("get", "pods", "demo", "-o", "name").out.splitlines()[0] == "pod/demo-0-master-0"
    golden(katib("get", "pods", "ghost").err)

    out = katib("describe", "demo-0").out

    rows = [line.split() for line in out.partition("Replicas:\n")[2].splitlines()[:4]]
    assert rows[0] == ["REPLICA", "STATE", "RESTARTS", "EXIT", "WHERE"]
    assert rows[1] == ["master-0", "Running", "0", "-", "pid", "4711"]
    assert rows[2] == ["worker-0", "Error", "0", "137", "(SIGKILL)", "-"]
    golden(" ".join(rows[3]))


def test_the_output_of_any_replica_is_printed(katib: Katib, gang: MemoryTuningService, golden: Golden) -> None:
    assert katib("logs", "demo-0", "--replica", "worker-0", "-c", "side").out == "worker-0 side\n"
    assert katib("logs", "demo-0-worker-0", "-c", "side").out == "worker-0 side\n"
    assert katib("logs", "pod/demo-0-worker-0", "-c", "side").out == "worker-0 side\n"
    golden(katib("logs", "pod/ghost").err)
    wrong = katib("logs", "demo-0", "--replica", "worker-3")

    assert wrong.code == 2
    golden(wrong.err)


def test_tags_and_notes_are_set_and_shown(katib: Katib, service: MemoryTuningService, golden: Golden) -> None:
    service.put(make_experiment("demo"))
    service.put(make_trial("demo-0"))
    with Server(service, host="127.0.0.1", port=0) as server:
        at = ("--server", server.url)
        first = katib("tag", "demo", *at)
        marked = katib("tag", "demo", "a", "b", *at)
        changed = katib("tag", "demo", "c", "--remove", "a", "--note", "one\ntwo", *at)
        code, _, err = katib("tag", "demo", "x,y", *at)

        of_trial = katib("tag", "demo-0", "candidate", "--note", "keep", *at)
        of_nothing = katib("tag", "ghost", *at)

    golden(of_trial.out)
    golden(of_nothing.err)
    assert first.out == "experiment/demo: no tags\n"
    assert marked.out == "experiment/demo: tags a, b\n"
    golden(changed.out)
    assert (code, err.count("\n")) == (2, 1)
    golden(err)
