"""Every field of a Job and what becomes of it when its pods are processes of this machine.

The table is the promise that nothing is ignored silently. It covers each part of a Job that is reached through
supported fields; a test compares it with the schema, so a field of a newer Kubernetes has to be given a line here.
Fields that depend on their value are supported here and judged by a rule in this package.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final


class Effect(Enum):
    """What becomes of a field."""

    SUPPORTED = auto()
    IGNORED = auto()
    REFUSED = auto()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The fate of one field.

    Attributes:
        effect: Supported, ignored with a notice, or refused with an error.
        why: For an ignored field, a sentence without full stop; for a refused one, the cause.
        remedy: For a refused field.
    """

    effect: Effect
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


def _supported(names: str) -> dict[str, Verdict]:
    return dict.fromkeys(names.split(), Verdict(Effect.SUPPORTED))


def _ignored(names: str, why: str) -> dict[str, Verdict]:
    return dict.fromkeys(names.split(), Verdict(Effect.IGNORED, why))


def _refused(names: str, why: str, remedy: str) -> dict[str, Verdict]:
    return dict.fromkeys(names.split(), Verdict(Effect.REFUSED, why, remedy))


WHOLLY_SUPPORTED: Final = frozenset(
    """
    V1ConfigMapEnvSource V1ConfigMapKeySelector V1EnvFromSource V1EnvVar V1HostPathVolumeSource
    V1ObjectFieldSelector V1PodFailurePolicy V1PodFailurePolicyOnExitCodesRequirement V1PodFailurePolicyRule
    V1PodFailurePolicyOnPodConditionsPattern V1PodTemplateSpec V1ResourceFieldSelector V1SecretEnvSource
    V1SecretKeySelector V1SuccessPolicy V1SuccessPolicyRule
    """.split()  # noqa: SIM905  # a table of names reads better without quotes
)
"""Parts of which every field works."""

