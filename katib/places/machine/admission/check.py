"""Validation of a job for this machine: its kind, the treatment of every field, and the rules between fields.

The table of fields guarantees that nothing is ignored silently. It covers each part of a Job that is reachable through
supported fields; a test compares it with the schema, so a field of a newer Kubernetes requires an entry. Fields whose
treatment depends on their value are supported here and checked by a rule in this package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import Any, Final

from katib.engine.runtime.objects import Kind
from katib.errors import FieldError
from katib.model.job_kinds import misspelt_kind
from katib.model.names import DRAFTED_IMAGE
from katib.model.templates.job_schema import POD_TEMPLATE, check_value, job_schema
from katib.model.wording import shown
from katib.places.machine.admission.host import CommandEnvironment, HostCapacity
from katib.places.machine.admission.pod_rules import check_card_share, check_pod_rules, check_requests_together
from katib.places.machine.findings import Part
from katib.places.machine.jobs.batch.job import JOB
from katib.places.machine.jobs.kind import Composed, JobKind, KnowsPeers
from katib.places.machine.jobs.kinds import JobKinds
from katib.places.machine.jobs.networks import may_be_named


class FieldEffect(Enum):
    """Treatment of a field."""

    SUPPORTED = auto()
    IGNORED = auto()
    REFUSED = auto()


@dataclass(frozen=True, slots=True)
class FieldTreatment:
    """Treatment of one field.

    Attributes:
        effect: Supported, ignored with a notice, or refused with an error.
        why: For an ignored field, a sentence without full stop; for a refused one, the cause.
    """

    effect: FieldEffect
    why: str = ""
    remedy: str = ""


_CLUSTER = "submit the experiment to Kubernetes"
_NOT_PLACED = "everything runs on this machine, so it is not used for placing pods"
_NO_CONTAINER = "there is no container around a process here, so it has no effect"
_NO_IMAGE = "images are not run here, the command runs with this machine's files"
_NO_PROBE = "probes are not run here, so a program that hangs or is not ready is not noticed"
_NO_NAMES = "there is no cluster network here, so it has no effect"
_SET_BY_KATIB = "it is set when a trial's object is made"
_NO_MODES = "files of a volume get the usual mode here, so start a script with its interpreter"
_NOT_SANDBOXED = "processes are not sandboxed here, so it has no effect"


def supported(names: str) -> dict[str, FieldTreatment]:
    """Return the entries of supported fields, for names separated by spaces."""
    return dict.fromkeys(names.split(), FieldTreatment(FieldEffect.SUPPORTED))


def ignored(names: str, why: str) -> dict[str, FieldTreatment]:
    """Return the entries of fields that are ignored with a notice."""
    return dict.fromkeys(names.split(), FieldTreatment(FieldEffect.IGNORED, why))


def refused(names: str, why: str, remedy: str) -> dict[str, FieldTreatment]:
    return dict.fromkeys(names.split(), FieldTreatment(FieldEffect.REFUSED, why, remedy))


WHOLLY_SUPPORTED: Final = frozenset(
    """
    V1ConfigMapEnvSource V1ConfigMapKeySelector V1EnvFromSource V1EnvVar V1HostPathVolumeSource
    V1ObjectFieldSelector V1PodFailurePolicy V1PodFailurePolicyOnExitCodesRequirement V1PodFailurePolicyRule
    V1PodFailurePolicyOnPodConditionsPattern V1PodTemplateSpec V1ResourceFieldSelector V1SecretEnvSource
    V1SecretKeySelector V1SuccessPolicy V1SuccessPolicyRule
    """.split()  # noqa: SIM905  # a table of names reads better without quotes
)
"""Parts with only supported fields."""

Fields = Mapping[str, Mapping[str, FieldTreatment]]

FIELDS: Final[Fields] = {
    "V1Job": supported("apiVersion kind metadata spec") | ignored("status", _SET_BY_KATIB),
    "V1ObjectMeta": {
        **supported("annotations labels"),
        **ignored(
            "creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers generateName generation "
            "managedFields name namespace ownerReferences resourceVersion selfLink uid",
            _SET_BY_KATIB,
        ),
    },
    "V1JobSpec": {
        **supported(
            "activeDeadlineSeconds backoffLimit backoffLimitPerIndex completionMode completions managedBy "
            "maxFailedIndexes parallelism podFailurePolicy podReplacementPolicy successPolicy suspend template "
            "ttlSecondsAfterFinished"
        ),
        **ignored("manualSelector selector", "pods of a job are known without a selector here"),
        **ignored("scheduling", _NOT_PLACED),
    },
    "V1PodSpec": {
        **supported(
            "containers initContainers os restartPolicy securityContext serviceAccountName "
            "terminationGracePeriodSeconds volumes"
        ),
        **ignored(
            "affinity nodeName nodeSelector overhead preemptionPolicy priority priorityClassName runtimeClassName "
            "schedulerName schedulingGroup tolerations topologySpreadConstraints",
            _NOT_PLACED,
        ),
        **ignored("imagePullSecrets", _NO_IMAGE),
        **ignored("automountServiceAccountToken serviceAccount", "there is no cluster to have an account at"),
        **ignored(
            "dnsConfig dnsPolicy enableServiceLinks hostname hostnameOverride setHostnameAsFQDN subdomain", _NO_NAMES
        ),
        **ignored("evictionResponders readinessGates", "nothing evicts pods or sends traffic to them here"),
        **ignored("hostUsers shareProcessNamespace", _NO_CONTAINER),
        **refused("hostIPC hostNetwork hostPID", "sharing a namespace of the host is not allowed here", "remove it"),
        **refused("hostAliases", "host names cannot be changed here", "remove it, or add them to /etc/hosts"),
        **refused("activeDeadlineSeconds", "a deadline for one pod is not kept here", "move it to the spec of the Job"),
        **refused("resources", "resources of a whole pod are not counted here", "give them in its containers"),
        **refused("resourceClaims", "claimed devices are not known here", f"request nvidia.com/gpu, or {_CLUSTER}"),
        **refused("ephemeralContainers schedulingGates", "a new pod cannot have it", "remove it"),
    },
    "V1Container": {
        **supported("args command env envFrom name resources restartPolicy securityContext volumeMounts workingDir"),
        **ignored("image imagePullPolicy", _NO_IMAGE),
        **ignored("livenessProbe readinessProbe startupProbe", _NO_PROBE),
        **ignored("ports", "no port is mapped here, and trials that listen on the same number at once collide"),
        **ignored("stdin stdinOnce tty", "a trial has no terminal and reads an empty input"),
        **ignored("terminationMessagePath terminationMessagePolicy", "the log is what is kept of a process"),
        **ignored("resizePolicy", "resources of a running process do not change"),
        **refused("lifecycle", "hooks are not run here", "call them in the command itself"),
        **refused(
            "restartPolicyRules",
            "rules for a single container are not kept here",
            f"use the podFailurePolicy of a Job, or {_CLUSTER}",
        ),
        **refused("volumeDevices", "block devices are not provided here", f"remove it, or {_CLUSTER}"),
    },
    "V1EnvVarSource": {
        **supported("configMapKeyRef fieldRef resourceFieldRef secretKeyRef"),
        **refused("fileKeyRef", "values from files of a volume are not read here", "use configMapKeyRef"),
    },
    "V1ResourceRequirements": {
        **supported("limits requests"),
        **refused("claims", "claimed devices are not known here", f"request nvidia.com/gpu, or {_CLUSTER}"),
    },
    "V1PodOS": supported("name"),
    "V1PodSecurityContext": {
        **supported("runAsGroup runAsNonRoot runAsUser"),
        **ignored(
            "appArmorProfile fsGroup fsGroupChangePolicy seLinuxChangePolicy seLinuxOptions seccompProfile "
            "supplementalGroups supplementalGroupsPolicy",
            _NOT_SANDBOXED,
        ),
        **refused("sysctls", "kernel settings are not changed here", "remove it, or set them on this machine"),
        **refused("windowsOptions", "Windows containers are not run here", f"remove it, or {_CLUSTER}"),
    },
    "V1SecurityContext": {
        **supported("capabilities runAsGroup runAsNonRoot runAsUser"),
        **ignored(
            "allowPrivilegeEscalation appArmorProfile procMount readOnlyRootFilesystem seLinuxOptions seccompProfile",
            _NOT_SANDBOXED,
        ),
        **refused("privileged", "a process gets no more rights than the engine has", f"remove it, or {_CLUSTER}"),
        **refused("windowsOptions", "Windows containers are not run here", f"remove it, or {_CLUSTER}"),
    },
    "V1Capabilities": {
        **ignored("drop", _NOT_SANDBOXED),
        **refused("add", "a process gets no more rights than the engine has", f"remove it, or {_CLUSTER}"),
    },
    "V1Volume": {
        **supported("configMap downwardAPI emptyDir hostPath name projected secret"),
        **refused(
            "awsElasticBlockStore azureDisk azureFile cephfs cinder csi ephemeral fc flexVolume flocker "
            "gcePersistentDisk gitRepo glusterfs image iscsi nfs photonPersistentDisk "
            "portworxVolume quobyte rbd scaleIO storageos vsphereVolume",
            "volumes of a cluster are not mounted here",
            f"write a path of this machine into the command, or {_CLUSTER}",
        ),
        **refused(
            "persistentVolumeClaim",
            "volumes of a cluster are not mounted here",
            f"say which folder of this machine it is with --claim NAME=/folder, or {_CLUSTER}",
        ),
    },
    "V1EmptyDirVolumeSource": ignored(
        "medium mode sizeLimit", "it is a plain directory of the trial, on its disk and without limit"
    ),
    "V1ConfigMapVolumeSource": supported("items name optional") | ignored("defaultMode defaultUser", _NO_MODES),
    "V1SecretVolumeSource": supported("items optional secretName") | ignored("defaultMode defaultUser", _NO_MODES),
    "V1DownwardAPIVolumeSource": supported("items") | ignored("defaultMode defaultUser", _NO_MODES),
    "V1ProjectedVolumeSource": supported("sources") | ignored("defaultMode defaultUser", _NO_MODES),
    "V1VolumeProjection": {
        **supported("configMap downwardAPI secret"),
        **refused(
            "clusterTrustBundle podCertificate serviceAccountToken",
            "there is no cluster that could give it out",
            f"remove it, or {_CLUSTER}",
        ),
    },
    "V1ConfigMapProjection": supported("items name optional"),
    "V1SecretProjection": supported("items name optional"),
    "V1DownwardAPIProjection": supported("items"),
    "V1DownwardAPIVolumeFile": {
        **supported("fieldRef path"),
        **ignored("mode user", _NO_MODES),
        **refused("resourceFieldRef", "amounts are not written to files here", "give it in env instead"),
    },
    "V1KeyToPath": supported("key path") | ignored("mode user", _NO_MODES),
    "V1VolumeMount": {
        **supported("mountPath name subPath"),
        **ignored(
            "bindMountOptions mountPropagation readOnly recursiveReadOnly",
            "the files are copies that belong to the trial",
        ),
        **refused("subPathExpr", "its variables are not expanded here", "write subPath without variables"),
    },
}

# --- containers in their images --------------------------------------------------------------------------------------

_DEFAULTS = "the defaults of podman or docker hold"
_SHARED_NETWORK = "containers share the network of this machine, so a port that two of them listen on collides"

IMAGE_FIELDS: Final[Fields] = {
    "V1PodSpec": {
        **ignored("imagePullSecrets", "images are pulled with the logins of this account (podman login, docker login)"),
        **ignored("hostUsers shareProcessNamespace", "every container has processes of its own here"),
        **supported("hostNetwork"),
        **refused("hostAliases", "host names are not added here", "remove it, or use addresses"),
    },
    "V1Container": supported("image imagePullPolicy") | ignored("ports", _SHARED_NETWORK),
    "V1PodSecurityContext": {
        **supported("fsGroup supplementalGroups"),
        **ignored(
            "appArmorProfile fsGroupChangePolicy seLinuxChangePolicy seLinuxOptions seccompProfile "
            "supplementalGroupsPolicy",
            _DEFAULTS,
        ),
    },
    "V1SecurityContext": {
        **supported("allowPrivilegeEscalation privileged readOnlyRootFilesystem"),
        **ignored("appArmorProfile procMount seLinuxOptions seccompProfile", _DEFAULTS),
    },
    "V1Capabilities": supported("add drop"),
    "V1VolumeMount": {
        **supported("readOnly"),
        **ignored("bindMountOptions mountPropagation recursiveReadOnly", _DEFAULTS),
    },
}
"""Fields treated differently from those of a process."""

NODE_IMAGE_FIELDS: Final[Fields] = {
    "V1Container": {
        **supported("image"),
        **ignored("imagePullPolicy", "pyxis and Apptainer keep images as they do"),
    },
    "V1VolumeMount": IMAGE_FIELDS["V1VolumeMount"],
}
"""The same if nodes of Slurm run the images."""

_OF_NODE_IMAGES: Final[Fields] = {
    model: {**fields, **NODE_IMAGE_FIELDS.get(model, {})} for model, fields in FIELDS.items()
}
_OF_IMAGES: Final[Fields] = {model: {**fields, **IMAGE_FIELDS.get(model, {})} for model, fields in FIELDS.items()}


def fields_of(host: HostCapacity, *, addresses: str = "", are_named: bool = False) -> Fields:
    """Return the treatment of each field on a machine.

    Args:
        addresses: The variables that give programs of a job their addresses to listen on; empty if there are none.
        are_named: Whether the pods of the job have a network of their own.
    """
    fields = FIELDS
    if host.runs_images:
        fields = _OF_NODE_IMAGES if host.is_scheduled else _OF_IMAGES
    if are_named:
        ports = supported("ports")
    elif addresses:
        why = f"each job has free ports of its own here, in {addresses}; a port written into a command may collide"
        ports = ignored("ports", why)
    else:
        return fields
    return {**fields, "V1Container": {**fields["V1Container"], **ports}}


def check_job(
    template: Mapping[str, Any],
    path: str,
    *,
    host: HostCapacity,
    workspace: Path | None = None,
    kinds: Mapping[Kind, JobKind] | None = None,
) -> tuple[list[FieldError], list[str]]:
    """Return the errors and notices of a template for this machine.

    Args:
        template: The object, with or without placeholders; values with placeholders are not checked.
        path: Its path, such as `spec.trialTemplate.trialSpec`.
        workspace: Directory of relative paths; None if unknown, then they are not checked.
        kinds: The supported kinds of jobs, by default those that need no stored objects.

    Returns:
        Errors, and notices of one sentence each. Wrong types and unknown fields are for `check_job_schema`.
    """
    job = Part(template, path)
    findings, known = job.findings, JobKinds() if kinds is None else kinds
    kind = known.get(Kind.of(template))
    if kind is None:
        _refuse_kind(job, known)
        return findings.errors, findings.notices
    templates = kind.templates(template)
    are_named = host.names_pods and may_be_named(kind.kind, [pod_template for pod_template, _ in templates.values()])
    addresses = kind.variables_with_addresses(template) if isinstance(kind, KnowsPeers) else ""
    fields = fields_of(host, addresses=addresses, are_named=are_named)
    if kind.kind == JOB:
        _check_fields(job, job_schema().root, fields)
    kind.check(job)
    if isinstance(kind, KnowsPeers) and not are_named:
        kind.check_peer_names(job)
    for place, (pod_template, _) in templates.items():
        pod = Part(pod_template, f"{path}.{place}", findings)
        if kind.kind != JOB:
            findings.errors += check_value(pod_template, POD_TEMPLATE, pod.path)
            _check_fields(pod, POD_TEMPLATE, fields)
        check_card_share(pod["metadata.annotations"], host)
        check_pod_rules(pod["spec"], CommandEnvironment(host, workspace))
    check_requests_together(list(templates.values()), job["spec"], host)
    if isinstance(kind, Composed):
        findings.move(partial(_written_at, kind, template, f"{path}.", tuple(templates)))
    return findings.errors, findings.notices


def _written_at(kind: Composed, template: Mapping[str, Any], prefix: str, places: Sequence[str], path: str) -> str:
    """Return the path in the author's job for a path of a finding."""
    place = path.removeprefix(prefix)
    if not place.startswith(tuple(places)) or not places:
        return path
    written = kind.written_at(template, place)
    return f"{prefix}{written}" if written else ""


