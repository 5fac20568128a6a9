"""Whatever stands in a JobSet, a TrainJob or its runtime: admission finds something to say and never breaks."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from katib.engine.runtime.objects import Key, Kind
from katib.model.json_values import without_nulls
from katib.places.machine.admission import check_job
from katib.places.machine.findings import Part
from katib.places.machine.jobs.jobset.runtimes import RUNTIME, SHIPPED
from katib.places.machine.jobs.kind import JobKind, JobTime, ObservedJob, check_pod_labels
from katib.places.machine.jobs.kinds import JobKinds
from katib.places.machine.pods.records import Delays
from tests.support.admission import HOST
from tests.support.planned_jobs import START
from tests.unit.local.jobs.test_train_job_plan import Shelf, Wiring, own_runtime

JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 3), st.text(max_size=3), st.just("${trialParameters.x}"),
    st.just([]), st.just({}), st.just([None]), st.just([1]), st.just([{}]), st.just({"a": [1]}),
)  # fmt: skip

CONTAINER: dict[str, Any] = {
    "name": "node", "command": ["sh"], "args": ["x"], "env": [{"name": "A", "value": "1"}],
    "resources": {"requests": {"cpu": 1}, "limits": {"nvidia.com/gpu": 1}},
}  # fmt: skip
JOB_SET: dict[str, Any] = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "spec": {
        "replicatedJobs": [
            {"name": "a", "replicas": 2,
             "template": {"metadata": {"labels": {"a": "b"}}, "spec": {
                 "parallelism": 2, "completions": 2,
                 "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [CONTAINER]}}}}},
            {"name": "b", "dependsOn": [{"name": "a", "status": "Ready"}],
             "template": {"spec": {"template": {"spec": {"containers": [CONTAINER]}}}}},
        ],
        "successPolicy": {"operator": "All", "targetReplicatedJobs": ["a"]},
        "failurePolicy": {"maxRestarts": 1, "rules": [{"action": "FailJobSet", "onJobFailureMessagePatterns": ["x"]}]},
        "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
    },
}  # fmt: skip
TRAIN_JOB: dict[str, Any] = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "spec": {
        "runtimeRef": {"name": "mine", "kind": "TrainingRuntime"},
        "trainer": {"numNodes": 2, "numProcPerNode": 1, "command": ["sh"], "env": [{"name": "A", "value": "1"}],
                    "resourcesPerNode": {"limits": {"cpu": 1}}},
        "initializer": {"dataset": {"storageUri": "x", "env": [{"name": "A"}], "secretRef": {"name": "s"}}},
        "runtimePatches": [{"trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [
            {"name": "node", "template": {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"},
             "volumes": [{"name": "v"}]}}}}}]}}}}],
        "podTemplateOverrides": [{"targetJobs": [{"name": "node"}], "spec": {"containers": [{"name": "node"}]}}],
        "podSpecOverrides": [{"targetJobs": [{"name": "node"}], "tolerations": [{"key": "a"}]}],
    },
}  # fmt: skip


def places(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the way to every part of a document."""
    found = [here]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in items:
        found += places(child, (*here, key))
    return found


@st.composite
def broken(draw: st.DrawFn, document: dict[str, Any]) -> dict[str, Any]:
    """Draw a document of which up to three parts are something else."""
    result = {"spec": copy.deepcopy(document["spec"])}
    for _ in range(draw(st.integers(0, 3))):
        *way, last = draw(st.sampled_from(places(result)[1:]))
        parent: Any = result
        for key in way:
            parent = parent[key]
        parent[last] = copy.deepcopy(draw(JUNK))
    return {**document, **result}


def look(job: dict[str, Any], runtime: dict[str, Any]) -> None:
    shelf = Shelf()
    shelf.objects[RUNTIME, Key("", "mine")] = runtime
    kinds = JobKinds(shelf.find)
    errors, notices = check_job(job, "T", host=HOST, kinds=kinds)
    kind: object = kinds[Kind.of(job)]
    check_pod_labels(kind.pod_labels(job), Part({"jobset.sigs.k8s.io/replicatedjob-name": "node"}, "L"))

    assert all(error.cause and error.remedy for error in errors)
    assert all(notices)
    if not errors and "${" not in json.dumps([job, runtime]):
        start(kinds[Kind.of(job)], job)


def start(kind: JobKind, job: dict[str, Any]) -> None:
    """Plan a job that passed admission, and describe its first pods."""
    whole = without_nulls({**job, "metadata": {"name": "t", "namespace": "", "uid": "u"}})
    plan = kind.plan(ObservedJob(whole, (), JobTime(START, START), Delays()))
    assert all(kind.pod(whole, one, Wiring()).name.startswith(f"t-{one.role}-") for one in plan.start)


@settings(max_examples=300, deadline=None)
@given(broken(JOB_SET))
def test_a_broken_jobset_is_explained(job: dict[str, Any]) -> None:
    look(job, {})


@settings(max_examples=300, deadline=None)
@given(broken(TRAIN_JOB), broken({"spec": own_runtime(**CONTAINER)}), st.sampled_from([None, *SHIPPED]))
def test_a_broken_train_job_is_explained(job: dict[str, Any], runtime: dict[str, Any], shipped: str | None) -> None:
    if shipped is not None and isinstance(job["spec"], dict):
        job["spec"]["runtimeRef"] = {"name": shipped}
    look(job, runtime)
