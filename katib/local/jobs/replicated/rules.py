"""What keeps a training job from running here, found when it is submitted: the operator's rules and ours."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from katib.api.wording import closest, did_you_mean, path_to, shown
from katib.errors import invalid
from katib.local.findings import Findings, integer, is_given, mapping, mappings, text, texts
from katib.local.jobs.replicated.replicas import UNLIMITED_FAILURES
from katib.local.jobs.replicated.spec import OPERATOR, replicas_by_type
from katib.local.jobs.replicated.training_kind import TrainingKind
from katib.runtime.objects import Object
from katib.templates import has_placeholder

MAX_LABEL: Final = 63

_JOB_FIELDS = {"apiVersion": "text", "kind": "text", "metadata": "mapping", "spec": "mapping", "status": "mapping"}
_RUN_POLICY_FIELDS = {
    "activeDeadlineSeconds": "integer",
    "backoffLimit": "integer",
    "cleanPodPolicy": "text",
    "managedBy": "text",
    "schedulingPolicy": "mapping",
    "suspend": "boolean",
    "ttlSecondsAfterFinished": "integer",
}
_LOWEST = {"activeDeadlineSeconds": 1, "backoffLimit": 0, "ttlSecondsAfterFinished": 0}
_REPLICA_FIELDS = {"replicas": "integer", "restartPolicy": "text", "template": "mapping"}
_TYPES: Final[dict[str, tuple[type[Any] | tuple[type[Any], ...], str]]] = {
    "text": (str, "text"),
    "integer": (int, "a whole number"),
    "boolean": (bool, "true or false"),
    "mapping": (Mapping, "a mapping"),
    "list": (list, "a list"),
}
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_CLEAN_POLICIES = ("None", "Running", "All")
_RESTART_POLICIES = ("Never", "OnFailure", "ExitCode")


def check_training_job(kind: TrainingKind, job: Object, path: str, findings: Findings) -> None:
    """Check a training job but for what is inside its pod templates.

    Args:
        kind: Its kind.
        job: The object; may be malformed or hold placeholders.
        path: Where it stands.
        findings: Takes what is found.
    """
    check_fields(job, _JOB_FIELDS, path, kind.kind.kind, findings)
    name = text(mapping(job.get("metadata")).get("name"))
    if name and not _NAME.fullmatch(name):
        cause, remedy = _name_cause(name, kind.kind.kind)
        findings.error(f"{path}.metadata.name", cause, remedy, "replica-name")
    spec, place = mapping(job.get("spec")), f"{path}.spec"
    replicas_field = kind.replicas_field
    own = {"runPolicy": "mapping", replicas_field: "mapping", **kind.fields}
    check_fields(spec, own, place, f"{kind.kind.kind}'s spec", findings)
    _check_run_policy(mapping(spec.get("runPolicy")), f"{place}.runPolicy", findings)
    if not is_given(spec.get(replicas_field)):
        remedy = f"describe the replicas there: {', '.join(kind.types)}"
        findings.error(f"{place}.{replicas_field}", "it is missing", remedy, "replica-specs-missing")
    _check_replicas(kind, mapping(spec.get(replicas_field)), f"{place}.{replicas_field}", findings)
    _note_unlimited(kind, spec, place, findings)
    kind.check(spec, place, findings)


def check_fields(value: Mapping[str, Any], fields: Mapping[str, str], path: str, what: str, findings: Findings) -> None:
    """Find unknown fields and values of another type.

    Args:
        value: The mapping.
        fields: Names and types: `text`, `integer`, `boolean`, `mapping`, `list`.
        path: Where it stands.
        what: What it is, for people.
        findings: Takes what is found.
    """
    for key, item in value.items():
        place = path_to(path, str(key))
        if has_placeholder(str(key)) or item is None or has_placeholder(item):
            continue
        if key not in fields:
            close = closest(str(key), fields)
            remedy = f"did you mean {close}" if close else f"remove it: a {what} has no such field"
            findings.error(place, "unknown field", remedy, "job-field-unknown")
            continue
        fits, wanted = _TYPES[fields[key]]
        if not isinstance(item, fits) or (fits is int and isinstance(item, bool)):
            remedy = (
                "write it in quotes" if wanted == "text" and isinstance(item, str | int | float) else f"give {wanted}"
            )
            findings.error(place, f"{shown(item)} is not {wanted}", remedy, "job-field-type")


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


def _check_run_policy(policy: Mapping[str, Any], path: str, findings: Findings) -> None:
    check_fields(policy, _RUN_POLICY_FIELDS, path, "runPolicy", findings)
    findings.all_below(_LOWEST, policy, path)
    clean = text(policy.get("cleanPodPolicy"))
    if clean and clean not in _CLEAN_POLICIES:
        remedy = did_you_mean(clean, _CLEAN_POLICIES)
        findings.error(f"{path}.cleanPodPolicy", f"{shown(clean)} is not known", remedy, "job-choice")
    elif clean == "None":
        findings.notice(f"{path}.cleanPodPolicy", "replicas that still run when the job is over are stopped here")
    if is_given(policy.get("schedulingPolicy")):
        findings.notice(f"{path}.schedulingPolicy", "all replicas start together here, and no queue is kept")
    if policy.get("suspend") is True:
        findings.notice(f"{path}.suspend", "every trial starts suspended and waits until its job is resumed")
    if integer(policy.get("ttlSecondsAfterFinished")) == 0:
        why = "with 0 a cluster may remove the job before its trial is judged; here it stays until then"
        findings.notice(f"{path}.ttlSecondsAfterFinished", why)
    findings.managed_by(policy.get("managedBy"), OPERATOR, f"{path}.managedBy", "job")


def _check_replicas(kind: TrainingKind, given: Mapping[str, Any], path: str, findings: Findings) -> None:
    by_lower: dict[str, str] = {}
    for key, replica in given.items():
        place, lower = path_to(path, str(key)), str(key).lower()
        if has_placeholder(str(key)):
            continue
        if lower not in {type_.lower() for type_ in kind.types}:
            cause = f"the kind {kind.kind.kind} has no replicas of type {shown(str(key))}"
            findings.error(place, cause, did_you_mean(str(key), kind.types), "replica-type")
            continue
        if lower in by_lower:
            cause = f"it is the same type as {by_lower[lower]}: letter case does not count"
            findings.error(place, cause, "keep one of them", "replica-type")
        by_lower[lower] = str(key)
        if not isinstance(replica, Mapping):
            findings.error(place, f"{shown(replica)} is not a mapping", "give replicas and template", "job-field-type")
            continue
        _check_replica(kind, replica, place, findings)


def _check_replica(kind: TrainingKind, replica: Mapping[str, Any], path: str, findings: Findings) -> None:
    check_fields(replica, _REPLICA_FIELDS, path, "replica spec", findings)
    findings.below(0, replica.get("replicas"), f"{path}.replicas")
    policy = text(replica.get("restartPolicy"))
    if policy == "Always":
        cause = "with Always a program is started again even after it succeeded, so the job can never succeed"
        findings.error(f"{path}.restartPolicy", cause, "use OnFailure", "replica-restart-policy")
    elif policy and policy not in _RESTART_POLICIES:
        remedy = did_you_mean(policy, _RESTART_POLICIES)
        findings.error(f"{path}.restartPolicy", f"{shown(policy)} is not known", remedy, "replica-restart-policy")
    if not is_given(replica.get("template")):
        findings.error(f"{path}.template", "it is missing", "give a pod template", "job-field-missing")
        return
    pod = mapping(mapping(replica.get("template")).get("spec"))
    place = f"{path}.template.spec"
    if is_given(pod.get("restartPolicy")):
        effective = policy or kind.restart_policy
        why = f"it is replaced by the restart policy of the replicas, {effective}, as on a cluster"
        findings.notice(f"{place}.restartPolicy", why)
    containers = list(mappings(pod.get("containers")))
    if not containers:
        remedy = f"give a container named {kind.container} with a command"
        findings.error(f"{place}.containers", "it is missing or empty", remedy, "replica-containers")
        return
    for i, container in containers:
        if not is_given(container.get("image")):
            cause, remedy = "it is missing, and the operator of a cluster refuses such a job", "name any image"
            findings.error(f"{place}.containers[{i}].image", cause, remedy, "replica-image")
    names = [container.get("name") for _, container in containers]
    if kind.container_is_required and kind.container not in names and not any(has_placeholder(name) for name in names):
        cause = f"no container is named {kind.container}"
        remedy = f"name the one that trains {kind.container}: the operator looks for it"
        findings.error(f"{place}.containers", cause, remedy, "replica-container-name")


def _note_unlimited(kind: TrainingKind, spec: Mapping[str, Any], path: str, findings: Findings) -> None:
    if mapping(spec.get("runPolicy")).get("backoffLimit") is not None:
        return
    for key, replica in replicas_by_type(mapping(spec.get(kind.replicas_field)), kind.types).values():
        policy = mapping(replica).get("restartPolicy") or kind.restart_policy
        place = f"{path}.{kind.replicas_field}.{key}.restartPolicy"
        if policy in {"OnFailure", "ExitCode"}:
            why = f"without runPolicy.backoffLimit a cluster tries forever; here {UNLIMITED_FAILURES} failures in a row"
            findings.notice(place, f"{why} of a replica end the job")


def check_peer_names(kind: TrainingKind, job: Object, path: str, findings: Findings) -> None:
    """Find names of replicas in commands and variables.

    Args:
        kind: The kind of the job.
        job: The object; may be malformed or hold placeholders.
        path: Where it stands.
        findings: Takes what is found.
    """
    patterns = _peer_names(kind)
    given = mapping(mapping(job.get("spec")).get(kind.replicas_field))
    for key, replica in replicas_by_type(given, kind.types).values():
        place = f"{path_to(f'{path}.spec.{kind.replicas_field}', str(key))}.template.spec"
        pod = mapping(mapping(mapping(replica).get("template")).get("spec"))
        for i, container in mappings(pod.get("containers")):
            for field, word in _words(container):
                found = next(filter(None, (pattern.search(word) for pattern in patterns)), None)
                if found:
                    cause = f"{shown(found.group())} is the name of a replica on a cluster, which leads nowhere here"
                    remedy = f"read the address from {kind.address_variables}, which works in both places"
                    findings.error(f"{place}.containers[{i}].{field}", cause, remedy, "replica-peer-name")


def _peer_names(kind: TrainingKind) -> tuple[re.Pattern[str], ...]:
    roles = "|".join(type_.lower() for type_ in kind.types)
    number = r"(?:\d+|\$[\w({]+[)}]?)"
    built = re.compile(rf"(?:[}})]|\$\w+)-(?:{roles})-{number}(?=$|[\s:,;'\"]|\.[-\w.]*svc)")
    return built, re.compile(rf"[a-z0-9]-(?:{roles})-{number}(?::\d|\.[-\w.${{}}]*svc\b)")


def _words(container: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what a container's commands and variables say, by field."""
    return [
        *((f"command[{i}]", word) for i, word in enumerate(texts(container.get("command")))),
        *((f"args[{i}]", word) for i, word in enumerate(texts(container.get("args")))),
        *((f"env[{i}].value", str(entry.get("value") or "")) for i, entry in mappings(container.get("env"))),
    ]


