"""What a user of a cluster is told: output, reasons, metrics, with the rights and the outages that clusters have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import yaml

from katib.engine.controllers.kinds import CONFIG_MAP, EXPERIMENT
from katib.engine.runtime.clock import SystemClock
from katib.engine.runtime.objects import Key, Object
from katib.errors import (
    FieldError,
    ForbiddenError,
    InvalidError,
    KindNotInstalledError,
    NotFoundError,
    UnavailableError,
)
from katib.model.failure_text import failure_cause
from katib.model.metrics import ZERO_TIME, LogAccess, MetricLog
from katib.model.types import Experiment, Trial
from katib.places.cluster.access.facts import CONTROLLER
from katib.places.cluster.access.metrics import DB_MANAGER, MetricsAccess, direct_address
from katib.places.cluster.access.tuning_service import ServingHome
from katib.places.cluster.environment import DEFAULT_CORE_NAMESPACE
from katib.places.cluster.pods.reading import POD, facts_of
from katib.places.cluster.services.plan import DEPLOYMENT, SERVICE
from katib.service.tuning.replicas import COLLECTORS
from katib.service.tuning.service import Diagnosis
from katib.wire.rpc.credentials import DbManagerCredentials
from katib.wire.rpc.db_manager import serve_db_manager
from katib.wire.rpc.log_guard import LogGuard, MemoryAccessList
from katib.wire.rpc.tokens import CallerRole, TokenClaims, TokenSigner
from metrics_collector.delivery import KEPT
from tests.support.clock import VirtualClock
from tests.support.cluster import CORE, JOB, ClusterWorld, memory_cluster, memory_world, said
from tests.support.golden import Golden
from tests.support.memory_store import MemoryStore
from tests.support.observations import MemoryObservationLog
from tests.support.refusals import refused
from tests.support.tuning import document

NS = "default"


@pytest.fixture
def world() -> Iterator[ClusterWorld]:
    """A cluster in which `demo` was submitted and has one trial, `demo-0000`, that runs."""
    with memory_world() as made:
        made.service.submit(document("demo"), source="demo.yaml")
        start_trial(made, "demo-0000")
        yield made


def start_trial(world: ClusterWorld, name: str = "demo-0001", **spec: Any) -> Object:
    return world.stand_in.start_trial(world.stand_in.store.get(EXPERIMENT, Key(NS, "demo")), name, **spec)


def trial_of(world: ClusterWorld, name: str = "demo-0000") -> dict[str, Any]:
    return world.service.get(Trial, NS, name).encode()


def add_job(world: ClusterWorld, **status: Any) -> Object:
    job = world.stand_in.store.create(
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "demo-0000", "namespace": NS}, "spec": {}}
    )
    return world.stand_in.set_status(job, status)


def container(state: dict[str, Any], *, name: str = "main", **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "nosuch:1", "state": state, **more}


def waiting(reason: str, message: str = "", **more: Any) -> dict[str, Any]:
    """Return the status of a pod whose container waits."""
    state = {"waiting": {"reason": reason, "message": message}}
    return {"phase": "Pending", "containerStatuses": [container(state, **more)]}


def unscheduled(message: str) -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {"phase": "Pending", "conditions": [condition]}


def add_pod(world: ClusterWorld, trial: Object | None = None, name: str = "", *, log: str = "", **status: Any) -> None:
    """Add a pod of a trial, whose container printed this."""
    pod = world.stand_in.add_pod(trial or trial_of(world), name, **status)
    if log:
        world.stand_in.logs.written[Key.of(pod), "main"] = log.encode()


def why(world: ClusterWorld, name: str = "demo-0000") -> Diagnosis:
    return world.service.why(NS, name)


# --- edits ------------------------------------------------------------------------------------------------------------


def test_a_raised_budget_leaves_what_the_author_stored_in_its_own_form(world: ClusterWorld) -> None:
    """As the official SDK stores it, with an empty list, and as an older cluster did, without defaults."""
    store = world.stand_in.store
    found = store.get(EXPERIMENT, Key(NS, "demo"))
    raw = yaml.safe_load(document("demo"))["spec"]
    spec = {**raw, "objective": {**raw["objective"], "additionalMetricNames": []}, "earlyStopping": None}
    store.update({**found, "spec": spec})

    assert world.service.submit(document("demo", trials=9), source="demo.yaml").outcome == "updated"
    assert store.get(EXPERIMENT, Key(NS, "demo"))["spec"] == {**spec, "maxTrialCount": 9}


# --- output -----------------------------------------------------------------------------------------------------------


def logged(world: ClusterWorld, **options: Any) -> bytes:
    return b"".join(world.service.logs(NS, "demo-0000", **options))


def test_the_output_is_that_of_the_pod_that_tells_most(world: ClusterWorld) -> None:
    trial = trial_of(world)
    for name, phase in (("a-failed", "Failed"), ("b-runs", "Running"), ("c-waits", "Pending")):
        add_pod(world, trial, name, log=f"{name}\n", phase=phase)

    assert logged(world) == b"b-runs\n"


def test_the_collector_shows_what_it_took_over(world: ClusterWorld) -> None:
    pod = world.stand_in.add_pod(trial_of(world), phase="Running")
    containers = [*pod["spec"]["containers"], {"name": "metrics-logger-and-collector", "image": "none"}]
    world.stand_in.store.update({**pod, "spec": {**pod["spec"], "containers": containers}})
    world.stand_in.logs.written[Key.of(pod), "metrics-logger-and-collector"] = b"from the collector\n"

    assert logged(world) == b"from the collector\n"


def test_a_launched_program_keeps_its_output(world: ClusterWorld) -> None:
    pod = world.stand_in.add_pod(trial_of(world), phase="Running")
    (program,) = pod["spec"]["containers"]
    containers = [{**program, "command": ["/var/run/katib/launch", "--"]}]
    collector = {"name": "metrics-logger-and-collector", "image": "none", "restartPolicy": "Always"}
    spec = {**pod["spec"], "containers": containers, "initContainers": [collector]}
    world.stand_in.store.update({**pod, "spec": spec})

    world.stand_in.logs.written[Key.of(pod), program["name"]] = b"from the program\n"

    assert logged(world) == b"from the program\n"


def test_other_collectors_leave_the_output_to_the_primary_container(world: ClusterWorld) -> None:
    trial = start_trial(world, metricsCollector={"collector": {"kind": "File"}})
    add_pod(world, trial, log="from the program\n", phase="Running")

    assert b"".join(world.service.logs(NS, "demo-0001")) == b"from the program\n"


def test_only_primary_pods_are_read(world: ClusterWorld) -> None:
    add_pod(world, start_trial(world, primaryPodLabels={"role": "master"}), phase="Running")

    with pytest.raises(NotFoundError, match="has no pod yet"):
        world.service.logs(NS, "demo-0001")


def test_an_ended_trial_without_a_pod_advises_to_retain_it(world: ClusterWorld) -> None:
    world.stand_in.end_trial(trial_of(world), said("Succeeded"), loss="0.5")

    with pytest.raises(NotFoundError, match=r"set spec\.trialTemplate\.retain to true"):
        logged(world)


def test_a_container_that_has_not_started_is_no_bug(world: ClusterWorld) -> None:
    world.stand_in.add_pod(trial_of(world), phase="Pending")

    with pytest.raises(NotFoundError, match="ContainerCreating"):
        logged(world)


def test_following_waits_for_the_pod_and_goes_on_to_the_next_one(world: ClusterWorld) -> None:
    trial = trial_of(world)
    chunks = world.service.logs(NS, "demo-0000", follow=True)
    silence = next(chunks)
    for name in ("first", "second"):
        pod = world.stand_in.add_pod(trial, name, phase="Running")
        world.stand_in.logs.written[Key.of(pod), "main"] = f"{name}\n".encode()
        while (chunk := next(chunks)) == b"":
            pass
        assert chunk == f"{name}\n".encode()
        world.stand_in.set_status(pod, {"phase": "Failed"})
    world.stand_in.end_trial(trial, said("Failed"))

    assert silence == b""
    assert b"".join(chunks) == b""


def test_an_empty_answer_for_a_running_container_is_asked_for_again(world: ClusterWorld) -> None:
    trial = trial_of(world)
    pod = world.stand_in.add_pod(trial, phase="Running")
    world.stand_in.logs.written[Key.of(pod), "main"] = b""
    chunks = world.service.logs(NS, "demo-0000", follow=True)
    silence = next(chunks)
    world.stand_in.logs.written[Key.of(pod), "main"] = b"late\n"
    first = next(chunk for chunk in chunks if chunk)
    world.stand_in.end_trial(trial, said("Succeeded"))

    assert (silence, first) == (b"", b"late\n")
    assert b"".join(chunks) == b""


# --- reasons ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "status",
    [
        pytest.param(unscheduled("0/1 nodes are available: 1 Insufficient cpu."), id="unschedulable"),
        pytest.param(unscheduled('persistentvolumeclaim "data" not found'), id="pvc"),
        pytest.param(unscheduled("didn't match node selector."), id="no node"),
        pytest.param(unscheduled("had taint {gpu: }"), id="taint"),
        pytest.param(waiting("ImagePullBackOff"), id="image"),
        pytest.param(waiting("CreateContainerConfigError", 'secret "s" not found'), id="configuration"),
        pytest.param(waiting("CreateContainerError", "no such user"), id="user"),
        pytest.param(
            waiting("CrashLoopBackOff", lastState={"terminated": {"exitCode": 3}}, restartCount=2), id="crash-loop"
        ),
    ],
)
def test_a_pod_that_does_not_run_says_why(world: ClusterWorld, status: dict[str, Any], golden: Golden) -> None:
    add_job(world, active=1)
    world.stand_in.add_pod(trial_of(world), **status)

    golden(why(world).verdict, why(world).remedies[0])
    golden(why(world, "demo").verdict)


def test_an_image_that_cannot_be_pulled_says_why(world: ClusterWorld) -> None:
    """The status alternates between the registry's words and a mere back-off, the events keep the words."""
    add_job(world, active=1)
    pod = world.stand_in.add_pod(trial_of(world), **waiting("ImagePullBackOff"))
    cause = 'Head "https://nosuch/v2": dial tcp: lookup nosuch: no such host'
    failed = f'Failed to pull image "nosuch:1": rpc error: code = Unknown desc = {cause}'
    for message in (failed, "Error: ImagePullBackOff"):
        world.stand_in.add_event(pod, "Failed", message, warning=True)

    assert f"cannot be pulled: {cause}." in why(world).verdict