FIELDS: Final[dict[str, dict[str, Verdict]]] = {
    "V1Job": {
        **_supported("apiVersion kind metadata spec"),
        **_ignored("status", _SET_BY_KATIB),
    },
    "V1ObjectMeta": {
        **_supported("annotations labels"),
        **_ignored(
            "creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers generateName generation "
            "managedFields name namespace ownerReferences resourceVersion selfLink uid",
            _SET_BY_KATIB,
        ),
    },
    "V1JobSpec": {
        **_supported(
            "activeDeadlineSeconds backoffLimit backoffLimitPerIndex completionMode completions managedBy "
            "maxFailedIndexes parallelism podFailurePolicy podReplacementPolicy successPolicy suspend template "
            "ttlSecondsAfterFinished"
        ),
        **_ignored("manualSelector selector", "pods of a job are known without a selector here"),
        **_ignored("scheduling", _NOT_PLACED),
    },
    "V1PodSpec": {
        **_supported(
            "containers initContainers os restartPolicy securityContext serviceAccountName "
            "terminationGracePeriodSeconds volumes"
        ),
        **_ignored(
            "affinity nodeName nodeSelector overhead preemptionPolicy priority priorityClassName runtimeClassName "
            "schedulerName schedulingGroup tolerations topologySpreadConstraints",
            _NOT_PLACED,
        ),
        **_ignored("imagePullSecrets", _NO_IMAGE),
        **_ignored("automountServiceAccountToken serviceAccount", "there is no cluster to have an account at"),
        **_ignored(
            "dnsConfig dnsPolicy enableServiceLinks hostname hostnameOverride setHostnameAsFQDN subdomain", _NO_NAMES
        ),
        **_ignored("evictionResponders readinessGates", "nothing evicts pods or sends traffic to them here"),
        **_ignored("hostUsers shareProcessNamespace", _NO_CONTAINER),
        **_refused("hostIPC hostNetwork hostPID", "sharing a namespace of the host is not allowed here", "remove it"),
        **_refused("hostAliases", "host names cannot be changed here", "remove it, or add them to /etc/hosts"),
        **_refused(
            "activeDeadlineSeconds", "a deadline for one pod is not kept here", "move it to the spec of the Job"
        ),
        **_refused("resources", "resources of a whole pod are not counted here", "give them in its containers"),
        **_refused("resourceClaims", "claimed devices are not known here", f"request nvidia.com/gpu, or {_CLUSTER}"),
        **_refused("ephemeralContainers schedulingGates", "a new pod cannot have it", "remove it"),
    },
    "V1Container": {
        **_supported("args command env envFrom name resources restartPolicy securityContext volumeMounts workingDir"),
        **_ignored("image imagePullPolicy", _NO_IMAGE),
        **_ignored("livenessProbe readinessProbe startupProbe", _NO_PROBE),
        **_ignored("ports", "no port is mapped here, and trials that listen on the same number at once collide"),
        **_ignored("stdin stdinOnce tty", "a trial has no terminal and reads an empty input"),
        **_ignored("terminationMessagePath terminationMessagePolicy", "the log is what is kept of a process"),
        **_ignored("resizePolicy", "resources of a running process do not change"),
        **_refused("lifecycle", "hooks are not run here", "call them in the command itself"),
        **_refused("restartPolicyRules", "rules for a single container are not kept here", "use the podFailurePolicy"),
        **_refused("volumeDevices", "block devices are not provided here", f"remove it, or {_CLUSTER}"),
    },
    "V1EnvVarSource": {
        **_supported("configMapKeyRef fieldRef resourceFieldRef secretKeyRef"),
        **_refused("fileKeyRef", "values from files of a volume are not read here", "use configMapKeyRef"),
    },
    "V1ResourceRequirements": {
        **_supported("limits requests"),
        **_refused("claims", "claimed devices are not known here", f"request nvidia.com/gpu, or {_CLUSTER}"),
    },
    "V1PodOS": {
        **_supported("name"),
    },
    "V1PodSecurityContext": {
        **_supported("runAsGroup runAsNonRoot runAsUser"),
        **_ignored(
            "appArmorProfile fsGroup fsGroupChangePolicy seLinuxChangePolicy seLinuxOptions seccompProfile "
            "supplementalGroups supplementalGroupsPolicy",
            _NOT_SANDBOXED,
        ),
        **_refused("sysctls", "kernel settings are not changed here", "remove it, or set them on this machine"),
        **_refused("windowsOptions", "Windows containers are not run here", f"remove it, or {_CLUSTER}"),
    },
    "V1SecurityContext": {
        **_supported("capabilities runAsGroup runAsNonRoot runAsUser"),
        **_ignored(
            "allowPrivilegeEscalation appArmorProfile procMount readOnlyRootFilesystem seLinuxOptions seccompProfile",
            _NOT_SANDBOXED,
        ),
        **_refused("privileged", "a process gets no more rights than the engine has", f"remove it, or {_CLUSTER}"),
        **_refused("windowsOptions", "Windows containers are not run here", f"remove it, or {_CLUSTER}"),
    },
    "V1Capabilities": {
        **_ignored("drop", _NOT_SANDBOXED),
        **_refused("add", "a process gets no more rights than the engine has", f"remove it, or {_CLUSTER}"),
    },
    "V1Volume": {
        **_supported("configMap downwardAPI emptyDir hostPath name projected secret"),
        **_refused(
            "awsElasticBlockStore azureDisk azureFile cephfs cinder csi ephemeral fc flexVolume flocker "
            "gcePersistentDisk gitRepo glusterfs image iscsi nfs persistentVolumeClaim photonPersistentDisk "
            "portworxVolume quobyte rbd scaleIO storageos vsphereVolume",
            "volumes of a cluster are not mounted here",
            f"write a path of this machine into the command, or {_CLUSTER}",
        ),
    },
    "V1EmptyDirVolumeSource": {
        **_ignored("medium mode sizeLimit", "it is a plain directory of the trial, on its disk and without limit"),
    },
    "V1ConfigMapVolumeSource": {
        **_supported("items name optional"),
        **_ignored("defaultMode defaultUser", _NO_MODES),
    },
    "V1SecretVolumeSource": {
        **_supported("items optional secretName"),
        **_ignored("defaultMode defaultUser", _NO_MODES),
    },
    "V1DownwardAPIVolumeSource": {
        **_supported("items"),
        **_ignored("defaultMode defaultUser", _NO_MODES),
    },
    "V1ProjectedVolumeSource": {
        **_supported("sources"),
        **_ignored("defaultMode defaultUser", _NO_MODES),
    },
    "V1VolumeProjection": {
        **_supported("configMap downwardAPI secret"),
        **_refused(
            "clusterTrustBundle podCertificate serviceAccountToken",
            "there is no cluster that could give it out",
            f"remove it, or {_CLUSTER}",
        ),
    },
    "V1ConfigMapProjection": _supported("items name optional"),
    "V1SecretProjection": _supported("items name optional"),
    "V1DownwardAPIProjection": _supported("items"),
    "V1DownwardAPIVolumeFile": {
        **_supported("fieldRef path"),
        **_ignored("mode user", _NO_MODES),
        **_refused("resourceFieldRef", "amounts are not written to files here", "give it in env instead"),
    },
    "V1KeyToPath": {
        **_supported("key path"),
        **_ignored("mode user", _NO_MODES),
    },
    "V1VolumeMount": {
        **_supported("mountPath name subPath"),
        **_ignored(
            "bindMountOptions mountPropagation readOnly recursiveReadOnly",
            "the files are copies that belong to the trial",
        ),
        **_refused("subPathExpr", "its variables are not expanded here", "write subPath without variables"),
    },
}
