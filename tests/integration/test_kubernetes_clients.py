"""Programs written for a cluster, unmodified, on the Kubernetes API of one machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.experiments import an_experiment
from tests.support.kube import EXPERIMENTS, World, config_map, kube_world
from tests.support.waiting import eventually

pytestmark = [pytest.mark.slow]

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with kube_world(tmp_path_factory.mktemp("data"), starts=True) as made:
        yield made


def test_the_official_sdk_runs_reads_resumes_tunes_and_deletes(world: World) -> None:
    pytest.importorskip("kubeflow.katib")
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.official_sdk_here", str(world.server.kubeconfig)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])

    assert told["lines"] == ["begun", "loss"]
    assert (told["created"], told["succeeded"]) == (True, True)
    assert told["conditions"][-1] == "Succeeded"
    assert told["experiments"] == ["sdk"]
    assert len(told["trials"]) == told["suggested"] == 2
    assert told["details"] == told["trials"]
    assert told["best"] in told["trials"]
    assert told["state"] == "Succeeded"
    assert told["resumed"] == 3
    assert told["tuned"] == [9, 0]


def test_the_python_client_discovers_watches_and_patches(world: World) -> None:
    kubernetes = pytest.importorskip("kubernetes")
    from kubernetes import dynamic, watch

    client = kubernetes.config.new_client_from_config(str(world.server.kubeconfig))
    found = dynamic.DynamicClient(client)
    experiments = found.resources.get(api_version="kubeflow.org/v1beta1", kind="Experiment")
    core, custom = kubernetes.client.CoreV1Api(client), kubernetes.client.CustomObjectsApi(client)
    seen: list[tuple[str, str]] = []

    def follow() -> None:
        since = core.list_namespaced_config_map("default").metadata.resource_version
        ready.set()
        for event in watch.Watch().stream(core.list_namespaced_config_map, "default", resource_version=since):
            seen.append((event["type"], event["object"].metadata.name))
            if event["type"] == "DELETED":
                return

    ready = threading.Event()
    follower = threading.Thread(target=follow)
    follower.start()
    assert ready.wait(30)
    core.create_namespaced_config_map("default", config_map("one", a="b"))
    core.patch_namespaced_config_map("one", "default", {"data": {"c": "d"}})
    data = core.read_namespaced_config_map("one", "default").data
    core.delete_namespaced_config_map("one", "default")
    follower.join(30)
    created = experiments.create(
        body=an_experiment(command="sleep 60; ${trialParameters.learningRate}"), namespace="default"
    )
    patched = experiments.patch(
        name="demo",
        namespace="default",
        body={"spec": {"maxTrialCount": 9}},
        content_type="application/merge-patch+json",
    )
    listed = custom.list_namespaced_custom_object("kubeflow.org", "v1beta1", "default", "trials")
    experiments.delete(name="demo", namespace="default")

    assert data == {"a": "b", "c": "d"}
    assert seen == [("ADDED", "one"), ("MODIFIED", "one"), ("DELETED", "one")]
    assert created.spec.algorithm.algorithmName == "random"
    assert patched.spec.maxTrialCount == 9
    assert listed["kind"] == "TrialList"
    eventually(lambda: not experiments.get(namespace="default").items, "the experiment is deleted")
    assert kubernetes.client.VersionApi(client).get_code().major == "1"


def test_the_example_of_the_python_client_prints_the_trials(world: World) -> None:
    pytest.importorskip("kubernetes")
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/clients/watch_trials.py")],
        env={**os.environ, "KUBECONFIG": str(world.server.kubeconfig)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert sorted(line.split()[1:] for line in done.stdout.splitlines()) == [["loss", str(n)] for n in range(1, 5)]


def test_a_watch_shows_how_a_pod_of_a_trial_ended_before_it_goes(world: World, tmp_path: Path) -> None:
    release = tmp_path / "go"
    command = f"until test -e {release}; do sleep 0.05; done; echo loss=${{trialParameters.learningRate}}"
    seen: list[dict[str, str]] = []
    with world.http.stream("GET", "/api/v1/namespaces/ends/pods", params={"watch": "1"}) as stream:
        made = an_experiment(namespace="ends", command=command, maxTrialCount=1, parallelTrialCount=1)
        assert world.http.post(EXPERIMENTS.replace("default", "ends"), json=made).status_code == 201
        for line in stream.iter_lines():
            event = json.loads(line)
            status = event["object"]["status"]
            ready = {c["type"]: c["status"] for c in status["conditions"] if c["lastTransitionTime"]}.get("Ready", "")
            seen.append({"type": event["type"], "phase": status["phase"], "ready": ready})
            if seen[-1]["ready"] == "True":
                release.touch()
            if seen[-1]["type"] == "DELETED":
                break
    world.http.delete(f"{EXPERIMENTS.replace('default', 'ends')}/demo")

    assert {"type": "ADDED", "phase": "Running", "ready": "True"} in seen
    assert seen[-2:] == [{"type": type_, "phase": "Succeeded", "ready": "False"} for type_ in ("MODIFIED", "DELETED")]


def test_an_indexed_job_is_resized_while_it_runs(world: World) -> None:
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none", "command": ["sleep", "600"]}]}
    spec = {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "template": {"spec": pod}}
    world.http.post(jobs, json={"metadata": {"name": "elastic"}, "spec": spec})

    def resized(completions: int, parallelism: int) -> int:
        body = json.dumps({"spec": {"completions": completions, "parallelism": parallelism}})
        headers = {"content-type": "application/merge-patch+json"}
        answer = world.http.patch(f"{jobs}/elastic", content=body, headers=headers)
        eventually(lambda: answer.status_code != 200 or active() == completions)
        return answer.status_code

    def active() -> int:
        status: dict[str, int] = world.http.get(f"{jobs}/elastic").json().get("status") or {}
        return status.get("active", 0)

    eventually(lambda: active() == 2)
    codes = [resized(3, 3), resized(1, 1), resized(2, 1)]
    world.http.delete(f"{jobs}/elastic")

    assert codes == [200, 200, 422]


def replicas_of(name: str) -> Json:
    container = {"name": name, "image": "none", "command": ["sh", "-c", "sleep 600"]}
    return {"replicas": 1, "template": {"spec": {"containers": [container]}}}


MPI = {role: replicas_of("mpi") for role in ("Launcher", "Worker")}
TORCH = {role: replicas_of("pytorch") for role in ("Master", "Worker")}
SET = [{"name": "work", "replicas": 2, "template": {"spec": {"template": replicas_of("main")["template"]}}}]
NODES = {"numNodes": 2, "command": ["sh", "-c", "sleep 600"]}
OF_ROLES = ["training.kubeflow.org/job-name={}", "job-name={}-launcher"]
OF_SET = ["jobset.sigs.k8s.io/jobset-name={}"]


@pytest.mark.parametrize(
    ("version", "kind", "spec", "selectors"),
    [
        ("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": TORCH}, OF_ROLES[:1]),
        ("kubeflow.org/v2beta1", "MPIJob", {"mpiReplicaSpecs": MPI}, OF_ROLES),
        ("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": SET}, OF_SET),
        (
            "trainer.kubeflow.org/v1alpha1",
            "TrainJob",
            {"runtimeRef": {"name": "torch-distributed"}, "trainer": NODES},
            OF_SET,
        ),
    ],
)
def test_the_labels_of_an_operator_choose_the_pods_of_one_job(
    world: World, version: str, kind: str, spec: Json, selectors: list[str]
) -> None:
    core, jobs = "/api/v1/namespaces/default/pods", f"/apis/{version}/namespaces/default/{kind.lower()}s"
    for name in ("one", "two"):
        world.http.post(jobs, json={"metadata": {"name": name}, "spec": spec}).raise_for_status()

    def owners(selector: str) -> set[str]:
        """Return the names of the jobs of the pods that a selector chooses, once there are any."""
        query = {"labelSelector": selector}
        found = eventually(lambda: world.http.get(core, params=query).json()["items"], selector)
        return {pod["metadata"]["ownerReferences"][0]["name"] for pod in found}

    for name in ("one", "two"):
        for selector in selectors:
            assert owners(selector.format(name)) == {name}
        if selectors != OF_SET:
            status = f"{jobs}/{name}"
            roles = eventually(lambda path=status: world.http.get(path).json().get("status", {}).get("replicaStatuses"))
            assert [owners(role["selector"]) for role in roles.values()] == [{name}] * len(roles)
    for name in ("one", "two"):
        world.http.delete(f"{jobs}/{name}")
    eventually(lambda: not world.http.get(core).json()["items"])


def test_the_pods_of_a_job_are_found_by_its_selector(world: World, tmp_path: Path) -> None:
    command = f"until test -e {tmp_path}/go; do sleep 0.05; done; echo loss=${{trialParameters.learningRate}}"
    world.http.post(EXPERIMENTS, json=an_experiment(command=command, maxTrialCount=2, parallelTrialCount=2))
    core, jobs = "/api/v1/namespaces/default/pods", "/apis/batch/v1/namespaces/default/jobs"
    eventually(lambda: len(world.http.get(core).json()["items"]) == 2)
    for job in world.http.get(jobs).json()["items"]:
        spec, labels = job["spec"], job["spec"]["selector"]["matchLabels"]
        selector = ",".join(f"{name}={text}" for name, text in labels.items())
        found = world.http.get(core, params={"labelSelector": selector}).json()["items"]

        assert [pod["metadata"]["ownerReferences"][0]["name"] for pod in found] == [job["metadata"]["name"]]
        assert labels.items() <= spec["template"]["metadata"]["labels"].items()
        assert (spec["completions"], spec["parallelism"], spec["suspend"]) == (1, 1, False)
        assert spec["completionMode"] == "NonIndexed"
    (tmp_path / "go").touch()
    world.http.delete(f"{EXPERIMENTS}/demo")
