"""TrainJob as a kind of job: a JobSet made of it and its runtime, and the variables of its nodes.

The runtime is looked up when the job starts and remembered: what becomes of it later changes nothing for the job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from katib.errors import invalid
from katib.local.findings import Part
from katib.local.jobs.batch.job import INDEX_ANNOTATION
from katib.local.jobs.conditions import (
    conditions_of,
    deadline_of,
    earliest,
    end_of,
    overdue,
    true_condition,
    with_condition,
    with_suspension,
    without_probes,
)
from katib.local.jobs.jobset.jobset import JobSet
from katib.local.jobs.jobset.plan import plan as plan_jobset
from katib.local.jobs.jobset.resolve import (
    ADDRESSES,
    HOST_DIRECTORY,
    HOST_FILE,
    NODE,
    RESERVED,
    TrainingSet,
    node_variables,
    training_set,
)
from katib.local.jobs.jobset.runtimes import API_VERSION, Find, runtime_of
from katib.local.jobs.jobset.spec import REPLICATED_JOB_LABEL, JobSetSpec
from katib.local.jobs.jobset.trainjob_rules import MANAGER, check_node_names, check_train_job, is_readable, written_at
from katib.local.jobs.kind import NewPod, Observed, Plan, PodLabels, PodStart, Wiring, container_names
from katib.runtime.objects import Kind, Object

TRAIN_JOB = Kind(API_VERSION, "TrainJob")

_TERMINAL: Final = {"Completed": "Complete", "Failed": "Failed"}
_SHARED_DIRECTORY: Final = "../initializer"
"""Beside the directories of the pods, so that all of them see it."""


class TrainJob:
    """The kind TrainJob. Fits `katib.local.jobs.kind.JobKind`.

    Args:
        find: Where users' runtimes are.
    """

    kind = TRAIN_JOB

    def __init__(self, find: Find) -> None:
        self._find = find

    def plan(self, observed: Observed) -> Plan:
        """Decide what follows for a TrainJob."""
        status = dict(observed.job.get("status") or {})
        if observed.job["spec"].get("managedBy", MANAGER) != MANAGER or end_of(status):
            return Plan(status, memory=observed.memory)
        training: TrainingSet | None = observed.memory.get("training")
        if training is None:
            job, runtime = Part(observed.job, observed.job["kind"]), runtime_of(observed.job, self._find)
            check_train_job(job, runtime)  # changed since admission, perhaps
            if job.findings.errors or runtime is None:
                reason, message = "TrainingRuntimeNotSupported", "; ".join(map(str, job.findings.errors))
                now = observed.moment.wall
                failed = with_condition((), "Failed", reason=reason, message=message, now=now)
                return Plan({"conditions": without_probes(failed)})
            training = training_set(observed.job, runtime)
        return _plan(observed, training)

    def pod(self, job: Object, start: PodStart, wiring: Wiring) -> NewPod:
        """Describe a pod of one of its Jobs."""
        training: TrainingSet | None = start.details.get("training") or self._resolve(job)
        if training is None:
            raise invalid("spec.runtimeRef.name", "the runtime is gone", "apply it again", "runtime-missing")
        return _with_variables(JobSet().pod(training.jobset, start, wiring), training, start, wiring)

    def check(self, job: Part) -> None:
        """Find what keeps a TrainJob from running here, but for its pod templates."""
        check_train_job(job, runtime_of(job.value, self._find))

    def variables_with_addresses(self, job: Object) -> str:
        """Return which variables hold the address of the first node; empty when none do."""
        training = self._resolve(job)
        return ADDRESSES.get(training.policy, "") if training is not None and training.has_trainer else ""

    def check_peer_names(self, job: Part) -> None:
        """Find names of nodes that are spelled out, which lead nowhere on the network of this machine."""
        training = self._resolve(job.value)
        if training is not None:
            check_node_names(training, job["spec"])

    def templates(self, job: Object) -> Mapping[str, tuple[Mapping[str, Any], int]]:
        """Return the pod templates that its runtime has with what the TrainJob says."""
        training = self._resolve(job)
        return {} if training is None else JobSet().templates(training.jobset)

    def written_at(self, job: Object, place: str) -> str:
        """Return where its author wrote what stands at a place of a template; empty for what a runtime brings."""
        training = self._resolve(job)
        return place if training is None else written_at(job, training, place)

    def pod_labels(self, job: Object) -> Sequence[PodLabels]:
        """Return the labels of its pods, as its runtime makes them."""
        training = self._resolve(job)
        return () if training is None else JobSet().pod_labels(training.jobset)

    def primary_labels(self, job: Object) -> Mapping[str, str]:
        """Return the labels of the launcher where its runtime uses MPI, else of the first node that trains."""
        training = self._resolve(job)
        if training is None or not training.trainer:
            return {}
        first = {} if training.policy == "mpi" else {INDEX_ANNOTATION: "0"}
        return {REPLICATED_JOB_LABEL: training.trainer, **first}

    def _resolve(self, job: Object) -> TrainingSet | None:
        runtime = runtime_of(job, self._find) if is_readable(job) else None
        return None if runtime is None else training_set(job, runtime)


# --- the plan ---------------------------------------------------------------------------------------------------------


def _plan(observed: Observed, training: TrainingSet) -> Plan:
    """Plan the JobSet, and describe it in the words of a TrainJob."""
    suspend = observed.job["spec"].get("suspend", False)
    jobset = {
        **training.jobset,
        "spec": {**training.jobset["spec"], "suspend": suspend},
        "status": observed.memory.get("status", {}),
    }
    seconds, now = observed.job["spec"].get("activeDeadlineSeconds"), observed.moment.steady
    deadline = deadline_of(seconds, observed.started_at or now)
    ending = None if suspend else overdue(seconds, observed.started_at or now, now)
    decision = plan_jobset(replace(observed, job=jobset), ending, moves=True)
    return replace(
        decision,
        status=_status(observed, training, decision.status),
        start=tuple(replace(s, details={**s.details, "training": training}) for s in decision.start),
        wake_at=earliest(decision.wake_at, deadline) if ending is None else None,
        delete=False,
        memory={**decision.memory, "training": training, "status": decision.status},
    )


def _status(observed: Observed, training: TrainingSet, of_jobset: Mapping[str, Any]) -> dict[str, Any]:
    """Return the status of a TrainJob: there is no condition while it runs."""
    before = conditions_of(observed.job.get("status") or {})
    now, conditions = observed.moment.wall, tuple(c for c in before if c["type"] == "Suspended")
    theirs = conditions_of(of_jobset)
    suspended = true_condition(theirs, "Suspended") is not None
    conditions = with_suspension(conditions, "TrainJob is", ("Suspended", "Resumed"), now, suspended=suspended)
    kept = [c for c in theirs if c["type"] in {*_TERMINAL, "Retrying"}]
    ends = tuple({**c, "type": _TERMINAL.get(c["type"], c["type"])} for c in kept)
    running = end_of(of_jobset) is None and not suspended
    waiting = {"ready": int(running), "succeeded": 0, "failed": 0, "active": int(running), "suspended": 0}
    return {
        "conditions": without_probes(conditions + ends),
        "jobsStatus": [*({"name": name, **waiting} for name in training.idle), *of_jobset["replicatedJobsStatus"]],
    }


# --- the pods ---------------------------------------------------------------------------------------------------------


def _with_variables(pod: NewPod, training: TrainingSet, start: PodStart, wiring: Wiring) -> NewPod:
    """Return a pod with the variables of its node and the directories that it shares."""
    replicated, _ = JobSetSpec.of(training.jobset).replicated_job(start.role)
    if training.shared:
        pod = replace(pod, rewrites={**pod.rewrites, training.shared: _SHARED_DIRECTORY})
    if replicated.name != training.trainer or NODE not in container_names(pod.template):
        return pod
    if training.policy == "mpi":
        files, rewrites = {HOST_FILE: f"localhost slots={training.slots}\n"}, {**pod.rewrites, HOST_DIRECTORY: "mpi"}
        pod = replace(pod, files=files, rewrites=rewrites, processes=training.slots, slots=training.slots)
    if not training.has_trainer:
        return pod
    variables = node_variables(training, start.index or 0, wiring)
    if training.policy not in RESERVED:
        node = next(c for c in pod.template["spec"]["containers"] if c["name"] == NODE)
        own = {entry["name"] for entry in node.get("env") or ()}
        variables = {name: value for name, value in variables.items() if name not in own}
    return replace(pod, variables={**pod.variables, NODE: {**pod.variables.get(NODE, {}), **variables}})
