"""OptimizationJobs over a real API server: the kind of the manifests, the controller as a process, TrainJobs that end.

What Kubeflow Trainer does is played here: a TrainJob gets the status that its program would post, and ends.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from katib.engine.controllers.kinds import OPTIMIZATION_JOB
from katib.engine.runtime.objects import Key, Kind, Object
from katib.errors import ConflictError
from katib.model.names import EXPERIMENT_LABEL
from katib.places.cluster.access.tuning_service import open_cluster
from tests.support.api_server import ApiServer
from tests.support.control_plane import EXPERIMENT, ControlPlane
from tests.support.server_kinds import DEFINITIONS, exists, install_kind
from tests.support.waiting import eventually, never

ROOT = Path(__file__).resolve().parents[2]
DEFINITION = ROOT / "manifests" / "components" / "optimization-jobs" / "optimizationjobs.yaml"
TRAIN_JOB = Kind("trainer.kubeflow.org/v1alpha1", "TrainJob")
NAMESPACE = "optimization-jobs"
PATH = "/apis/trainer.kubeflow.org/v1alpha1/optimizationjobs"

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture(scope="module")
def plane(api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    api_server.create(DEFINITIONS, yaml.safe_load(DEFINITION.read_text()))
    with ControlPlane(api_server, tmp_path_factory.mktemp("plane")) as made:
        eventually(lambda: exists(api_server, PATH), "the kind to be served")
        install_kind(api_server, TRAIN_JOB.api_version, TRAIN_JOB.kind)
        made.namespace(NAMESPACE)
        yield made
        api_server.delete_namespace(NAMESPACE)


def a_job(name: str, annotations: dict[str, str]) -> Object:
    job: dict[str, Any] = yaml.safe_load((ROOT / "examples/kubernetes/optimization-job.yaml").read_text())
    job["metadata"] = {"name": name, "namespace": NAMESPACE, "annotations": annotations}
    return job


def post(plane: ControlPlane, job: Object, loss: float, step: int, *conditions: dict[str, str]) -> None:
    """Write the status that the program of a TrainJob posts."""
    metrics = [{"name": "loss", "value": str(loss)}, {"name": "current_step", "value": str(step)}]
    trainer = {"metrics": metrics, "progressPercentage": 50 * step, "lastUpdatedTime": f"2026-08-01T12:00:0{step}Z"}
    stored = plane.store.get(TRAIN_JOB, Key.of(job))
    plane.store.update_status({**stored, "status": {"conditions": list(conditions), "trainerStatus": trainer}})


def train(plane: ControlPlane) -> None:
    """Run the program of every TrainJob, and post its first value, and its last once the first is among the readings.

    Of the second the controller sees the end at the same time.
    """
    for job in plane.store.list(TRAIN_JOB, NAMESPACE).items:
        env = {entry["name"]: entry["value"] for entry in job["spec"]["trainer"]["env"]}
        [program, *words] = job["spec"]["trainer"]["command"]
        done = subprocess.run([sys.executable, *words], env=env, capture_output=True, text=True, check=True)
        first, *_, loss = (float(line.removeprefix("loss=")) for line in done.stdout.splitlines())
        assert program == "python3"
        if "status" not in job:
            post(plane, job, first, 1)
        elif not job["status"].get("conditions") and plane.log.count(job["metadata"]["name"], metric_name="loss"):
            post(plane, job, loss, 2, {"type": "Complete", "status": "True", "reason": "JobsCompleted", "message": ""})


def test_an_annotated_job_gets_its_result_and_others_are_left_alone(plane: ControlPlane) -> None:
    plane.store.create(a_job("ours", {"katib.kubeflow.org/algorithm": "random"}))
    plane.store.create(a_job("theirs", {}))
    plane.store.create({**a_job("wrong", {"katib.kubeflow.org/algorithm": "random"}), "spec": wrong_spec()})
    controller = plane.controller("optimization-jobs").start()

    def job(name: str) -> Object:
        return plane.store.get(OPTIMIZATION_JOB, Key(NAMESPACE, name))

    def has_ended(name: str) -> Object | None:
        train(plane)
        found = job(name)
        ends = [one for one in found.get("status", {}).get("conditions", ()) if one["type"] != "Created"]
        return found if ends else None

    eventually(controller.works)
    ours = eventually(lambda: has_ended("ours"), seconds=120)
    wrong = eventually(lambda: has_ended("wrong"))
    experiment = plane.experiment("ours", NAMESPACE)
    own = [one for one in plane.trials(NAMESPACE) if one["metadata"]["labels"][EXPERIMENT_LABEL] == "ours"]
    trials = {trial["metadata"]["name"]: trial for trial in own}
    values = {name: float(t["status"]["observation"]["metrics"][0]["latest"]) for name, t in trials.items()}

    curves = [[(r.name, r.step, r.time.second) for r in plane.log.read(name)] for name in trials]
    step_by_step = [("loss", 1, 1), ("progressPercentage", 1, 1), ("loss", 2, 2), ("progressPercentage", 2, 2)]

    with open_cluster(plane.server.kubeconfig) as opened:
        why = opened.service.why(NAMESPACE, "theirs")

    assert why.verdict == ("Nobody works on OptimizationJob theirs: it has no annotation katib.kubeflow.org/algorithm.")
    assert ours["status"]["conditions"][-1]["reason"] == "MaxTrialsReached"
    assert curves == [step_by_step] * 6
    assert ours["status"]["result"]["trainJobName"] == min(values, key=lambda name: values[name])
    assert len(values) == 6
    assert [owner["uid"] for owner in experiment["metadata"]["ownerReferences"]] == [ours["metadata"]["uid"]]
    assert "spec.parallelTrials" in wrong["status"]["conditions"][-1]["message"]
    never(lambda: "status" in job("theirs"))
    plane.store.delete(OPTIMIZATION_JOB, Key(NAMESPACE, "ours"))
    eventually(lambda: not plane.store.list(EXPERIMENT, NAMESPACE).items, seconds=180)
    assert controller.stop() == 0


def test_managed_by_and_suspend_are_obeyed(plane: ControlPlane) -> None:
    ours, annotated = "katib.kubeflow.org/katib-controller", {"katib.kubeflow.org/algorithm": "random"}
    for name, spec, notes in (
        ("managed", {"managedBy": ours}, {}),
        ("other", {"managedBy": "trainer.kubeflow.org/optimizationjob-controller"}, annotated),
        ("begun", {}, annotated),
        ("waiting", {"suspend": True}, annotated),
    ):
        job = a_job(name, notes)
        plane.store.create({**job, "spec": {**job["spec"], **spec}})
    begun = plane.store.get(OPTIMIZATION_JOB, Key(NAMESPACE, "begun"))
    created = {"type": "Created", "status": "True", "reason": "TrainJobsCreated", "message": ""}
    plane.store.update_status({**begun, "status": {"conditions": [created | {"lastTransitionTime": _TIME}]}})
    controller = plane.controller("managed").start()

    def made() -> list[str]:
        return [experiment["metadata"]["name"] for experiment in plane.store.list(EXPERIMENT, NAMESPACE).items]

    def suspend(name: str, *, to: bool) -> None:
        def patched() -> bool:
            found = plane.store.get(OPTIMIZATION_JOB, Key(NAMESPACE, name))
            with suppress(ConflictError):  # the controller writes the status meanwhile
                plane.store.patch(found, {"spec": {"suspend": to}})
                return True
            return False

        eventually(patched)

    def suspended_trainings() -> list[bool]:
        return [job["spec"].get("suspend", False) for job in plane.store.list(TRAIN_JOB, NAMESPACE).items]

    eventually(lambda: made() == ["managed"])
    eventually(lambda: suspended_trainings() == [False, False])
    suspend("managed", to=True)
    eventually(lambda: suspended_trainings() == [True, True])
    suspend("managed", to=False)
    eventually(lambda: suspended_trainings() == [False, False])
    suspend("waiting", to=False)
    eventually(lambda: made() == ["managed", "waiting"])
    with open_cluster(plane.server.kubeconfig) as opened:
        whys = [opened.service.why(NAMESPACE, name).verdict for name in ("other", "begun")]

    assert "its spec.managedBy is trainer.kubeflow.org/optimizationjob-controller" in whys[0]
    assert "its condition Created is of another controller (TrainJobsCreated)" in whys[1]
    assert controller.stop() == 0


_TIME = "2026-08-01T12:00:00Z"


def wrong_spec() -> dict[str, Any]:
    spec: dict[str, Any] = a_job("", {})["spec"]
    return {**spec, "parallelTrials": 90}