def check_single(
    kind: TrainingKind,
    given: Mapping[str, tuple[str, Any]],
    type_: str,
    path: str,
    findings: Findings,
    *,
    required: bool = False,
) -> None:
    """Check that there is one replica of a type.

    Args:
        kind: Kind of the job.
        given: Its replicas as `replicas_by_type` returns them.
        type_: The type.
        path: Where the spec stands.
        findings: Takes what is found.
        required: Whether the type must be there at all.
    """
    place = f"{path}.{kind.replicas_field}"
    if type_ not in given:
        if required and given:
            cause = f"it is missing, and the kind {kind.kind.kind} needs it"
            findings.error(f"{place}.{type_}", cause, f"add a {type_} with replicas: 1", "replica-count")
        return
    key, replica = given[type_]
    count = mapping(replica).get("replicas")
    if count is None:
        findings.notice(f"{place}.{key}.replicas", "the operator of a cluster wants it written: replicas: 1")
    elif integer(count) not in {None, 1}:
        cause = f"{count} is not 1, the only number of {type_} replicas that the kind {kind.kind.kind} allows"
        findings.error(f"{place}.{key}.replicas", cause, "write 1", "replica-count")


def check_some(
    kind: TrainingKind, given: Mapping[str, tuple[str, Any]], type_: str, path: str, findings: Findings
) -> None:
    """Check that a type that is there has replicas; the arguments are those of `check_single`."""
    key, replica = given.get(type_, ("", None))
    if integer(mapping(replica).get("replicas")) == 0:
        place = f"{path}.{kind.replicas_field}.{key}.replicas"
        findings.error(place, "0 replicas never succeed", "give 1 or more, or remove the type", "replica-count")
