"""`kubectl`, unmodified, on the Kubernetes API of one machine, from the first apply to the delete."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.cli import katib_here
from tests.support.experiments import an_experiment
from tests.support.kube import NO_KUBECTL, Kubectl, World, config_map, kube_world, kubectls
from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not kubectls(), reason=NO_KUBECTL)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with kube_world(tmp_path_factory.mktemp("data"), starts=True) as made:
        yield made


@pytest.fixture(params=kubectls() or [""], ids=lambda path: Path(path).parent.name)
def kubectl(request: pytest.FixtureRequest, world: World, tmp_path: Path) -> Iterator[Kubectl]:
    made = Kubectl(request.param, world.server.kubeconfig, tmp_path)
    yield made
    made("delete", "experiments,configmaps,jobs", "--all")


def test_an_experiment_is_applied_followed_and_deleted(kubectl: Kubectl, tmp_path: Path) -> None:
    release = tmp_path / "go"
    command = f"echo begun; until test -e {release}; do sleep 0.05; done; echo loss=${{trialParameters.learningRate}}"
    text = yaml.safe_dump(an_experiment(command=command))
    applied = kubectl("apply", "-f", "-", text=text)
    again = kubectl("apply", "-f", "-", text=text)
    pod = eventually(lambda: kubectl("get", "pods", "-o", "name").splitlines())[0]
    with subprocess.Popen(
        [*kubectl.command, "logs", "-f", pod], env=dict(kubectl.environment), stdout=subprocess.PIPE, text=True
    ) as following:
        assert following.stdout is not None
        begun = following.stdout.readline()
        release.touch()
        rest = following.stdout.read()
    waited = kubectl("wait", "--for=condition=Succeeded", "experiment/demo", "--timeout=60s")
    trials = kubectl("get", "trials").splitlines()
    described = kubectl("describe", "experiment", "demo")
    events = kubectl(
        "get", "events", "--field-selector", "involvedObject.name=demo", "-o", "jsonpath={.items[*].reason}"
    )
    best = kubectl("get", "experiment", "demo", "-o", "jsonpath={.status.currentOptimalTrial.bestTrialName}")
    columns = kubectl("get", "experiments", "-o", "custom-columns=N:.metadata.name,T:.status.trials")

    assert applied.split() == ["experiment.kubeflow.org/demo", "created"]
    assert again.split()[0] == "experiment.kubeflow.org/demo"
    assert begun == "begun\n"
    assert rest.startswith("loss=0.0")
    assert waited == "experiment.kubeflow.org/demo condition met\n"
    assert trials[0].split() == ["NAME", "TYPE", "STATUS", "REASON", "AGE"]
    assert sorted(line.split()[1] for line in trials[1:]) == ["Succeeded"] * 3
    assert "ExperimentMaxTrialsReached" in described
    assert "ExperimentCreated" in events.split()
    assert best in {line.split()[0] for line in trials[1:]}
    assert columns.split() == ["N", "T", "demo", "3"]
    assert kubectl("delete", "experiment", "demo").startswith('experiment.kubeflow.org "demo" deleted')
    assert kubectl("get", "trials", "-o", "name") == ""


def test_objects_are_labelled_patched_edited_and_refused(kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl(
        "create",
        "-f",
        "-",
        text=yaml.safe_dump(an_experiment(command="sleep 60; echo ${trialParameters.learningRate}")),
    )
    kubectl("label", "experiment", "demo", "team=a")
    kubectl("annotate", "experiment", "demo", "note=hello there")
    kubectl("patch", "experiment", "demo", "--type=merge", "-p", '{"spec": {"maxTrialCount": 5}}')
    kubectl(
        "patch", "experiment", "demo", "--type=json", "-p", '[{"op": "remove", "path": "/metadata/annotations/note"}]'
    )
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i "s/maxTrialCount: 5/maxTrialCount: 6/" "$1"\n')
    editor.chmod(0o755)
    edited = subprocess.run(
        [*kubectl.command, "edit", "experiment", "demo"],
        env={**kubectl.environment, "KUBE_EDITOR": str(editor)},
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(kubectl("get", "experiments", "-l", "team=a", "-o", "json"))["items"][0]
    refused = kubectl.run("patch", "experiment", "demo", "--type=merge", "-p", '{"spec": {"objective": {"goal": 1}}}')
    missing = kubectl.run("get", "experiment", "none")
    unknown = kubectl.run("get", "routes")

    assert "edited" in edited.stdout
    assert (found["metadata"]["labels"]["team"], found["spec"]["maxTrialCount"]) == ("a", 6)
    assert "note" not in found["metadata"].get("annotations", {})
    assert "spec.objective.goal: added 1" in refused.stderr
    assert missing.stderr == 'Error from server (NotFound): experiments.kubeflow.org "none" not found\n'
    assert 'doesn\'t have a resource type "routes"' in unknown.stderr


def test_what_may_be_done_can_be_asked(kubectl: Kubectl) -> None:
    assert kubectl("auth", "can-i", "create", "experiments.kubeflow.org") == "yes\n"
    assert "experiments" in kubectl("api-resources", "--api-group=kubeflow.org", "-o", "name")
    assert "kubeflow.org/v1beta1" in kubectl("api-versions").split()


def test_fields_are_explained(kubectl: Kubectl) -> None:
    assert "Name of the algorithm, such as random" in kubectl("explain", "experiment.spec.algorithm")
    assert "parallelTrialCount" in kubectl("explain", "experiment.spec", "--recursive")
    assert "Number of failures that are retried" in kubectl("explain", "job.spec")
    assert "Environment variables" in kubectl("explain", "pod.spec.containers")
    in_a_replica = "pytorchjob.spec.pytorchReplicaSpecs.template.spec.containers"
    assert "Environment variables" in kubectl("explain", in_a_replica)
    assert "numProcPerNode" in kubectl("explain", "trainjob.spec.trainer")


def test_a_typing_error_is_refused_before_anything_is_stored(kubectl: Kubectl) -> None:
    wrong = an_experiment(paralelTrialCount=1)
    refused = kubectl.run("apply", "-f", "-", text=yaml.safe_dump(wrong))
    compared = kubectl.run("diff", "-f", "-", text=yaml.safe_dump(an_experiment()))

    assert refused.returncode == 1
    assert "paralelTrialCount" in refused.stderr
    assert compared.returncode == 1
    assert "+kind: Experiment" in compared.stdout
    assert kubectl("get", "experiments", "-o", "name") == ""


def test_a_job_needs_no_experiment(kubectl: Kubectl, world: World) -> None:
    kubectl("create", "job", "alone", "--image=busybox", "--", "sh", "-c", "echo hello; sleep 1; echo done")
    eventually(lambda: kubectl("get", "pods", "-l", "job-name=alone", "-o", "name"))
    printed = kubectl("logs", "-f", "job/alone")
    waited = kubectl("wait", "--for=condition=Complete", "job/alone", "--timeout=30s")
    stamped = [line.split(" ") for line in kubectl("logs", "job/alone", "--timestamps").splitlines()]
    later = kubectl("logs", "job/alone", f"--since-time={stamped[1][0]}")
    previous = kubectl.run("logs", "job/alone", "--previous")
    row = kubectl("get", "jobs").splitlines()[1].split()
    files = world.server.kubeconfig.parent / "trials" / "default" / "alone"

    assert printed == "hello\ndone\n"
    assert [line for _, line in stamped] == ["hello", "done"]
    assert stamped[0][0] < stamped[1][0]
    assert later == "done\n"
    assert kubectl("logs", "job/alone", "--since=1h") == printed
    assert "previous terminated container" in previous.stderr
    assert waited == "job.batch/alone condition met\n"
    assert row[0] == "alone"
    assert "1/1" in row
    assert files.is_dir()
    kubectl("delete", "job", "alone")
    assert kubectl("get", "pods", "-o", "name") == ""
    eventually(lambda: not files.exists())


def test_the_output_before_a_restart_is_kept(kubectl: Kubectl, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    command = f"test -e {mark} && {{ echo second; exec sleep 60; }}; touch {mark}; echo first; exit 1"
    container = {"name": "main", "image": "busybox", "command": ["sh", "-c", command]}
    pod = {"restartPolicy": "OnFailure", "containers": [container]}
    spec = {"backoffLimit": 3, "template": {"spec": pod}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "again"}, "spec": spec}
    kubectl("create", "-f", "-", text=yaml.safe_dump(job))
    eventually(lambda: "second" in kubectl.run("logs", "job/again").stdout)

    assert kubectl("logs", "job/again", "--previous") == "first\n"
    assert kubectl("logs", "job/again") == "first\nsecond\n"


def test_what_is_no_longer_applied_is_pruned(kubectl: Kubectl) -> None:
    def text(*names: str) -> str:
        return "---\n".join(
            yaml.safe_dump({**config_map(n), "metadata": {"name": n, "labels": {"a": "b"}}}) for n in names
        )

    kubectl("apply", "-f", "-", text=text("one", "two"))

    assert "configmap/two pruned" in kubectl("apply", "--prune", "-l", "a=b", "-f", "-", text=text("one"))
    assert kubectl("get", "configmaps", "-o", "name") == "configmap/one\n"
    assert "is running at" in kubectl("cluster-info")


def test_objects_are_created_by_the_commands_that_make_them(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "one", "--from-literal=a=b")
    kubectl("create", "secret", "generic", "one", "--from-literal=a=b")
    secret = kubectl("get", "secret", "one", "-o", "jsonpath={.data.a}")
    kubectl("delete", "secret", "one")

    assert kubectl("get", "configmap", "one", "-o", "jsonpath={.data.a}") == "b"
    assert secret == "Yg=="


def test_fields_are_applied_by_their_managers(kubectl: Kubectl) -> None:
    def text(**spec: int) -> str:
        return yaml.safe_dump(an_experiment(command="sleep 60; echo ${trialParameters.learningRate}", **spec))

    kubectl("apply", "--server-side", "-f", "-", text=text(maxTrialCount=5))
    kubectl("apply", "--server-side", "-f", "-", text=text(maxTrialCount=6))
    kubectl("patch", "experiment", "demo", "--type=merge", "-p", '{"spec": {"maxTrialCount": 7}}')
    refused = kubectl.run("apply", "--server-side", "-f", "-", text=text(maxTrialCount=8))
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=text(maxTrialCount=8))
    kubectl("apply", "--server-side", "--field-manager=another", "-f", "-", text=text(maxTrialCount=8))

    assert refused.returncode == 1
    assert 'conflict with "kubectl-patch"' in refused.stderr
    assert ".spec.maxTrialCount" in refused.stderr
    found = json.loads(kubectl("get", "experiment", "demo", "-o", "json", "--show-managed-fields"))
    assert found["spec"]["maxTrialCount"] == 8
    assert [entry["manager"] for entry in found["metadata"]["managedFields"]] == ["kubectl", "another"]


@pytest.mark.parametrize(
    "asked",
    [
        ("experiments", "-o=name"),
        ("experiments", "-o=name", "-l", "team in (a),!other"),
        ("trials", "-l", "katib.kubeflow.org/experiment=none", "-o", "name"),
    ],
)
def test_get_of_katib_answers_as_that_of_kubectl(
    kubectl: Kubectl, world: World, tmp_path: Path, asked: tuple[str, ...]
) -> None:
    raw = an_experiment(command="echo loss=${trialParameters.learningRate}")
    kubectl("apply", "-f", "-", text=yaml.safe_dump({**raw, "metadata": {**raw["metadata"], "labels": {"team": "a"}}}))
    kubectl("wait", "--for=condition=Succeeded", "experiment/demo", "--timeout=60s")
    theirs = kubectl("get", *asked)
    ours = katib_here("get", *asked, "--kubeconfig", str(world.server.kubeconfig), cwd=tmp_path)
    here = katib_here("get", *asked, "--data-dir", str(world.server.kubeconfig.parent), cwd=tmp_path)

    assert ours.stdout == theirs.replace(".kubeflow.org/", "/")
    assert (ours.stderr, here.stderr, here.stdout) == ("", "", ours.stdout)


def test_the_example_runs_an_experiment(kubectl: Kubectl, world: World, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "kubectl").symlink_to(kubectl.command[0])
    (programs / "katib").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m katib "$@"\n')
    (programs / "katib").chmod(0o755)
    done = subprocess.run(
        ["sh", str(ROOT / "examples/clients/kubectl.sh")],
        env={
            **os.environ,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "HOME": str(tmp_path),
            "KATIB_HOME": str(world.server.kubeconfig.parent),
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Succeeded   True") == 4
    assert "\n1\n" in done.stdout
