"""The admission of training jobs: the operator's rules and ours."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from katib.errors import invalid
from katib.model.templates import has_placeholder
from katib.model.wording import did_you_mean, shown
from katib.places.machine.findings import ANY_NAME, Part, Structure, check_structure, structure
from katib.places.machine.jobs.gang.plan import UNLIMITED_FAILURES
from katib.places.machine.jobs.replicated.training_kind import OPERATOR, TrainingKind

MAX_LABEL: Final = 63

_RUN_POLICY: Final = structure(
    integer="activeDeadlineSeconds backoffLimit ttlSecondsAfterFinished",
    text="cleanPodPolicy managedBy",
    map="schedulingPolicy",
    boolean="suspend",
)
_REPLICA: Final = structure(integer="replicas", text="restartPolicy", pod="template")
_NAME: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def check_training_job(kind: TrainingKind, job: Part) -> None:
    """Check a training job but for its pod templates."""
    whole = structure(text="apiVersion kind", map="metadata status", spec=spec_structure(kind))
    check_structure(job, whole, kind.kind.kind)
    name, spec = job["metadata.name"], job["spec"]
    if name.text and not _NAME.fullmatch(name.text):
        name.error(*_name_cause(name.text, kind.kind.kind), "replica-name")
    _check_run_policy(spec["runPolicy"])
    spec[kind.replicas_field].require(f"describe the replicas there: {', '.join(kind.types)}", "replica-specs-missing")
    _check_replicas(kind, spec[kind.replicas_field])
    for replica in replicas_of(kind, spec).values() if spec["runPolicy.backoffLimit"].value is None else ():
        if (replica["restartPolicy"].value or kind.restart_policy) in {"OnFailure", "ExitCode"}:
            why = f"without runPolicy.backoffLimit a cluster tries forever; here {UNLIMITED_FAILURES} failures in a row"
            replica["restartPolicy"].notice(f"{why} of a replica end the job")
    kind.check_spec(spec)


def spec_structure(kind: type[TrainingKind] | TrainingKind) -> Structure:
    return {kind.replicas_field: {ANY_NAME: _REPLICA}, "runPolicy": _RUN_POLICY, **kind.fields}


def replicas_of(kind: TrainingKind, spec: Part) -> dict[str, Part]:
    """Return the replicas of each known type; letter case does not count."""
    by_lower = {type_.lower(): type_ for type_ in kind.types}
    given = spec[kind.replicas_field].fields.items()
    return {by_lower[key.lower()]: replica for key, replica in given if key.lower() in by_lower}


def check_pod_name(job_name: str, name: str, kind: str) -> None:
    """Check the name of a pod, which follows from that of its job.

    Raises:
        InvalidError: A cluster would refuse it.
    """
    if not _NAME.fullmatch(job_name):
        raise invalid("metadata.name", *_name_cause(job_name, kind), "replica-name")
    if len(name) > MAX_LABEL:
        cause = f"the name of its pod {name} is longer than {MAX_LABEL} characters"
        raise invalid("metadata.name", cause, "give the experiment a shorter name", "replica-name")


def _name_cause(name: str, kind: str) -> tuple[str, str]:
    cause = f"{shown(name)} is not a valid DNS-1035 label, which the kind {kind} needs as its name"
    return cause, "begin the name of the experiment with a letter, then letters, digits and dashes"


def _check_run_policy(policy: Part) -> None:
    policy.at_least(activeDeadlineSeconds=1, backoffLimit=0, ttlSecondsAfterFinished=0)
    clean = policy["cleanPodPolicy"]
    clean.spelled(("None", "Running", "All"), "job-choice")
    if clean.text == "None":
        clean.notice("replicas that still run when the job is over are stopped here")
    policy["schedulingPolicy"].note("all replicas start together here, and no queue is kept")
    if policy["ttlSecondsAfterFinished"].integer == 0:
        why = "with 0 a cluster may remove the job before its trial is judged; here it stays until then"
        policy["ttlSecondsAfterFinished"].notice(why)
    policy.run_by(OPERATOR, "job")


def _check_replicas(kind: TrainingKind, given: Part) -> None:
    by_lower: dict[str, str] = {}
    for key, replica in given.fields.items():
        lower = key.lower()
        if has_placeholder(key):
            continue
        if lower not in {type_.lower() for type_ in kind.types}:
            cause = f"the kind {kind.kind.kind} has no replicas of type {shown(key)}"
            replica.error(cause, did_you_mean(key, kind.types), "replica-type")
            continue
        if lower in by_lower:
            cause = f"it is the same type as {by_lower[lower]}: letter case does not count"
            replica.error(cause, "keep one of them", "replica-type")
        by_lower[lower] = key
        if isinstance(replica.value, Mapping):
            _check_replica(kind, replica)
        else:
            replica.error(f"{shown(replica.value)} is not a mapping", "give replicas and template", "job-field-type")


def _check_replica(kind: TrainingKind, replica: Part) -> None:
    check_structure(replica, _REPLICA, "replica spec")
    replica.at_least(replicas=0)
    policy = replica["restartPolicy"]
    if policy.text == "Always":
        cause = "with Always a program is started again even after it succeeded, so the job can never succeed"
        policy.error(cause, "use OnFailure", "replica-restart-policy")
    else:
        policy.spelled(("Never", "OnFailure", "ExitCode"), "replica-restart-policy")
    if not replica["template"].require("give a pod template"):
        return
    pod = replica["template.spec"]
    effective = policy.text or kind.restart_policy
    pod["restartPolicy"].note(f"it is replaced by the restart policy of the replicas, {effective}, as on a cluster")
    containers = list(pod["containers"])
    if not containers:
        remedy = f"give a container named {kind.container} with a command"
        pod["containers"].error("it is missing or empty", remedy, "replica-containers")
        return
    for container in containers:
        cause = "it is missing, and the operator of a cluster refuses such a job"
        container["image"].require("name any image", "replica-image", cause)
    names = [container["name"].value for container in containers]
    if kind.container_is_required and kind.container not in names and not any(map(has_placeholder, names)):
        remedy = f"name the one that trains {kind.container}: the operator looks for it"
        pod["containers"].error(f"no container is named {kind.container}", remedy, "replica-container-name")


def check_peer_names(kind: TrainingKind, job: Part) -> None:
    """Find names of replicas in commands and variables."""
    patterns = _peer_names(kind)
    for replica in replicas_of(kind, job["spec"]).values():
        for container in replica["template.spec.containers"]:
            said = [word for field in ("command", "args") for word in container[field].words]
            for word in (*said, *(entry["value"] for entry in container["env"] if entry["value"].value)):
                found = next(filter(None, (pattern.search(str(word.value)) for pattern in patterns)), None)
                if found:
                    cause = f"{shown(found.group())} is the name of a replica on a cluster, which leads nowhere here"
                    remedy = f"read the address from {kind.address_variables}, which works in both places"
                    word.error(cause, remedy, "replica-peer-name")


def _peer_names(kind: TrainingKind) -> tuple[re.Pattern[str], ...]:
    roles = "|".join(type_.lower() for type_ in kind.types)
    number = r"(?:\d+|\$[\w({]+[)}]?)"
    built = re.compile(rf"(?:[}})]|\$\w+)-(?:{roles})-{number}(?=$|[\s:,;'\"]|\.[-\w.]*svc)")
    return built, re.compile(rf"[a-z0-9]-(?:{roles})-{number}(?::\d|\.[-\w.${{}}]*svc\b)")


def check_single(kind: TrainingKind, spec: Part, type_: str, *, required: bool = False) -> None:
    given, name = replicas_of(kind, spec), kind.kind.kind
    if type_ in given:
        replicas = given[type_]["replicas"]
        if replicas.value is None:
            replicas.notice("the operator of a cluster wants it written: replicas: 1")
        elif replicas.integer not in {None, 1}:
            cause = f"{replicas.value} is not 1, the only number of {type_} replicas that the kind {name} allows"
            replicas.error(cause, "write 1", "replica-count")
    elif required and given:
        cause = f"it is missing, and the kind {name} needs it"
        spec[kind.replicas_field][type_].error(cause, f"add a {type_} with replicas: 1", "replica-count")


def check_some(kind: TrainingKind, spec: Part, *types: str) -> None:
    """Check that types that are there have replicas."""
    for type_, replica in replicas_of(kind, spec).items():
        if type_ in types and replica["replicas"].integer == 0:
            replica["replicas"].error("0 replicas never succeed", "give 1 or more, or remove the type", "replica-count")