@pytest.mark.parametrize(
    ("cause", "remedy"),
    [
        ('secret "s" not found', "Create what is missing"),
        ("timed out", "Look at it: kubectl -n default describe pod p."),
    ],
)
def test_a_pod_that_does_not_start_says_what_its_trial_found_out(
    world: ClusterWorld, cause: str, remedy: str, golden: Golden
) -> None:
    add_job(world, active=1)
    pod = world.stand_in.add_pod(trial_of(world), "p", **waiting("ContainerCreating"))
    world.stand_in.store.update({**pod, "spec": {**pod["spec"], "nodeName": "node-1"}})
    told = f"Trial waits: pod p does not start: {cause}"
    world.stand_in.set_status(trial_of(world), {"conditions": [said("Running", "TrialWaiting", told)]})

    golden(why(world).verdict)
    assert why(world).remedies[0].startswith(remedy)


def test_a_pod_that_pulls_an_image_says_for_how_long(world: ClusterWorld) -> None:
    add_job(world, active=1)
    pod = world.stand_in.add_pod(trial_of(world), "p", **waiting("ContainerCreating"))
    world.stand_in.store.update({**pod, "spec": {**pod["spec"], "nodeName": "node-1"}})
    told = 'Trial waits: pod p pulls image "i:1" since 2024-05-01T12:00:00Z'
    world.stand_in.set_status(
        trial_of(world), {"conditions": [{**said("Running", "TrialWaiting", told), "status": "False"}]}
    )

    assert re.fullmatch(
        r'demo-0000 waits: pod p pulls image "i:1" since 2024-05-01T12:00:00Z, for \d+d(\d+h)?\.', why(world).verdict
    )


