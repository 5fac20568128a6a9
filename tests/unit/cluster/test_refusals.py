"""Why a job gets no pod: read from events, of the right trial, and asked for seldom."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

from katib.engine.controllers.kinds import TRIAL
from katib.engine.controllers.ports import PodRefusal
from katib.engine.runtime.informer import Informer
from katib.engine.runtime.objects import Key, Kind, Object
from katib.model.types import Trial
from katib.places.cluster.pods.missed import MissedPods
from katib.places.cluster.pods.owners import TrialFinder
from katib.places.cluster.pods.reading import COLLECTORS, POD, TrialPodCache, facts_of
from katib.places.cluster.pods.refusals import BACKOFF, Refusals, refusal_of
from katib.places.cluster.pods.starts import SETTLING_SECONDS, SlowStarts
from tests.support.clock import VirtualClock
from tests.support.controllers import JOB
from tests.support.golden import Golden
from tests.support.memory_store import MemoryStore
from tests.support.planning import holding, trial
from tests.support.waiting import eventually

NOON = datetime(2024, 5, 1, 12, 0, tzinfo=UTC)
NAMESPACE = "default"
JOB_SET = Kind("jobset.x-k8s.io/v1alpha2", "JobSet")
QUOTA = 'pods "demo-1-{}" is forbidden: exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0'
SECURITY = 'pods "demo-1-x" is forbidden: violates PodSecurity "restricted:latest": privileged'
OURS = 'admission webhook "mutator.pod.katib.kubeflow.org" denied the request: spec.hostPID: true; remove it'
THEIRS = 'admission webhook "images.example.com" denied the request: image i is not signed'
AWAY = 'Internal error occurred: failed calling webhook "x.y.z": Post "https://x:443/": connection refused'
INVALID = 'Pod "demo-1-x" is invalid: spec.containers[0].image: Required value'

LASTING: dict[str, bool] = {}
PASSING, FINAL = {"is_passing": True}, {"is_final": True}


def event(
    message: str,
    *,
    reason: str = "FailedCreate",
    first: int = 0,
    last: int | None = None,
    about: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return an event as the Job controller writes it; times in seconds after noon."""
    return {
        "metadata": {"namespace": NAMESPACE},
        "involvedObject": dict(about or {}),
        "type": "Warning",
        "reason": reason,
        "message": message,
        "firstTimestamp": (NOON + timedelta(seconds=first)).isoformat(),
        "lastTimestamp": (NOON + timedelta(seconds=first if last is None else last)).isoformat(),
    }


def created(message: str, **fields: Any) -> dict[str, Any]:
    return event(f"Error creating: {message}", **fields)


HOST_PID = event("spec.hostPID: true; remove it", reason="PodRefused")


@pytest.mark.parametrize(
    ("told", "words", "kind"),
    [
        pytest.param(
            [created(QUOTA.format("a")), created(QUOTA.format("b"), first=10)],
            "exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0",
            PASSING,
            id="quota",
        ),
        pytest.param(
            [event(f"(combined from similar events): Error creating: {SECURITY}")],
            'violates PodSecurity "restricted:latest": privileged',
            LASTING,
            id="pod security",
        ),
        pytest.param([created(THEIRS)], THEIRS, LASTING, id="a webhook of others"),
        pytest.param([created(OURS)], OURS, PASSING, id="our webhook for now"),
        pytest.param([created(AWAY)], AWAY, PASSING, id="a webhook is away"),
        pytest.param([created(QUOTA.format("a"), first=-60), created(THEIRS)], THEIRS, LASTING, id="another refusal"),
        pytest.param(
            [created(INVALID)], "the pod is invalid: spec.containers[0].image: Required value", FINAL, id="invalid"
        ),
        pytest.param([HOST_PID], HOST_PID["message"], FINAL, id="our webhook forever"),
        pytest.param([HOST_PID, created(OURS, first=60)], HOST_PID["message"], FINAL, id="what is final wins"),
    ],
)
def test_events_show_who_refuses_and_whether_it_can_change(
    told: list[dict[str, Any]], words: str, kind: Mapping[str, bool]
) -> None:
    assert refusal_of(told) == PodRefusal(words, NOON, **kind)


