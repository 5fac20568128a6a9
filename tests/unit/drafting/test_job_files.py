"""Templates from jobs that were written for `kubectl apply`."""

from __future__ import annotations

from typing import Any

import pytest

from katib.errors import InvalidError
from katib.model.yaml_text import parse_one
from katib.service.drafting.experiments import CommandTemplate, Json, Metrics, parse_parameter
from katib.service.drafting.job_files import job_file_of, job_template, options_of_job, read_job
from tests.support.golden import Golden
from tests.support.refusals import refused

JOB = """
apiVersion: batch/v1
kind: Job
metadata:
  name: Train.v1
  namespace: mine
  labels: {team: "{team}"}
  annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}", kept: "${x} {{lr}} {other} {lr"}
spec:
  template:
    spec:
      initContainers: [{name: fetch, image: a, command: [fetch, --lr, "7"]}]
      containers:
      - name: training
        image: b
        command: [sh, -c, "python train.py --lr 0.01 --steps=3 --momentum -0.5; echo --lr"]
        args: [--opt, adam, -layers=2, --warm-up, "5", --verbose]
        env: [{name: SEED, value: "1"}, {name: TEMPERATURE, value: "0.5"}]
      restartPolicy: Never
status: {active: 1}
"""
PYTORCH = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {generateName: net-}
spec:
  pytorchReplicaSpecs:
    Worker: {replicas: 2, template: {spec: {containers: [{name: worker, image: a, args: [--lr=0.1]}]}}}
    Master: {replicas: 1, template: {spec: {containers: [{name: pytorch, image: a, args: [--lr=0.1]}]}}}
"""
TRAIN = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
spec: {runtimeRef: {name: torch-distributed}, trainer: {args: [--lr, "0.1"]}}
"""


def template(text: str, *parameters: str, **more: Any) -> CommandTemplate:
    space = [parse_parameter(parameter) for parameter in parameters]
    return job_template(read_job(text, "some/job.yaml"), "some/job.yaml", space, Metrics(), **more)


def containers(made: Json) -> Any:
    return made["trialSpec"]["spec"]["template"]["spec"]["containers"][0]


def test_values_take_the_place_of_those_that_a_job_has(golden: Golden) -> None:
    names = ("lr", "momentum", "opt", "layers", "warm_up", "temperature", "team", "depth")
    made = template(JOB, *(f"{name}=1..9" for name in names), timeout_seconds=60)
    container = containers(made.template)
    spec = made.template["trialSpec"]
    kept = {"labels": {"team": "${trialParameters.team}"}, "annotations": {"kept": "${x} {{lr}} {other} {lr"}}

    assert made.name == "train-v1"
    assert made.template["primaryContainerName"] == "training"
    assert spec == {**spec, "apiVersion": "batch/v1", "kind": "Job", "metadata": kept}
    assert spec["spec"]["activeDeadlineSeconds"] == 60
    assert spec["spec"]["template"]["spec"]["initContainers"][0]["command"] == ["fetch", "--lr", "7"]
    assert "status" not in spec
    assert container["command"][2] == (
        "python train.py --lr ${trialParameters.lr} --steps=3 --momentum ${trialParameters.momentum}; echo --lr"
    )
    assert container["args"] == [
        *("--opt", "${trialParameters.opt}", "-layers=${trialParameters.layers}"),
        *("--warm-up", "${trialParameters.warm_up}", "--verbose"),
    ]
    assert [(variable["name"], variable["value"]) for variable in container["env"]] == [
        ("SEED", "1"),
        ("TEMPERATURE", "${trialParameters.temperature}"),
        ("KATIB_PARAM_DEPTH", "${trialParameters.depth}"),
    ]
    golden(made.notes[0])
    golden(made.notes[-1])


def test_every_replica_gets_a_value_and_the_one_that_leads_is_read() -> None:
    made = template(PYTORCH, "lr=0.1..1.0", timeout_seconds=9)
    spec = made.template["trialSpec"]["spec"]
    args = [specs["template"]["spec"]["containers"][0]["args"] for specs in spec["pytorchReplicaSpecs"].values()]

    assert (made.name, made.template["primaryContainerName"]) == ("net", "pytorch")
    assert args == [["--lr=${trialParameters.lr}"]] * 2
    assert spec["runPolicy"] == {"activeDeadlineSeconds": 9}


def test_the_trainer_of_a_train_job_is_a_container() -> None:
    made = template(TRAIN, "lr=0.1..1.0", "n=1..2")
    trainer = made.template["trialSpec"]["spec"]["trainer"]

    assert (made.name, made.template["primaryContainerName"]) == ("job", "node")
    assert trainer["args"] == ["--lr", "${trialParameters.lr}"]
    assert trainer["env"] == [{"name": "KATIB_PARAM_N", "value": "${trialParameters.n}"}]


def test_options_with_numbers_are_worth_searching() -> None:
    found = options_of_job(parse_one(JOB, "job.yaml"))

    assert [str(option) for option in found] == [
        "lr=0.001..0.1:log",
        "steps=1..12",
        "momentum=0.0..1.0",
        "layers=1..8",
        "warm-up=1..20",
    ]


@pytest.mark.parametrize(
    ("command", "file"),
    [
        (["job.yaml"], "job.yaml"),
        (["kubectl apply -f job.yml"], "job.yml"),
        (["/usr/bin/kubectl", "-n", "x", "create", "--filename=a b.json"], "a b.json"),
        (["kubectl", "exec", "-f", "x"], ""),
        (["kubectl", "apply", "-k", "."], ""),
        (["python", "job.yaml"], ""),
        (["./train.py"], ""),
    ],
)
def test_a_file_of_a_job_is_a_command(command: list[str], file: str) -> None:
    assert job_file_of(command) == file


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "job.yaml: it holds no job; give Job, "),
        ("kind: Job", "job.yaml: it holds no job; give Job, "),
        ("{kind: Experiment, spec: {}}", "job.yaml: it is an Experiment; run it with `katib run job.yaml`"),
        ("{kind: Deployment, spec: {}}", "job.yaml.kind: 'Deployment' is no job; give Job, "),
        ("{kind: PytorchJob, spec: {}}", "job.yaml.kind: kind PytorchJob is not known; did you mean PyTorchJob"),
        ("{kind: [Job], spec: {}}", "job.yaml: it holds no job; give Job, "),
        ("{kind: Job, metadata: [x], spec: {}}", "job.yaml.metadata: it is malformed; write names and texts, as"),
        ("{kind: Job, metadata: {labels: x}, spec: {}}", "job.yaml.metadata: it is malformed; write names and texts"),
        ("a: 1\n---\nb: 2", "job.yaml: it holds 2 documents; keep one of them"),
    ],
)
def test_what_is_no_job_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidError) as error:
        read_job(text, "job.yaml")

    assert str(error.value).startswith(message)


def test_empty_fields_are_as_absent_ones() -> None:
    text = PYTORCH.replace("spec:", "spec:\n  runPolicy:", 1).replace("args: [--lr=0.1]", "args: , env: ", 1)
    spec = template(text, "lr=0.1..1.0", "n=1..2", timeout_seconds=9).template["trialSpec"]["spec"]
    worker = spec["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]

    assert spec["runPolicy"] == {"activeDeadlineSeconds": 9}
    assert worker["env"] == [{"name": "KATIB_PARAM_N", "value": "${trialParameters.n}"}]


def test_a_kind_without_a_deadline_takes_no_timeout() -> None:
    with refused("job-file"):
        template(TRAIN, "lr=0.1..1.0", timeout_seconds=9)