@pytest.mark.parametrize(("program", "is_held"), [({"terminated": {"exitCode": 0}}, True), ({"running": {}}, False)])
def test_a_collector_that_cannot_send_holds_a_trial_whose_program_has_ended(
    world: ClusterWorld, program: dict[str, Any], is_held: bool
) -> None:
    """As where a NetworkPolicy keeps the pods of a namespace from the DB manager."""
    add_job(world, active=1)
    collector = container({"running": {}}, name=COLLECTORS[0])
    pod = world.stand_in.add_pod(trial_of(world), phase="Running", containerStatuses=[container(program), collector])
    containers = [*pod["spec"]["containers"], {"name": COLLECTORS[0], "image": "x"}]
    world.stand_in.store.update({**pod, "spec": {**pod["spec"], "containers": containers}})
    line = f"metrics-collector: {KEPT}: DB manager at db:6789: Deadline Exceeded"
    world.stand_in.logs.written[Key.of(pod), COLLECTORS[0]] = f"loss=1\n{line}\n".encode()

    held = f"has to wait: its program has ended, and its {KEPT}: DB manager at db:6789: Deadline Exceeded."
    assert why(world).verdict.endswith(held) is is_held
    assert any("a NetworkPolicy of namespace default" in remedy for remedy in why(world).remedies) is is_held


