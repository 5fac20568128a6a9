"""JobSet as a kind of job, and TrainJob: a JobSet made of it and its runtime, and the variables of its nodes.

The runtime is looked up when the job starts, and remembered: later changes of it do not affect the job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from katib.engine.runtime.objects import Kind, Object
from katib.errors import invalid
from katib.places.machine.findings import Part, integer, mapping, mapping_at, mappings
from katib.places.machine.jobs.batch.job import INDEX_ANNOTATION, BatchJob
from katib.places.machine.jobs.conditions import (
    OWN_TYPES,
    Conditions,
    JobCondition,
    Reason,
    conditions_of,
    end_of,
    true_condition,
    with_condition,
    with_message,
    with_suspension,
    without_probes,
)
from katib.places.machine.jobs.gang.plan import ATTEMPT, GangPlanner, plan_gang
from katib.places.machine.jobs.gang.spec import READY, Dependency, GangGroup
from katib.places.machine.jobs.jobset.resolve import (
    ADDRESSES,
    NODE,
    RESERVED,
    TrainingSet,
    node_variables,
    training_set,
)
from katib.places.machine.jobs.jobset.rules import (
    TRAIN_JOB_MANAGER,
    check_jobset_rules,
    check_node_names,
    check_peers,
    check_train_job,
    is_readable,
    written_at,
)
from katib.places.machine.jobs.jobset.runtimes import TRAINER_VERSION, runtime_of
from katib.places.machine.jobs.jobset.spec import (
    API_VERSION,
    PREFIX,
    REPLICATED_JOB_LABEL,
    child_job,
    gang_of,
    is_in_order,
    job_labels,
    job_template,
    replicated_job,
    subdomain_of,
)
from katib.places.machine.jobs.kind import (
    NewPod,
    ObservedJob,
    Plan,
    PodLabels,
    PodStart,
    Wiring,
    container_names,
    names_in_domain,
)
from katib.places.machine.jobs.kinds import Find
from katib.places.machine.jobs.launchers import with_host_files

JOB_SET = Kind(API_VERSION, "JobSet")

JOB_POD: Final = "template.spec.template"
"""The pod template in a replicated job."""

_SET_LATER: Final = (
    "coordinator",
    "global-replicas",
    "group-name",
    "job-global-index",
    "job-key",
    "jobset-name",
    "jobset-uid",
    "replicatedjob-replicas",
    "restart-attempt",
)
"""Labels of `job_labels` that are known only when the job runs."""


class JobSet:
    """The kind JobSet. Fits `katib.places.machine.jobs.kind.JobKind`."""

    kind = JOB_SET

    def plan(self, observed: ObservedJob) -> Plan:
        return plan_gang(gang_of(observed.job), observed, partial(jobset_status, observed.job))

    def pod(self, job: Object, start: PodStart, wiring: Wiring) -> NewPod:
        """Describe a pod of one of its Jobs, as the controllers of JobSet and Job make it."""
        pod = BatchJob().pod(child_job(job, start.role), start, wiring)
        marks = job_labels(job, start.role, start.details.get(ATTEMPT, 0))
        return replace(
            pod,
            path=f"spec.replicatedJobs[{replicated_job(job, start.role)[0]}].{JOB_POD}",
            labels={**pod.labels, **marks},
            annotations={**pod.annotations, **marks},
            aliases=_aliases(job, pod.hostname),
        )

    def check(self, job: Part) -> None:
        """Find obstacles for a JobSet on this machine, but for its pod templates."""
        check_jobset_rules(job["spec"])

    def variables_with_addresses(self, _job: Object) -> str:
        """Return nothing: a JobSet gives its pods no addresses."""
        return ""

    def check_peer_names(self, job: Part) -> None:
        """Find names of pods that are spelled out, which lead nowhere on the network of this machine."""
        check_peers(job["spec"])

    def templates(self, job: Object) -> Mapping[str, tuple[Mapping[str, Any], int]]:
        """Return the pod templates of its replicated jobs with the pods that run together."""
        found: dict[str, tuple[Mapping[str, Any], int]] = {}
        for position, item in mappings(mapping(job.get("spec")).get("replicatedJobs")):
            spec = mapping_at(item, "template.spec")
            replicas, parallelism = integer(item.get("replicas")), integer(spec.get("parallelism"))
            count = (1 if replicas is None else replicas) * (1 if parallelism is None else parallelism)
            found[f"spec.replicatedJobs[{position}].{JOB_POD}"] = (mapping(spec.get("template")), count)
        return found

    def pod_labels(self, job: Object) -> Sequence[PodLabels]:
        """Return the labels of its pods, for each replicated job that has any."""
        found = []
        for _, item in mappings(mapping(job.get("spec")).get("replicatedJobs")):
            replicas, (pods,) = integer(item.get("replicas", 1)), BatchJob().pod_labels({"spec": job_template(item)})
            if replicas == 0:
                continue
            indexes = range(replicas) if replicas and replicas > 0 else None
            marks = {REPLICATED_JOB_LABEL: str(item.get("name")), f"{PREFIX}/job-index": indexes}
            later = dict.fromkeys(f"{PREFIX}/{name}" for name in _SET_LATER)
            found.append(PodLabels({**pods.own, **marks}, {**pods.others, **later}))
        return found


def _aliases(jobset: Object, host: str) -> tuple[str, ...]:
    """Return the names of a pod on a cluster, of which one leads to all pods of the JobSet."""
    if not host or jobset["spec"].get("network", {}).get("enableDNSHostnames") is False:
        return ()
    subdomain, namespace = subdomain_of(jobset), jobset["metadata"].get("namespace", "")
    return (subdomain, *names_in_domain(subdomain, namespace), *names_in_domain(host, subdomain, namespace))


TRAIN_JOB = Kind(TRAINER_VERSION, "TrainJob")

_TERMINAL: Final = {"Completed": "Complete", "Failed": "Failed"}
_SHARED_DIRECTORY: Final = "../initializer"
"""Beside the directories of the pods, so that all of them see it."""


class TrainJob:
    """The kind TrainJob. Fits `katib.places.machine.jobs.kind.JobKind`."""

    kind = TRAIN_JOB

    def __init__(self, find: Find) -> None:
        self._find = find

    def plan(self, observed: ObservedJob) -> Plan:
        status = dict(observed.job.get("status") or {})
        if observed.job["spec"].get("managedBy", TRAIN_JOB_MANAGER) != TRAIN_JOB_MANAGER or end_of(status):
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
        training: TrainingSet | None = start.details.get("training") or self._resolve(job)
        if training is None:
            raise invalid("spec.runtimeRef.name", "the runtime is gone", "apply it again", "runtime-missing")
        return _with_variables(JobSet().pod(training.jobset, start, wiring), training, start, wiring)

    def check(self, job: Part) -> None:
        """Find obstacles for a TrainJob on this machine, but for its pod templates."""
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
        """Return the pod templates of its runtime with the changes of the TrainJob."""
        training = self._resolve(job)
        return {} if training is None else JobSet().templates(training.jobset)

    def written_at(self, job: Object, place: str) -> str:
        """Return the place in the TrainJob of a place in a template; empty if the runtime brings it."""
        training = self._resolve(job)
        return place if training is None else written_at(job, training, place)

    def pod_labels(self, job: Object) -> Sequence[PodLabels]:
        """Return the labels of its pods, as its runtime makes them."""
        training = self._resolve(job)
        return () if training is None else JobSet().pod_labels(training.jobset)

    def primary_labels(self, job: Object) -> Mapping[str, str]:
        """Return the labels of the launcher if its runtime uses MPI, else of the first node that trains."""
        training = self._resolve(job)
        if training is None or not training.trainer:
            return {}
        first = {} if training.policy == "mpi" else {INDEX_ANNOTATION: "0"}
        return {REPLICATED_JOB_LABEL: training.trainer, **first}

    def _resolve(self, job: Object) -> TrainingSet | None:
        runtime = runtime_of(job, self._find) if is_readable(job) else None
        return None if runtime is None else training_set(job, runtime)


# --- the status of a JobSet -------------------------------------------------------------------------------------------


def jobset_status(jobset: Object, progress: GangPlanner) -> dict[str, Any]:
    conditions, state, now = conditions_of(progress.status), progress.state, progress.moment.wall
    outcome, terminal, retrying = state.outcome, "", JobCondition.RETRYING
    if outcome is None:
        reasons = ("SuspendedJobs", "ResumeJobs")
        conditions = with_suspension(conditions, "jobset is", reasons, now, suspended=progress.gang.suspend)
        if is_in_order(jobset["spec"]) and not progress.gang.suspend:
            conditions = _startup(conditions, progress)
        if text := progress.retrying:
            conditions = with_message(conditions, retrying, reason=Reason.POD_FAILED, message=text, now=now)
    elif progress.is_over:
        terminal, others = (
            "Completed" if outcome.success else "Failed",
            [c for c in conditions if c["type"] != retrying],
        )
        conditions = with_condition(tuple(others), terminal, reason=outcome.reason, message=outcome.message, now=now)
    return {
        "conditions": without_probes(conditions),
        "replicatedJobsStatus": [_counts(group, progress) for group in progress.gang.groups],
        "restarts": state.restarts,
        "restartsCountTowardsMax": state.counted,
        **({"terminalState": terminal} if terminal else {}),
    }


def _startup(conditions: Conditions, progress: GangPlanner) -> Conditions:
    done, pending = "StartupPolicyCompleted", "StartupPolicyInProgress"
    if true_condition(conditions, done):
        return conditions
    is_over = all(progress.is_reached(Dependency(group.name, READY)) for group in progress.gang.groups)
    type_, text = (done, "has completed") if is_over else (pending, "is in progress")
    others, now = [c for c in conditions if not is_over or c["type"] != pending], progress.moment.wall
    return with_condition(tuple(others), type_, reason=type_, message=f"startup policy {text}", now=now)


def _counts(group: GangGroup, progress: GangPlanner) -> dict[str, Any]:
    """Return how many Jobs of a group are in each state."""
    jobs = [progress.jobs[role] for role in group.roles if role in progress.jobs]
    open_ = [] if progress.state.outcome is not None else [job for job in jobs if not job.end]
    return {
        "name": group.name,
        "ready": sum(job.is_ready(group) for job in open_),
        "succeeded": sum(job.is_complete for job in jobs),
        "failed": sum(job.has_failed for job in jobs),
        "active": sum(bool(job.last.status.get("active")) for job in open_),
        "suspended": len(open_) if progress.gang.suspend else 0,
    }


# --- the plan of a TrainJob -------------------------------------------------------------------------------------------


def _plan(observed: ObservedJob, training: TrainingSet) -> Plan:
    """Plan the JobSet of a TrainJob, and describe it in the words of a TrainJob."""
    jobset = {**training.jobset, "status": observed.memory.get("status", {})}
    gang = replace(
        gang_of(jobset),
        suspend=observed.job["spec"].get("suspend", False),
        deadline_seconds=observed.job["spec"].get("activeDeadlineSeconds"),
        renewals=1,
    )
    decision = plan_gang(gang, replace(observed, job=jobset), partial(jobset_status, jobset))
    return replace(
        decision,
        status=_status(observed, training, decision.status),
        start=tuple(replace(s, details={**s.details, "training": training}) for s in decision.start),
        delete=False,
        memory={**decision.memory, "training": training, "status": decision.status},
    )


def _status(observed: ObservedJob, training: TrainingSet, of_jobset: Mapping[str, Any]) -> dict[str, Any]:
    """Return the status of a TrainJob: there is no condition while it runs."""
    before = conditions_of(observed.job.get("status") or {})
    now, conditions = observed.moment.wall, tuple(c for c in before if c["type"] not in OWN_TYPES - {"Suspended"})
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
    if training.shared:
        pod = replace(pod, rewrites={**pod.rewrites, training.shared: _SHARED_DIRECTORY})
    if start.role.rpartition("-")[0] != training.trainer or NODE not in container_names(pod.template):
        return pod
    if training.policy == "mpi":
        pod = with_host_files(pod, training.slots)
    if not training.has_trainer:
        return pod
    variables = node_variables(training, start.index or 0, wiring)
    if training.policy not in RESERVED:
        node = next(c for c in pod.template["spec"]["containers"] if c["name"] == NODE)
        own = {entry["name"] for entry in node.get("env") or ()}
        variables = {name: value for name, value in variables.items() if name not in own}
    return replace(pod, variables={**pod.variables, NODE: {**pod.variables.get(NODE, {}), **variables}})
