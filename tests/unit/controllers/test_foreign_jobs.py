"""Jobs of any kind: kinds that turn up late, rights that are missing, jobs that are refused, words of pods."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from katib.engine.controllers.caches import Caches
from katib.engine.controllers.kinds import EXPERIMENT, TRIAL
from katib.engine.controllers.ports import PodUpdate
from katib.engine.controllers.settings import ControllerSettings
from katib.engine.controllers.trial.jobs import check_job_kind
from katib.engine.controllers.trial.observing import TrialLogs
from katib.engine.controllers.trial.plan import killed
from katib.engine.runtime.objects import Key, Kind, Object
from katib.errors import FieldError, ForbiddenError, InvalidError, KindNotInstalledError, UnavailableError
from katib.model.metrics import ZERO_TIME, MetricLog
from katib.model.types import Trial
from tests.support.controllers import NAMESPACE, World, new_store
from tests.support.experiments import an_experiment
from tests.support.faulty_store import Call, FaultyStore
from tests.support.golden import Golden
from tests.support.observations import Fault, FaultyLog, MemoryObservationLog
from tests.support.waiting import eventually, never

GADGET = Kind("example.org/v1", "Gadget")


def of_gadgets(**spec: Any) -> dict[str, Any]:
    """Return an experiment whose trials run as a kind that nobody knows beforehand."""
    raw = an_experiment(maxTrialCount=1, parallelTrialCount=1, **spec)
    template = raw["spec"]["trialTemplate"]
    template["trialSpec"] = {**template["trialSpec"], "apiVersion": GADGET.api_version, "kind": GADGET.kind}
    template["successCondition"] = 'status.conditions.#(type=="Done")#|#(status=="True")#'
    template["failureCondition"] = 'status.conditions.#(type=="Broken")#|#(status=="True")#'
    return raw


@dataclass
class Pods:
    """What pods say, as told by the test."""

    update: PodUpdate = field(default_factory=PodUpdate)
    run: bool = False

    def update_of(self, _trial: Trial) -> PodUpdate:
        return self.update

    def is_ending(self, _trial: Trial) -> bool:
        return self.run

    def has_queues(self) -> bool:
        return False


class Logs(TrialLogs):
    """Logs that say which of them take no more readings."""

    def __init__(self, log: MemoryObservationLog) -> None:
        super().__init__(log)
        self.ended: list[str] = []

    def end(self, trial: Trial) -> None:
        self.ended.append(trial.name)


class Cluster(World):
    """Controllers that follow any kind of job, as on a cluster. No job ends by itself."""

    def __init__(self, fail_on: Callable[[Call], BaseException | None] = lambda _call: None, **settings: Any) -> None:
        store, log = new_store(), MemoryObservationLog()
        self.faulty, self.logs, self.pods = FaultyStore(store, fail_on), Logs(log), Pods()
        super().__init__(
            store,
            observations=log,
            trial_logs=self.logs,
            settings=ControllerSettings(**settings),
            through=lambda _store: self.faulty,
            caches_of=lambda _store, clock: Caches.of(self.faulty, [], clock, follows_new_jobs=True),
            pods=self.pods,
        )

    def run(self) -> None:
        """Submit an experiment and wait for its only trial to run."""
        self.submit(of_gadgets())
        eventually(lambda: self.has_trial_with("Running", "True", "TrialRunning"))

    def trial(self) -> Trial:
        (trial,) = self.store.list(TRIAL).items
        return Trial.decode(trial)

    def job(self, kind: Kind = GADGET) -> Object:
        return self.store.get(kind, Key(NAMESPACE, self.trial().name))

    def has_trial_with(self, type_: str, status: str, reason: str) -> bool:
        trials = self.store.list(TRIAL).items
        conditions = Trial.decode(trials[0]).status.conditions if trials else ()
        return any((c.type, c.status, c.reason) == (type_, status, reason) for c in conditions)

    def end(self, type_: str = "Done", message: str = "") -> None:
        condition = {"type": type_, "status": "True", "reason": "Because", "message": message}
        self.store.update({**self.job(), "status": {"conditions": [condition]}})


def denied(kind: Kind, error: BaseException) -> Callable[[Call], BaseException | None]:
    return lambda call: error if call.before and call.kind == kind else None


def test_a_kind_that_nobody_knew_is_created_watched_and_judged() -> None:
    with Cluster() as cluster:
        cluster.run()
        cluster.observations.report(cluster.trial().name, [reading("0.25")])
        cluster.end()
        eventually(lambda: cluster.has_trial_with("Succeeded", "True", "TrialSucceeded"))

        eventually(lambda: not cluster.store.list(GADGET).items)


def test_a_kind_that_is_installed_later_is_picked_up(golden: Golden) -> None:
    missing = KindNotInstalledError("Gadget of example.org/v1 is not installed; install its definition")

    with Cluster(denied(GADGET, missing)) as cluster:
        cluster.submit(of_gadgets())
        eventually(lambda: cluster.has_trial_with("Running", "False", "JobKindNotInstalled"))
        message = cluster.trial().status.conditions[-1].message
        cluster.faulty.fail_on = lambda _call: None
        cluster.wake_trial(cluster.trial().name)

        eventually(lambda: cluster.has_trial_with("Running", "True", "TrialRunning"))
        golden(message)
        assert cluster.job()["metadata"]["name"] == cluster.trial().name


def test_a_missing_right_stands_in_a_condition_and_is_tried_again() -> None:
    missing = ForbiddenError("create of gadgets.example.org is not allowed; add a rule")

    with Cluster(denied(GADGET, missing)) as cluster:
        cluster.submit(of_gadgets())
        eventually(lambda: cluster.has_trial_with("Running", "False", "JobForbidden"))
        reasons = cluster.events.reasons()
        cluster.faulty.fail_on = lambda _call: None
        cluster.wake_trial(cluster.trial().name)

        eventually(lambda: cluster.has_trial_with("Running", "True", "TrialRunning"))
        eventually(lambda: "JobRunning" in cluster.events.reasons())
        assert "JobForbidden" in reasons
        assert "JobRunning" not in reasons


class _QuotaError(ForbiddenError):
    """A special case of a right that is missing."""


def test_any_error_of_a_missing_right_counts_as_one() -> None:
    with Cluster(denied(GADGET, _QuotaError("the quota allows no more gadgets"))) as cluster:
        cluster.submit(of_gadgets())

        eventually(lambda: cluster.has_trial_with("Running", "False", "JobForbidden"))


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        pytest.param(KindNotInstalledError("there is no such kind"), "JobKindNotInstalled", id="no kind"),
        pytest.param(ForbiddenError("get of gadgets is not allowed"), "JobForbidden", id="no right"),
    ],
)
def test_a_trial_whose_job_cannot_be_seen_can_be_deleted(error: Exception, reason: str) -> None:
    with Cluster(denied(GADGET, error)) as cluster:
        cluster.submit(of_gadgets())
        eventually(lambda: cluster.has_trial_with("Running", "False", reason))
        trial = cluster.trial()
        (experiment,) = cluster.store.list(EXPERIMENT).items
        cluster.store.delete(EXPERIMENT, Key.of(experiment))
        cluster.store.delete(TRIAL, Key(NAMESPACE, trial.name))  # as a garbage collector does

        eventually(lambda: not cluster.store.list(TRIAL).items)


def test_a_deleted_trial_goes_after_the_pods_of_its_job() -> None:
    with Cluster() as cluster:
        cluster.run()
        cluster.pods.run = True
        cluster.store.delete(TRIAL, Key(NAMESPACE, cluster.trial().name))
        eventually(lambda: not cluster.store.list(GADGET).items)
        never(lambda: not cluster.store.list(TRIAL).items, seconds=1.2)
        cluster.store.delete(EXPERIMENT, Key(NAMESPACE, "demo"))
        cluster.pods.run = False

        eventually(lambda: not cluster.store.list(TRIAL).items)


def test_the_log_of_a_killed_trial_takes_readings_until_its_pods_have_ended() -> None:
    with Cluster() as cluster:
        cluster.run()
        cluster.pods.run = True
        trial = cluster.trial()
        status = killed(trial.status, "the goal is reached", datetime.now(UTC), 1.0)
        cluster.store.update_status({**cluster.store.get(TRIAL, Key(NAMESPACE, trial.name)), "status": status.encode()})
        eventually(lambda: not cluster.store.list(GADGET).items)
        never(lambda: cluster.logs.ended, seconds=0.5)
        cluster.pods.run = False
        cluster.wake_trial(trial.name)

        assert eventually(lambda: cluster.logs.ended) == [trial.name]


def test_a_job_that_waits_for_its_pods_is_deleted_again_where_its_operator_would_make_more() -> None:
    """Somebody deleted the experiment in the foreground, and the garbage collector everything below it."""
    deleted: list[Kind] = []

    def see(call: Call) -> BaseException | None:
        if call.before and call.verb == "delete":
            deleted.append(call.kind)
        return None

    with Cluster(see) as cluster:
        cluster.run()
        job = cluster.job()
        cluster.store.update({**job, "metadata": {**job["metadata"], "finalizers": ["foregroundDeletion"]}})
        cluster.store.delete(GADGET, Key.of(job))
        cluster.store.delete(TRIAL, Key(NAMESPACE, cluster.trial().name))

        eventually(lambda: GADGET in deleted)


def test_a_job_that_the_store_refuses_fails_its_trial(golden: Golden) -> None:
    refusal = InvalidError([FieldError("spec.template", "is missing", "add it", "required")])

    def refuse(call: Call) -> BaseException | None:
        return refusal if call.before and call.kind == GADGET and call.verb == "create" else None

    with Cluster(refuse) as cluster:
        cluster.submit(of_gadgets())

        eventually(lambda: cluster.has_trial_with("Failed", "True", "TrialFailed"))
        golden(cluster.trial().status.conditions[-1].message)
        assert cluster.trial().status.completion_time is not None


def test_what_pods_say_stands_in_the_running_condition_until_a_pod_runs(golden: Golden) -> None:
    with Cluster() as cluster:
        cluster.pods.update = PodUpdate(waiting='image "nowhere:1" cannot be pulled')
        cluster.submit(of_gadgets())
        eventually(lambda: cluster.has_trial_with("Running", "False", "TrialWaiting"))
        message = cluster.trial().status.conditions[-1].message
        cluster.pods.update = PodUpdate()
        cluster.wake_trial(cluster.trial().name)

        eventually(lambda: cluster.has_trial_with("Running", "True", "TrialRunning"))
        golden(message)


def test_how_a_pod_failed_is_part_of_how_the_trial_failed(golden: Golden) -> None:
    with Cluster() as cluster:
        cluster.run()
        cluster.pods.update = PodUpdate(last_failure="Container main was killed: out of memory")
        cluster.end("Broken", "too many failures")

        eventually(lambda: cluster.has_trial_with("Failed", "True", "TrialFailed"))
        golden(cluster.trial().status.conditions[-1].message)


def test_what_the_collector_said_explains_missing_metrics(golden: Golden) -> None:
    with Cluster() as cluster:
        cluster.run()
        cluster.pods.update = PodUpdate(metrics_report='4 lines, none matched "loss"')
        cluster.end()

        eventually(lambda: cluster.has_trial_with("MetricsUnavailable", "True", "MetricsUnavailable"))
        golden(cluster.trial().status.conditions[-1].message)


def test_readings_of_an_earlier_trial_of_that_name_are_removed_before_the_job_starts() -> None:
    with Cluster(discards_before_start=True) as cluster:
        cluster.run()
        name = cluster.trial().name
        cluster.observations.report(name, [reading("0.1")])
        cluster.store.delete(GADGET, Key(NAMESPACE, name))  # by hand: it is created anew

        eventually(lambda: bool(cluster.store.list(GADGET).items) and cluster.observations.read(name) == [])


def a_trial(name: str, run_spec: dict[str, Any]) -> dict[str, Any]:
    """Return a Trial that a user wrote by hand."""
    spec = {
        "objective": {"type": "minimize", "objectiveMetricName": "loss"},
        "parameterAssignments": [],
        "runSpec": run_spec,
        "successCondition": 'status.conditions.#(type=="Done")#|#(status=="True")#',
        "failureCondition": 'status.conditions.#(type=="Broken")#|#(status=="True")#',
    }
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": TRIAL.api_version, "kind": TRIAL.kind, "metadata": metadata, "spec": spec}


def a_gadget(**metadata: Any) -> dict[str, Any]:
    return {"apiVersion": GADGET.api_version, "kind": GADGET.kind, "metadata": metadata}


def test_the_job_of_a_trial_written_by_hand_comes_to_be_in_the_trials_own_namespace_under_its_name() -> None:
    with Cluster() as cluster:
        cluster.store.create(a_trial("mine", a_gadget(name="theirs", namespace="another")))
        eventually(lambda: cluster.has_trial_with("Running", "True", "TrialRunning"))

        assert [Key.of(job) for job in cluster.store.list(GADGET).items] == [Key(NAMESPACE, "mine")]


def test_a_trial_that_another_program_said_to_run_gets_its_whole_job() -> None:
    running = {"type": "Running", "status": "True", "reason": "TrialRunning", "message": "Trial is running"}
    cluster = Cluster()
    stored = cluster.store.create(a_trial("mine", {**a_gadget(), "spec": {"size": 1}}))
    cluster.store.update_status({**stored, "status": {"conditions": [running]}})
    with cluster:
        eventually(lambda: cluster.store.list(GADGET).items)

        assert cluster.job()["spec"] == {"size": 1}


@pytest.mark.parametrize(
    "kind",
    [
        Kind("v1", "PersistentVolume"),
        Kind("rbac.authorization.k8s.io/v1", "RoleBinding"),
        Kind("rbac.authorization.k8s.io/v1beta1", "RoleBinding"),
        Kind("apps/v1", "Deployment"),
    ],
    ids=str,
)
def test_no_trial_runs_as_what_the_controller_may_create_for_its_own_needs(kind: Kind, golden: Golden) -> None:
    with Cluster() as cluster:
        cluster.store.create(a_trial("mine", {"apiVersion": kind.api_version, "kind": kind.kind}))
        eventually(lambda: cluster.has_trial_with("Failed", "True", "TrialFailed"))

        golden(cluster.trial().status.conditions[-1].message)
        assert not cluster.store.list(kind).items


def test_a_job_that_somebody_put_in_the_place_of_the_trials_own_is_not_deleted() -> None:
    deleting = threading.Event()
    replaced = threading.Event()

    def replace_first(call: Call) -> BaseException | None:
        if call.before and call.verb == "delete" and call.kind == GADGET and not deleting.is_set():
            deleting.set()
            cluster.store.delete(GADGET, Key(NAMESPACE, "mine"))
            cluster.store.create(a_gadget(name="mine", namespace=NAMESPACE))
            replaced.set()
        return None

    with Cluster(replace_first) as cluster:
        cluster.store.create(a_trial("mine", a_gadget()))
        eventually(lambda: cluster.has_trial_with("Running", "True", "TrialRunning"))
        cluster.end("Broken")
        eventually(lambda: cluster.has_trial_with("Failed", "True", "TrialFailed"))
        eventually(replaced.is_set)
        cluster._manager.stop()

        assert "ownerReferences" not in cluster.job()["metadata"]


def test_kinds_that_do_not_exist_cost_no_thread_each() -> None:
    missing = KindNotInstalledError("there is no such kind; install it")

    with Cluster(lambda call: missing if call.kind.api_version == "example.org/v9" else None) as cluster:
        for number in range(3):
            run_spec = {"apiVersion": "example.org/v9", "kind": f"Nothing{number}"}
            cluster.store.create(a_trial(f"trial-{number}", run_spec))
        eventually(
            lambda: all("JobKindNotInstalled" in str(trial.get("status")) for trial in cluster.store.list(TRIAL).items)
        )

        assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("informer-Nothing")]


def a_finished_trial(world: World) -> Key:
    world.submit(an_experiment(maxTrialCount=1, parallelTrialCount=1))
    world.ended()
    return Key(NAMESPACE, world.trials()[0].name)


def test_a_deleted_trial_does_not_wait_for_an_absent_log_for_ever() -> None:
    log = FaultyLog()
    with World(observations=log, settings=ControllerSettings(deletion_patience_seconds=0.0)) as world:
        key = a_finished_trial(world)
        log.fault = Fault(UnavailableError("the log is away"))
        world.store.delete(TRIAL, key)

        eventually(lambda: not world.trials())
        assert "MetricsNotDeleted" in world.events.reasons()


def test_a_deleted_trial_waits_a_while_for_an_absent_log() -> None:
    log = FaultyLog()
    with World(observations=log, settings=ControllerSettings(deletion_patience_seconds=600.0)) as world:
        key = a_finished_trial(world)
        log.fault = away = Fault(UnavailableError("the log is away"))
        world.store.delete(TRIAL, key)
        eventually(lambda: world.trials()[0].metadata.deletion_timestamp is not None)
        away.on = False

        eventually(lambda: not world.trials())
        assert "MetricsNotDeleted" not in world.events.reasons()
        assert log.read(key.name) == []


def reading(value: str) -> MetricLog:
    return MetricLog(ZERO_TIME, "loss", value)


@pytest.mark.parametrize("kind", [None, ["Job"], {"a": 1}, 7])
def test_a_kind_that_is_no_text_is_left_to_others_to_complain_about(kind: Any) -> None:
    assert check_job_kind(Kind.of({"apiVersion": kind, "kind": kind}), "spec.trialTemplate.trialSpec") == []