def test_an_init_container_that_failed_is_named_and_its_output_shown(world: ClusterWorld, golden: Golden) -> None:
    add_job(world, failed=1)
    ended = container({"terminated": {"exitCode": 3}}, name="data")
    pod = world.stand_in.add_pod(trial_of(world), phase="Failed", initContainerStatuses=[ended])
    spec = {**pod["spec"], "initContainers": [{"name": "data", "image": "x"}]}
    world.stand_in.store.update({**pod, "spec": spec})
    world.stand_in.logs.written[Key.of(pod), "data"] = b"cannot fetch data\n"
    told = failure_cause(facts_of(world.stand_in.store.get(POD, Key.of(pod))).failure)
    retrying = said("Running", "TrialRetrying", f"Trial waits: {told}; try 2 of 7")
    world.stand_in.set_status(trial_of(world), {"conditions": [retrying]})

    golden(why(world).verdict)
    assert why(world).log_tail == ("cannot fetch data",)


def test_a_crash_loop_shows_the_end_of_the_output(world: ClusterWorld) -> None:
    add_job(world, active=1)
    ended = {"terminated": {"exitCode": 1}}
    add_pod(world, log="ValueError: no data\n", **waiting("CrashLoopBackOff", lastState=ended))

    assert why(world).log_tail == ("ValueError: no data",)


@pytest.mark.parametrize(
    "message",
    [
        'admission webhook "policy.example" denied the request: no root',
        'pods "demo-0000-x" is forbidden: exceeded quota: small',
        "violates PodSecurity restricted:latest",
        "something else",
        'failed calling webhook "x": service "x" not found',
        "exceeded quota: q, requested: cpu=2, used: cpu=0, limited: cpu=1",
    ],
    ids=["webhook", "quota", "pod-security", "other", "webhook-away", "whole-quota"],
)
def test_a_job_whose_pod_is_refused_says_by_whom(world: ClusterWorld, message: str, golden: Golden) -> None:
    job = add_job(world)
    world.stand_in.add_event(job, "FailedCreate", f"Error creating: {message}", warning=True)

    golden(why(world).verdict, why(world).remedies[0])


def test_a_trial_that_knows_of_refused_pods_says_so_where_its_job_does_not(world: ClusterWorld, golden: Golden) -> None:
    add_job(world)
    refusal = "Trial is running: no pod of its job can be created: exceeded quota: small"
    world.stand_in.set_status(trial_of(world), {"conditions": [said("Running", "TrialWaiting", refusal)]})

    golden(why(world).verdict)
    golden(why(world).remedies[0])


@pytest.mark.parametrize(
    "ended",
    [
        {"exitCode": 137, "reason": "OOMKilled"},
        {"exitCode": 143},
        {"exitCode": 1, "signal": 9},
        {"exitCode": 127},
        {"exitCode": 200},
    ],
    ids=["memory", "shell", "kubelet", "command", "code"],
)
def test_a_failed_trial_says_how_its_container_ended(
    world: ClusterWorld, ended: dict[str, Any], golden: Golden
) -> None:
    add_job(world, failed=1)
    collector = container({"terminated": {"exitCode": 9}}, name="metrics-logger-and-collector")
    states = [collector, container({"terminated": ended})]
    add_pod(world, log="last words\n", phase="Failed", containerStatuses=states)
    world.stand_in.end_trial(trial_of(world), said("Failed", "TrialFailed"))

    golden(why(world).verdict)
    assert why(world).log_tail == ("last words",)