def test_a_refusal_counts_from_its_first_time_or_from_the_last_pod() -> None:
    told = [event("no", first=0, last=100)]

    assert refusal_of(told) == PodRefusal("no", NOON)
    assert refusal_of(told, NOON + timedelta(seconds=50)) == PodRefusal("no", NOON + timedelta(seconds=50))
    assert refusal_of(told, NOON + timedelta(seconds=100)) is None
    assert refusal_of([]) is None


class Place:
    """A namespace with one trial that runs, its job, and the events of a test."""

    def __init__(self) -> None:
        self.clock = VirtualClock(NOON)
        self.store = MemoryStore({TRIAL, JOB})
        self.trials: Informer[Trial] = Informer(self.store, TRIAL, Trial.decode)
        self.pods = TrialPodCache(self.store, self.clock)
        finder = TrialFinder(self.store, self.clock)
        self.missed = MissedPods(self.store, finder.trial_of, self.clock)
        self.events: list[dict[str, Any]] = []
        self.questions = 0
        self.woken: list[Key] = []
        self.refusals = Refusals(
            trials=self.trials,
            pods=self.pods,
            missed=self.missed,
            find_job=self._job_of,
            find_trial=finder.trial_of,
            list_events=self._list_events,
            clock=self.clock,
        )
        self.refusals.on_change(self.woken.append)
        self.starts = SlowStarts(self.trials, self.pods, self._list_events, self.clock)
        self.starts.on_change(self.woken.append)
        self._add_trial()

    def _add_trial(self) -> None:
        made = trial("demo-1", holding("Running"), run_spec={"apiVersion": "batch/v1", "kind": "Job"})
        metadata = {"name": "demo-1", "namespace": NAMESPACE}
        stored = self.store.create({**made.encode(), "metadata": metadata})
        status = structs.replace(made.status, start_time=NOON)
        self.trial = Trial.decode(self.store.update_status({**stored, "status": status.encode()}))
        self.job = self.add(JOB, "demo-1", TRIAL, stored, spec={"completions": 1})

    def add(self, kind: Kind, name: str, owner_kind: Kind, owner: Object, **fields: Any) -> Object:
        reference = {
            "apiVersion": owner_kind.api_version,
            "kind": owner_kind.kind,
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
        }
        metadata = {"name": name, "namespace": NAMESPACE, "ownerReferences": [reference]}
        return self.store.create({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **fields})

    def add_pod(self, phase: str = "Running", **status: Any) -> Object:
        labels = {"katib.kubeflow.org/trial": "demo-1"}
        metadata = {"name": "p", "namespace": NAMESPACE, "labels": labels}
        spec = {
            "nodeName": "node-1",
            "containers": [{"name": "main", "image": "main:1"}],
            "initContainers": [{"name": COLLECTORS[0], "image": "collector:1"}],
            "volumes": [{"name": "scratch", "emptyDir": {}}, {"name": "data", "persistentVolumeClaim": {}}],
        }
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        pod = self.store.create({**made, "status": {"phase": phase, **status}})
        eventually(lambda: self.pods.informer.count(Key(NAMESPACE, "demo-1")))
        return pod

    def remove_pod(self) -> None:
        self.store.delete(POD, Key(NAMESPACE, "p"))
        eventually(lambda: not self.pods.informer.count(Key(NAMESPACE, "demo-1")))

    def look(self, after_seconds: float = 60.0) -> PodRefusal | None:
        self.clock.advance(after_seconds)
        self.refusals.look()
        return self.refusals.of(self.trial)

    def _job_of(self, _trial: Trial) -> Object | None:
        found = self.store.list(JOB).items
        return found[0] if found else None

    def _list_events(self, namespace: str, fields: Mapping[str, str]) -> Iterable[Object]:
        assert namespace == NAMESPACE
        self.questions += 1
        return [e for e in self.events if all(_field(e, name) == value for name, value in fields.items())]