def _refuse_kind(job: Part, known: Mapping[Kind, JobKind]) -> None:
    kind, api_version = job["kind"], job["apiVersion"]
    if versions := [name.api_version for name in known if name.kind == kind.value]:
        cause = f"{kind.value} of apiVersion {shown(api_version.value)} is not known here"
        api_version.error(cause, f"write {' or '.join(versions)}", "job-api-version")
    elif misspelt := misspelt_kind(job.value, job.path):
        job.findings.errors += misspelt
    else:
        names = list(dict.fromkeys(name.kind for name in known))
        here = "which runs on this machine" if len(names) == 1 else "which run on this machine"
        remedy = f"use {', '.join(names)}, {here}, or submit the experiment to Kubernetes"
        kind.error(f"kind {kind.text or shown(kind.value)} needs a cluster", remedy, "job-kind-unsupported")


def _check_fields(part: Part, model: str, fields: Fields) -> None:
    """Look up every given field in the table, and descend into supported ones."""
    for item in part.items:
        _check_fields(item, model, fields)
    schema = job_schema().models
    for key, child in part.fields.items():
        if key not in schema[model].fields or not child.is_given:
            continue
        verdict = fields[model][key] if model in fields else None
        type_ = schema[model].fields[key].removeprefix("[]")
        if verdict is not None and verdict.effect is FieldEffect.IGNORED:
            if (key, child.value) != ("image", DRAFTED_IMAGE):
                child.notice(verdict.why)
        elif verdict is not None and verdict.effect is FieldEffect.REFUSED:
            child.error(verdict.why, verdict.remedy, "job-field-unsupported")
        elif type_ in schema:
            _check_fields(child, type_, fields)