def test_a_quota_of_jobs_is_no_right_that_is_missing(world: ClusterWorld, golden: Golden) -> None:
    cause = 'jobs.batch "demo-0000" is forbidden: exceeded quota: q, requested: count/jobs.batch=1'
    refused = {**said("Running", "JobForbidden", f"Trial cannot run: {cause}"), "status": "False"}
    world.stand_in.set_status(trial_of(world), {"conditions": [refused]})

    assert cause in why(world).verdict
    golden(why(world).remedies)


@pytest.mark.parametrize(
    "cause",
    [
        "no pod of its job can be created: no PriorityClass x was found",
        "no pod of its job can be created: minimum cpu usage per Container is 1",
        "no pod of its job can be created: failed quota: q: must specify limits.cpu",
        "no pod of its job can be created: no",
        "Job was active longer than specified deadline",
    ],
    ids=["missing", "limits", "quota", "refused", "deadline"],
)
def test_the_remedies_of_an_experiment_are_those_of_its_lost_trial_and_its_output_if_it_had_any(
    world: ClusterWorld, cause: str, golden: Golden
) -> None:
    reason = "TrialPodsRefused" if "no pod" in cause else "TrialFailed"
    world.stand_in.end_trial(trial_of(world), said("Failed", reason, f"Trial has failed: {cause}"))
    words = "Experiment has failed because max failed count has reached"
    store = world.stand_in.store
    found = store.get(EXPERIMENT, Key(NS, "demo"))
    store.update({**found, "spec": {**found["spec"], "maxFailedTrialCount": 1}})
    status = {"conditions": [said("Failed", "ExperimentFailed", words)], "trials": 1, "trialsFailed": 1}
    world.stand_in.set_status(store.get(EXPERIMENT, Key(NS, "demo")), status)

    golden(why(world, "demo").remedies)


def test_a_kind_that_is_not_installed_is_named(world: ClusterWorld, golden: Golden) -> None:
    world.faults[JOB] = KindNotInstalledError("batch/v1 Job: the cluster has no such kind")

    golden(why(world).verdict)
    golden(why(world).remedies)


def test_what_the_user_may_not_see_is_left_out(world: ClusterWorld) -> None:
    for kind in (JOB, DEPLOYMENT, POD):
        world.faults[kind] = ForbiddenError("not for you")

    assert why(world).verdict.startswith("demo-0000 is running")
    assert why(world, "demo").verdict.startswith("demo is progressing")


@pytest.mark.parametrize(
    ("condition", "cause", "remedy"),
    [
        (
            "",
            "ErrImagePull: no such image",
            "Look at it: kubectl -n default describe deployment demo-random, and its pods.",
        ),
        ("pods x is forbidden: exceeded quota: q", "", "Free some of the quota"),
        ("pods x is forbidden: maximum cpu usage per Container is 200m", "", "Have namespace default allow the pod"),
        ("pod has unbound PersistentVolumeClaims", "", "Give the cluster a volume or a StorageClass for its claim"),
    ],
    ids=["image", "quota", "limits", "volume"],
)
def test_a_service_that_does_not_come_up_says_why(condition: str, cause: str, remedy: str, golden: Golden) -> None:
    with memory_world() as world:
        world.service.submit(document("demo"), source="demo.yaml")
        labels = {"katib.kubeflow.org/deployment": "demo-random"}
        deployment = world.stand_in.store.create(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "demo-random", "namespace": NS},
                "spec": {"selector": {"matchLabels": labels}},
            }
        )
        if condition:
            refused = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": condition}
            world.stand_in.set_status(deployment, {"conditions": [refused]})
        else:
            state = container({"waiting": {"reason": "ErrImagePull", "message": "no such image"}}, name="suggestion")
            world.stand_in.add_pod(deployment, labels=labels, phase="Pending", containerStatuses=[state])
        starts = why(world, "demo")
        found = world.stand_in.store.get(EXPERIMENT, Key(NS, "demo"))
        words = f"Experiment waits for its algorithm: FailedCreate: {condition}"
        away = {**said("Running", "SuggestionServiceUnavailable", words), "status": "False"}
        world.stand_in.set_status(found, {"conditions": [away]})
        waits = why(world, "demo")

    golden(starts.verdict)
    assert (cause or condition) in starts.verdict
    for answer in (starts, waits):
        assert [text[: len(remedy)] for text in answer.remedies] == [remedy]
    assert any("This is try 1" in finding for finding in waits.findings) != bool(condition)  # it says that already


