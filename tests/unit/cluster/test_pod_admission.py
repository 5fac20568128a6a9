"""Pods meet their trials: found through owners of any kind, changed, or let through at little cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from katib.engine.controllers.kinds import TRIAL
from katib.engine.runtime.objects import Key, Kind
from katib.errors import ForbiddenError, InvalidError, NotFoundError, UnavailableError
from katib.model.types import Trial
from katib.places.cluster.admission.reviews import ALLOWED, AdmissionReview
from katib.places.cluster.injection import InjectionSettings, inject
from katib.places.cluster.pods.owners import REFUSAL, REMEMBERED_SECONDS
from katib.places.cluster.webhooks.pods import PATH, PodAdmission
from tests.support.clock import VirtualClock
from tests.support.controllers import JOB, RecordedEvents
from tests.support.faulty_store import Call, FaultyStore
from tests.support.golden import Golden
from tests.support.memory_store import MemoryStore
from tests.support.pods import injected_trial, injection_settings, pod

TRAIN_JOB = Kind("trainer.kubeflow.org/v1alpha1", "TrainJob")
JOB_SET = Kind("jobset.x-k8s.io/v1alpha2", "JobSet")
REPLICA_SET = Kind("apps/v1", "ReplicaSet")


class Cluster:
    """Objects in a store that can refuse to be read, and the webhook over it."""

    def __init__(self) -> None:
        self.memory = MemoryStore({TRIAL})
        self.store = FaultyStore(self.memory, self._fault)
        self.refused: dict[Kind, Exception] = {}
        self.reads: list[Key | None] = []
        self.events = RecordedEvents()
        self.clock = VirtualClock()
        self.settings = injection_settings()
        self.admission = PodAdmission(self.store, self._settings_for, events=self.events, clock=self.clock)

    def add(self, kind: Kind, name: str, *owners: Mapping[str, Any]) -> Mapping[str, Any]:
        """Create an object with owners; return it as stored."""
        metadata = {"name": name, "namespace": "team", "ownerReferences": [reference(owner) for owner in owners]}
        return self.memory.create({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata})

    def add_trial(self, trial: Trial | None = None) -> Mapping[str, Any]:
        """Create the trial; return it as stored."""
        return self.memory.create((trial or injected_trial()).encode())

    def review(self, obj: Mapping[str, Any], *owners: Mapping[str, Any], **fields: Any) -> AdmissionReview:
        """Return the review of a new pod with these owners."""
        metadata = {**obj["metadata"], "ownerReferences": [reference(owner) for owner in owners]}
        return AdmissionReview("uid", "CREATE", "team", resource="pods", object={**obj, "metadata": metadata}, **fields)

    def _settings_for(self, trial: Trial) -> InjectionSettings:
        assert trial.namespace == "team"
        return self.settings

    def _fault(self, call: Call) -> BaseException | None:
        if call.verb == "get" and call.before:
            self.reads.append(call.key)
            return self.refused.get(call.kind)
        return None


def reference(owner: Mapping[str, Any]) -> dict[str, Any]:
    metadata = owner["metadata"]
    names = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": metadata["name"]}
    return {**names, "uid": metadata["uid"], "controller": True}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_a_pod_of_a_job_of_a_trial_gets_its_collector(cluster: Cluster) -> None:
    job = cluster.add(JOB, "test-trial", cluster.add_trial())
    review = cluster.review(pod("python", "main.py"), job)

    verdict = cluster.admission.handlers()[PATH](review)

    assert verdict.allowed
    assert verdict.patched == inject(review.object, injected_trial(), cluster.settings)
    assert verdict.warnings == ()


def test_a_trial_is_found_through_owners_of_any_kind(cluster: Cluster) -> None:
    trial, stranger = cluster.add_trial(), cluster.add(Kind("v1", "ConfigMap"), "stranger")
    train_job = cluster.add(TRAIN_JOB, "test-trial", trial)
    job = cluster.add(JOB, "test-trial-node-0", cluster.add(JOB_SET, "test-trial", train_job))

    for owners in ((job,), (stranger, job), (trial,)):
        review = cluster.review(pod("x"), *owners)
        found = cluster.admission.trial_of(review.object, "team")
        assert found is not None
        assert found.key == Key("team", "test-trial")
        assert cluster.admission.mutate(review).patched is not None


def test_pods_of_others_pass(cluster: Cluster) -> None:
    replica_set = cluster.add(REPLICA_SET, "web-1", cluster.add(Kind("apps/v1", "Deployment"), "web"))

    assert cluster.admission.mutate(cluster.review(pod("x"))) == ALLOWED
    assert cluster.admission.mutate(cluster.review(pod("x"), replica_set)) == ALLOWED
    assert cluster.reads == []  # nor is a right needed to read what runs forever


def test_other_requests_about_pods_pass_unread(cluster: Cluster) -> None:
    job = cluster.add(JOB, "test-trial", cluster.add_trial())
    changed = cluster.review(pod("x"), job)

    assert cluster.admission.mutate(AdmissionReview("u", "UPDATE", "team", object=changed.object)) == ALLOWED
    assert cluster.admission.mutate(cluster.review(pod("x"), job, subresource="binding")) == ALLOWED
    assert cluster.reads == []


def test_what_was_found_of_an_owner_counts_for_a_while(cluster: Cluster) -> None:
    job_set = cluster.add(JOB_SET, "somebody-s")
    review = cluster.review(pod("x"), job_set)
    for _ in range(5):
        cluster.admission.mutate(review)
    assert len(cluster.reads) == 1

    cluster.clock.advance(REMEMBERED_SECONDS + 1)
    cluster.admission.mutate(review)

    assert len(cluster.reads) == 2


def test_an_owner_of_an_earlier_object_of_that_name_is_none(cluster: Cluster) -> None:
    job = cluster.add(JOB, "test-trial", cluster.add_trial())
    earlier = {**job, "metadata": {**job["metadata"], "uid": "another"}}

    assert cluster.admission.mutate(cluster.review(pod("x"), earlier)) == ALLOWED


def test_owners_in_a_circle_end(cluster: Cluster) -> None:
    one = cluster.add(JOB, "one")
    two = cluster.add(JOB_SET, "two", one)
    cluster.memory.update({**one, "metadata": {**one["metadata"], "ownerReferences": [reference(two)]}})

    assert cluster.admission.mutate(cluster.review(pod("x"), two)) == ALLOWED


@pytest.mark.parametrize(
    "error",
    [ForbiddenError("jobsets: may not be read; allow get on jobsets"), UnavailableError("no answer")],
    ids=["forbidden", "unavailable"],
)
def test_an_owner_that_cannot_be_read_lets_the_pod_pass_with_a_warning(
    cluster: Cluster, error: Exception, golden: Golden
) -> None:
    job_set = cluster.add(JOB_SET, "test-trial", cluster.add_trial())
    cluster.refused[JOB_SET] = error

    verdict = cluster.admission.mutate(cluster.review(pod("x"), job_set))

    assert verdict.allowed
    assert verdict.patched is None
    golden(verdict.warnings)
    cluster.refused.clear()  # a right that is given counts at once
    assert cluster.admission.mutate(cluster.review(pod("x"), job_set)).patched is not None


def test_those_who_look_again_and_again_are_refused_from_memory_with_growing_pauses(cluster: Cluster) -> None:
    cluster.refused[JOB_SET] = ForbiddenError("no")
    pods = [cluster.review(pod("x"), cluster.add(JOB_SET, f"somebody-s-{n}")).object for n in range(4)]

    def looks(seconds: int) -> int:
        """Look every ten seconds at all pods; return the number of requests."""
        before = len(cluster.reads)
        for _ in range(0, seconds, 10):
            cluster.clock.advance(10)
            for one in pods:
                with pytest.raises(ForbiddenError):
                    cluster.admission.trial_of(one, "team")
        return len(cluster.reads) - before

    assert looks(3600) < 20
    assert looks(3600) <= 3600 / REFUSAL.longest_seconds


def test_a_right_that_is_given_counts_for_those_who_look_again_after_the_pause(cluster: Cluster) -> None:
    job_set = cluster.add(JOB_SET, "test-trial", cluster.add_trial())
    review = cluster.review(pod("x"), job_set)
    cluster.refused[JOB_SET] = ForbiddenError("no")
    with pytest.raises(ForbiddenError):
        cluster.admission.trial_of(review.object, "team")
    cluster.refused.clear()
    with pytest.raises(ForbiddenError):
        cluster.admission.trial_of(review.object, "team")

    cluster.clock.advance(REFUSAL.first_seconds + 1)

    assert cluster.admission.trial_of(review.object, "team") is not None


def test_a_pod_whose_trial_is_another_one_by_now_or_cannot_be_read_is_refused(cluster: Cluster) -> None:
    gone = injected_trial().encode()
    gone["metadata"]["uid"] = "gone"
    with pytest.raises(NotFoundError):
        cluster.admission.mutate(cluster.review(pod("x"), gone))
    trial = cluster.add_trial()
    earlier = {**trial, "metadata": {**trial["metadata"], "uid": "earlier"}}
    job = cluster.add(JOB, "test-trial", earlier, cluster.add(Kind("v1", "ConfigMap"), "keeper"))

    with pytest.raises(NotFoundError, match="another has its name"):
        cluster.admission.mutate(cluster.review(pod("python", "main.py"), job))
    cluster.refused[TRIAL] = UnavailableError("no answer")
    with pytest.raises(UnavailableError):
        cluster.admission.mutate(cluster.review(pod("x"), job))


def test_a_refused_pod_is_an_event_of_its_trial_but_for_a_dry_run(cluster: Cluster, golden: Golden) -> None:
    job = cluster.add(JOB, "test-trial", cluster.add_trial())

    for dry_run in (True, False):
        assert cluster.events.events == []
        with pytest.raises(InvalidError):
            cluster.admission.mutate(cluster.review(pod(), job, dry_run=dry_run))

    ((name, reason, message),) = cluster.events.events
    assert (name, reason) == ("test-trial", "PodRefused")
    golden(message)


def test_a_primary_pod_without_primary_container_runs_and_the_user_learns_why(cluster: Cluster) -> None:
    job = cluster.add(JOB, "test-trial", cluster.add_trial())

    verdict = cluster.admission.mutate(cluster.review(pod("x", container="trainer"), job))

    assert verdict.patched is not None
    assert [container["name"] for container in verdict.patched["spec"]["containers"]] == ["trainer"]
    assert "initContainers" not in verdict.patched["spec"]
    assert "'training'" in verdict.warnings[0]
    assert cluster.events.reasons() == {"NoPrimaryContainer"}
