"""Jobs that wait in a queue of Kueue, over a real API server. The test plays Kueue and the training operator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from katib.engine.controllers.kinds import TRIAL
from katib.engine.runtime.objects import Key, Kind, Object
from katib.errors import ConflictError, InvalidError, NotFoundError
from katib.model.metrics import ZERO_TIME, MetricLog
from katib.model.names import QUEUE_LABEL
from katib.model.trials import waiting_words
from katib.model.types import Trial
from katib.places.cluster.access.tuning_service import open_cluster
from katib.places.cluster.pods.workloads import WORKLOADS
from katib.service.tuning.states import state_of
from tests.support.api_server import ApiServer
from tests.support.control_plane import ControlPlane, an_experiment_of_stand_ins, rules_of_the_controller
from tests.support.server_kinds import install_kind, remove_kind
from tests.support.stores import owned_by
from tests.support.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

NS = "queued"
PYTORCH = Kind("kubeflow.org/v1", "PyTorchJob")
NO_ROOM = (
    "couldn't assign flavors to pod set master: insufficient unused quota for cpu in flavor default, 1 more needed"
)
PREEMPTED = "Preempted to accommodate a workload (UID: 7) due to prioritization in the ClusterQueue"


@pytest.fixture(scope="module")
def plane(api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(api_server, tmp_path_factory.mktemp("plane")) as made:
        install_kind(api_server, *PYTORCH)
        made.namespace(NS)
        yield made
        made.server.delete_namespace(NS)


@contextmanager
def controller(plane: ControlPlane, name: str) -> Iterator[None]:
    """Run a controller with just the rights of the manifests; it logs no error and no missing right."""
    made = plane.controller(name)
    made.kubeconfig = plane.server.user(name, rules_of_the_controller())
    made.start()
    try:
        made.await_work()
        yield
    finally:
        made.stop()
        plane.server.forget_user(name)
    lines = [json.loads(line) for line in made.log.read_text().splitlines() if line.startswith("{")]
    assert [line for line in lines if line["level"] == "error" or " may not " in line["message"]] == []


def submit(plane: ControlPlane, name: str, **policy: Any) -> None:
    """Create an experiment of one trial that names a queue."""
    container = {"name": "pytorch", "image": "i", "command": ["train", "--lr=${trialParameters.lr}"]}
    master = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    spec: dict[str, Any] = {"pytorchReplicaSpecs": {"Master": master}, **({"runPolicy": policy} if policy else {})}
    template = {
        "primaryContainerName": "pytorch",
        "retain": True,
        "trialParameters": [{"name": "lr", "reference": "lr"}],
        "trialSpec": {"apiVersion": PYTORCH.api_version, "kind": PYTORCH.kind, "spec": spec},
    }
    budget = {"maxTrialCount": 1, "parallelTrialCount": 1, "maxFailedTrialCount": 0}
    made = an_experiment_of_stand_ins(name, NS, trialTemplate=template, **budget)
    plane.store.create({**made, "metadata": {**made["metadata"], "labels": {QUEUE_LABEL: "team-a"}}})


def trial_of(plane: ControlPlane, experiment: str) -> Trial:
    def found() -> list[Object]:
        return [one for one in plane.trials(NS) if one["metadata"]["name"].startswith(f"{experiment}-")]

    eventually(found, "its trial")
    return Trial.decode(found()[0])


def job_of(plane: ControlPlane, name: str) -> Object:
    def found() -> Object | None:
        with suppress(NotFoundError):
            return plane.store.get(PYTORCH, Key(NS, name))
        return None

    return eventually(found, "its job")


def says(plane: ControlPlane, name: str, words: str, state: str = "Pending") -> Trial:
    """Wait until a trial says something; return it."""

    def read() -> Trial:
        return Trial.decode(plane.store.get(TRIAL, Key(NS, name)))

    def is_said() -> bool:
        return (state_of(read()), waiting_words(read())) == (state, words)

    eventually(is_said, f"{state}: {words}", picture=lambda: str(read().status))
    return read()


def set_status(plane: ControlPlane, kind: Kind, name: str, **held: Any) -> None:
    """Give an object these conditions, each `Type=(whether it holds, message)`."""
    conditions = [
        {"type": type_, "status": str(holds), "reason": type_, "message": message}
        for type_, (holds, message) in held.items()
    ]

    def attempt() -> bool:
        with suppress(ConflictError):
            plane.store.update_status({**plane.store.get(kind, Key(NS, name)), "status": {"conditions": conditions}})
            return True
        return False

    eventually(attempt)


def suspend(plane: ControlPlane, name: str, *, suspended: bool) -> None:
    """Suspend a job as Kueue does, or let it continue, and have its operator say so."""
    plane.store.patch(plane.store.get(PYTORCH, Key(NS, name)), {"spec": {"runPolicy": {"suspend": suspended}}})
    running = {} if suspended else {"Running": (True, "")}
    set_status(plane, PYTORCH, name, Suspended=(suspended, ""), **running)


def report(plane: ControlPlane, name: str, *losses: str) -> None:
    plane.log.report(name, [MetricLog(ZERO_TIME, "loss", loss) for loss in losses])


def test_without_kueue_a_queue_s_name_has_no_effect(plane: ControlPlane) -> None:
    """Also where the template says that the job starts suspended, as those written for Kueue do."""
    with controller(plane, "without-kueue"):
        submit(plane, "alone", suspend=True)
        name = trial_of(plane, "alone").name
        job = job_of(plane, name)
        set_status(plane, PYTORCH, name, Running=(True, ""))
        says(plane, name, "", "Running")

    assert job["spec"]["runPolicy"] == {"suspend": False}
    assert job["metadata"]["labels"][QUEUE_LABEL] == "team-a"


@pytest.fixture(params=WORKLOADS, ids=["v1beta2", "v1beta1"])
def workloads(plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[Kind]:
    """The kind by which an API server shows that it has Kueue."""
    install_kind(plane.server, *request.param)
    yield request.param
    remove_kind(plane.server, *request.param)


def test_a_job_waits_in_its_queue_is_preempted_and_goes_on(plane: ControlPlane, workloads: Kind) -> None:
    version = workloads.api_version.rpartition("/")[2]
    experiment = f"queued-{version}"
    with controller(plane, experiment):
        submit(plane, experiment)
        name = trial_of(plane, experiment).name
        job = job_of(plane, name)
        said_first = says(plane, name, "waits in Kueue's queue team-a")
        owners = [{**owner, "controller": True} for owner in owned_by(job)]
        metadata = {"name": f"pytorchjob-{name}", "namespace": NS, "ownerReferences": owners}
        plane.store.create({"apiVersion": workloads.api_version, "kind": workloads.kind, "metadata": metadata})

        def kueue(**held: Any) -> None:
            set_status(plane, workloads, f"pytorchjob-{name}", **held)

        kueue(QuotaReserved=(False, NO_ROOM))
        says(plane, name, f"waits in Kueue's queue team-a: {NO_ROOM}")
        with open_cluster(plane.server.kubeconfig) as cluster:
            told = cluster.service.why(NS, name)
            for suspended in (True, False):
                with pytest.raises(InvalidError, match="queue team-a; Kueue decides when it runs"):
                    cluster.service.edit_trial(NS, name, paused=suspended)

        kueue(QuotaReserved=(True, ""), Admitted=(True, ""))
        suspend(plane, name, suspended=False)
        says(plane, name, "", "Running")
        report(plane, name, "0.5")
        kueue(Evicted=(True, PREEMPTED), QuotaReserved=(False, NO_ROOM), Admitted=(False, ""))
        suspend(plane, name, suspended=True)
        says(plane, name, f"waits in Kueue's queue team-a: {PREEMPTED}; {NO_ROOM}")
        kept = plane.log.count(name)
        kueue(Evicted=(False, ""), QuotaReserved=(True, ""), Admitted=(True, ""))
        suspend(plane, name, suspended=False)
        says(plane, name, "", "Running")
        report(plane, name, "0.25")
        set_status(plane, PYTORCH, name, Suspended=(False, ""), Succeeded=(True, "done"))
        ended = plane.wait_for_end(experiment, NS)

    (loss,) = ended["status"]["currentOptimalTrial"]["observation"]["metrics"]
    assert job["spec"]["runPolicy"] == {"suspend": True}
    assert said_first.metadata.labels.get(QUEUE_LABEL) is None  # or its pods would bear it, too
    assert told.verdict == f"{name} waits in Kueue's queue team-a: {NO_ROOM}."
    assert told.remedies == (f"It continues by itself once Kueue admits its Workload: kubectl -n {NS} get workloads",)
    assert kept == 1
    assert (ended["status"]["trialsSucceeded"], ended["status"].get("trialsFailed")) == (1, None)
    assert (loss["min"], loss["max"], loss["latest"]) == ("0.25", "0.5", "0.25")