@pytest.mark.parametrize(("ready", "at_work"), [(1, True), (0, False)], ids=["ready", "none-ready"])
def test_a_controller_that_is_not_ready_is_the_first_thing_to_say(
    world: ClusterWorld, ready: int, at_work: bool
) -> None:
    header = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": CONTROLLER, "namespace": CORE}}
    deployment = world.stand_in.store.create({**header, "spec": {}})
    world.stand_in.set_status(deployment, {"readyReplicas": ready})

    assert ("no controller is ready in namespace kubeflow" in why(world, "demo").verdict) != at_work
    store = world.stand_in.store
    found = store.get(EXPERIMENT, Key(NS, "demo"))
    store.update({**found, "metadata": {**found["metadata"], "finalizers": ["kept"]}})
    store.delete(EXPERIMENT, Key(NS, "demo"))
    assert any("`katib release-finalizers`" in remedy for remedy in why(world, "demo").remedies) != at_work


# --- submitting -------------------------------------------------------------------------------------------------------


def test_the_path_of_the_file_stays_on_the_users_machine(world: ClusterWorld, tmp_path: Any) -> None:
    file = tmp_path / "other.yaml"
    file.write_text(document("other"))
    submission = world.service.submit(file.read_text(), source=str(file))

    assert str(tmp_path) not in str(submission.experiment)


def test_without_a_readable_configuration_the_cluster_decides_about_algorithms(world: ClusterWorld) -> None:
    house = document("house").replace('"random"', '"house-special"')

    assert world.service.submit(house, source="house.yaml").outcome == "created"


def test_algorithms_are_those_of_the_clusters_configuration(world: ClusterWorld) -> None:
    config = "runtime: {suggestions: [{algorithmName: house-special, image: house}]}"
    world.stand_in.store.create(
        {
            "apiVersion": CONFIG_MAP.api_version,
            "kind": CONFIG_MAP.kind,
            "metadata": {"name": "katib-config", "namespace": DEFAULT_CORE_NAMESPACE},
            "data": {"katib-config.yaml": config},
        }
    )

    assert [info.name for info in world.service.algorithms()] == ["house-special"]
    with pytest.raises(InvalidError, match="random"):
        world.service.validate(document("demo"), source="demo.yaml")


# --- metrics ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "address"),
    [
        ({}, ""),
        ({"KATIB_DB_MANAGER_ADDRESS": "db:1"}, "db:1"),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "katib-db-manager.kubeflow:6789"),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KATIB_CORE_NAMESPACE": "tuning"}, "katib-db-manager.tuning:6789"),
    ],
    ids=["laptop", "named", "pod", "pod-elsewhere"],
)
def test_the_db_manager_is_asked_directly_where_that_works(environment: dict[str, str], address: str) -> None:
    assert direct_address(environment) == address


def service_and_pod(store: MemoryStore, *, ready: bool = True, port: int | str = "api") -> None:
    metadata = {"name": DB_MANAGER, "namespace": CORE}
    spec = {"selector": {"app": "db"}, "ports": [{"port": 6789, "targetPort": port}]}
    store.create({"apiVersion": SERVICE.api_version, "kind": SERVICE.kind, "metadata": metadata, "spec": spec})
    pod = store.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "db-1", "namespace": CORE, "labels": {"app": "db"}},
            "spec": {"containers": [{"name": "db", "ports": [{"name": "api", "containerPort": 7000}]}]},
        }
    )
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    store.update_status({**pod, "status": {"conditions": conditions}})