def _field(event: Mapping[str, Any], name: str) -> Any:
    outer, _, inner = name.rpartition(".")
    return (event[outer] if outer else event).get(inner)


def about(obj: Object) -> dict[str, Any]:
    metadata = obj["metadata"]
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "namespace": NAMESPACE,
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place()
    informers = (made.trials, made.pods.informer, made.missed.informer)
    for informer in informers:
        informer.start()
    for informer in informers:
        informer.wait_for_sync()
    yield made
    for informer in informers:
        informer.stop()


@pytest.mark.parametrize("whose", ["of its job", "of what its job owns", "of the trial itself"])
def test_the_refusal_of_a_job_s_pods_is_that_of_its_trial(place: Place, whose: str) -> None:
    stored = place.store.get(TRIAL, Key(NAMESPACE, "demo-1"))
    told, refusal = created(SECURITY, about=about(place.job)), PodRefusal(SECURITY.partition("forbidden: ")[2], NOON)
    if whose == "of what its job owns":
        job_set = place.add(JOB_SET, "demo-1", TRIAL, stored)
        told["involvedObject"] = about(place.add(JOB, "demo-1-node-0", JOB_SET, job_set))
    elif whose == "of the trial itself":  # our webhook's event, where the job says nothing
        told = {**HOST_PID, "involvedObject": about(stored)}
        refusal = PodRefusal(HOST_PID["message"], NOON, is_final=True)
    place.events.append(told)

    assert place.look() == refusal
    assert place.woken == [Key(NAMESPACE, "demo-1")]


@pytest.mark.parametrize("case", ["another job", "an earlier job of that name", "another reason"])
def test_other_events_are_no_refusal_of_this_trial(place: Place, case: str) -> None:
    stranger = place.store.create(
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "other", "namespace": NAMESPACE}}
    )
    subject = about(stranger if case == "another job" else place.job)
    if case == "an earlier job of that name":
        subject["uid"] = "earlier"
    reason = "BackoffLimitExceeded" if case == "another reason" else "FailedCreate"
    place.events.append(created("no", about=subject, reason=reason))

    assert place.look() is None


def test_no_events_are_listed_while_a_pod_is_there_or_the_trial_is_young(place: Place) -> None:
    place.look(after_seconds=1)
    place.add_pod()
    place.look()

    assert place.questions == 0


def test_a_pod_that_has_ended_is_no_active_one(place: Place) -> None:
    place.add_pod("Failed")
    conditions = [{"type": "Suspended", "status": "False"}]
    place.store.update_status({**place.job, "status": {"conditions": conditions}})
    place.events.append(created("no", about=about(place.job)))

    assert place.look() == PodRefusal("no", NOON)


def test_a_refusal_is_over_when_a_pod_is_there_and_what_was_refused_before_it_counts_no_more(place: Place) -> None:
    place.events.append(created("no", about=about(place.job)))
    place.look()
    place.add_pod()

    assert place.look() is None
    place.remove_pod()
    assert place.look() is None
    place.events.append(created("not again", first=500, about=about(place.job)))
    assert place.look(400) == PodRefusal("not again", NOON + timedelta(seconds=500))


@pytest.mark.parametrize("how", ["suspended", "suspended by its operator", "gone"])
def test_no_events_are_listed_of_a_job_without_pods_on_purpose(place: Place, how: str) -> None:
    place.events.append(created("no", about=about(place.job)))
    place.look()
    if how == "gone":
        place.store.delete(JOB, Key(NAMESPACE, "demo-1"))
    elif how == "suspended":
        place.store.update({**place.job, "spec": {"suspend": True}})
    else:
        place.store.update_status({**place.job, "status": {"conditions": [{"type": "Suspended", "status": "True"}]}})
    asked = place.questions

    assert place.look(600) is None
    assert place.questions == asked


def test_events_are_asked_for_with_growing_pauses(place: Place) -> None:
    place.clock.advance(60)
    place.refusals.look()
    first = place.questions
    for _ in range(int(600 / BACKOFF.first_seconds)):
        place.look(BACKOFF.first_seconds)

    assert place.questions <= first * 15