class Way:
    """Leads to a DB manager on this machine."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)
        self.opened: list[tuple[Key, int]] = []
        self.closed = 0

    @contextmanager
    def open(self, pod: Key, port: int) -> Iterator[str]:
        self.opened.append((pod, port))
        yield self.addresses.pop(0)
        self.closed += 1


def newest(access: MetricsAccess) -> list[str]:
    return [reading.value for reading in access.within("").newest("t", limit=10)]


@contextmanager
def reached_through(*addresses: str, port: int | str = "api") -> Iterator[tuple[Way, MetricsAccess]]:
    """Give the way to a DB manager that has one reading; `here` stands for its address."""
    store, log = memory_cluster(), MemoryObservationLog()
    service_and_pod(store, port=port)
    log.report("t", [MetricLog(ZERO_TIME, "loss", "0.5")])
    server = serve_db_manager(log, "127.0.0.1:0")
    way = Way(*(server.address if address == "here" else address for address in addresses))
    with MetricsAccess("", store, CORE, way.open, SystemClock()) as access:
        yield way, access
    server.stop(0)


def test_from_outside_a_ready_pod_is_reached_through_the_api_server() -> None:
    with reached_through("here") as (way, access):
        assert newest(access) == newest(access) == ["0.5"]

    assert way.opened == [(Key(CORE, "db-1"), 7000)]
    assert way.closed == 1


def test_a_way_that_was_lost_is_found_again() -> None:
    with reached_through("127.0.0.1:1", "here", port=6789) as (way, access):
        assert newest(access) == ["0.5"]

    assert (len(way.opened), way.closed) == (2, 2)


def test_a_way_that_is_not_there_is_looked_for_again_only_after_a_while(golden: Golden) -> None:
    store, clock = memory_cluster(), VirtualClock()
    access = MetricsAccess("", store, CORE, Way().open, clock)
    with golden.raises(UnavailableError):
        newest(access)
    service_and_pod(store, ready=False)
    with pytest.raises(UnavailableError, match="there is no Service"):
        newest(access)
    clock.advance(11)

    with golden.raises(UnavailableError):
        newest(access)


def test_where_the_db_manager_answers_directly_it_is_asked_in_the_name_of_a_namespace() -> None:
    tokens, access_list = TokenSigner([b"k" * 32]), MemoryAccessList()
    access_list.keep("t", LogAccess("team"))
    server = serve_db_manager(MemoryObservationLog(), "127.0.0.1:0", guard=LogGuard(tokens, access_list))

    def credentials(namespace: str) -> DbManagerCredentials:
        return DbManagerCredentials(tokens.token_of(TokenClaims(CallerRole.READER, namespace)))

    with MetricsAccess(server.address, memory_cluster(), CORE, Way().open, SystemClock(), credentials) as access:
        assert access.within("team").newest("t", limit=1) == []
        with pytest.raises(ForbiddenError, match="another namespace"):
            access.within("others").newest("t", limit=1)
    with pytest.raises(UnavailableError, match="closed"):
        newest(access)
    server.stop(0)


def test_metrics_that_cannot_be_read_do_not_keep_why_from_answering(
    world: ClusterWorld, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    def refuse(*_arguments: Any, **_options: Any) -> None:
        raise UnavailableError("metrics: no pod of Service kubeflow/katib-db-manager is ready")

    monkeypatch.setattr(MetricsAccess, "newest", refuse)

    golden(why(world).findings)


# --- events -----------------------------------------------------------------------------------------------------------


def test_events_of_a_deleted_namesake_are_not_listed(world: ClusterWorld) -> None:
    store = world.stand_in.store
    for obj in (store.get(EXPERIMENT, Key(NS, "demo")), trial_of(world)):
        earlier = {**obj, "metadata": {**obj["metadata"], "uid": "of-an-earlier-one"}}
        world.stand_in.add_event(earlier, "MetricsNotDeleted", "the log was away", warning=True)
        world.stand_in.add_event(obj, "JobCreated", "a job is there")

    for kind, name in (("Experiment", "demo"), ("Trial", "demo-0000")):
        assert {event.reason for event in world.service.events(kind, NS, name)} == {"JobCreated"}
    assert not [finding for finding in why(world, "demo").findings if "MetricsNotDeleted" in finding]


# --- validating -------------------------------------------------------------------------------------------------------


def test_what_the_api_server_would_refuse_is_not_valid() -> None:
    tried: list[Experiment] = []

    class Refusing(ServingHome):
        def try_create(self, experiment: Experiment) -> None:
            tried.append(experiment)
            cause = FieldError("metadata.namespace", "it has no label", "label it", "namespace-label-missing")
            raise InvalidError([cause])

    with memory_world(Refusing()) as world, refused("namespace-label-missing"):
        world.service.validate(document("demo"), source="demo.yaml")

    assert [experiment.name for experiment in tried] == ["demo"]
    assert not world.stand_in.store.list(EXPERIMENT).items