def test_a_restarted_process_holds_nothing_old_against_a_job_that_had_pods(place: Place) -> None:
    place.store.update_status({**place.job, "status": {"failed": 1}})
    place.events.append(created("no", about=about(place.job)))

    assert place.look(1800) is None


# --- pods that do not start -------------------------------------------------------------------------------------------

NO_SECRET = 'MountVolume.SetUp failed for volume "s" : secret "nosuch" not found'
CREATING = [{"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}}]


def test_a_pod_that_does_not_start_says_why_in_the_words_of_its_events(place: Place, golden: Golden) -> None:
    pod = about(place.add_pod("Pending", containerStatuses=CREATING))
    told = (NO_SECRET, "Unable to attach or mount volumes: timed out")
    place.events += [event(text, reason="FailedMount", last=n, about=pod) for n, text in enumerate(told)]
    place.events.append(event("no", reason="FailedMount", last=9, about={**pod, "uid": "of an earlier one"}))
    place.starts.look()
    place.clock.advance(SETTLING_SECONDS - 1)
    place.starts.look()
    assert (place.questions, place.starts.of(place.trial)) == (0, "")

    place.clock.advance(1)
    place.starts.look()
    golden(place.starts.of(place.trial))
    asked = place.questions
    for _ in range(4):
        place.clock.advance(1)
        place.starts.look()
    assert place.questions == asked
    assert place.woken == [Key(NAMESPACE, "demo-1")]
    found = place.store.get(POD, Key(NAMESPACE, "p"))
    place.store.update({**found, "status": {"phase": "Running"}})
    eventually(lambda: not place.starts.of(place.trial))


def test_a_pod_that_pulls_an_image_says_which_and_since_when(place: Place, golden: Golden) -> None:
    collector = {"name": COLLECTORS[0], "state": {"running": {}}}
    pod = about(place.add_pod("Pending", initContainerStatuses=[collector], containerStatuses=CREATING))
    place.events.append(event('Pulling image "collector:1"', reason="Pulling", last=5, about=pod))
    place.events.append(event('Pulling image "main:1"', reason="Pulling", last=3, about=pod))
    place.starts.look()
    place.clock.advance(SETTLING_SECONDS)
    place.starts.look()

    golden(place.starts.of(place.trial))


def test_a_pod_that_mounts_volumes_says_which_and_since_when(place: Place, golden: Golden) -> None:
    conditions = [
        {"type": "PodReadyToStartContainers", "status": "False"},
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2024-05-01T12:00:01Z"},
    ]
    place.add_pod("Pending", containerStatuses=CREATING, conditions=conditions)
    place.starts.look()
    place.clock.advance(SETTLING_SECONDS)
    place.starts.look()

    golden(place.starts.of(place.trial))


@pytest.mark.parametrize(
    ("status", "is_starting"),
    [
        ({}, True),
        ({"initContainerStatuses": [{"state": {"waiting": {"reason": "PodInitializing"}}}]}, True),
        ({"initContainerStatuses": [{"state": {"running": {}}}], "containerStatuses": CREATING}, False),
        (
            {
                "initContainerStatuses": [{"name": COLLECTORS[0], "state": {"running": {}}}],
                "containerStatuses": CREATING,
            },
            True,
        ),
        ({"containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull"}}}]}, False),
        ({"phase": "Running"}, False),
    ],
    ids=[
        "just scheduled",
        "its init container waits",
        "its init container runs",
        "its collector runs",
        "no image",
        "runs",
    ],
)
def test_a_pod_starts_until_a_container_of_it_is_there(status: dict[str, Any], *, is_starting: bool) -> None:
    metadata, spec = {"name": "p", "namespace": NAMESPACE, "uid": "u"}, {"nodeName": "node-1"}
    pod = {"metadata": metadata, "spec": spec, "status": {"phase": "Pending", **status}}

    assert facts_of(pod).starting == (("p", "u") if is_starting else None)
    assert facts_of({**pod, "spec": {}}).starting is None
