"""What changes in the table of fields when containers run in their images."""

from __future__ import annotations

from typing import Final

from katib.local.admission.fields import FIELDS, Fields, ignored, refused, supported
from katib.local.admission.host import HostCapacity

_DEFAULTS = "the defaults of podman or docker hold"
_SHARED_NETWORK = "containers share the network of this machine, so a port that two of them listen on collides"

IMAGE_FIELDS: Final[Fields] = {
    "V1PodSpec": {
        **ignored("imagePullSecrets", "images are pulled with the logins of this account (podman login, docker login)"),
        **ignored("hostUsers shareProcessNamespace", "every container has processes of its own here"),
        **supported("hostNetwork"),
        **refused("hostAliases", "host names are not added here", "remove it, or use addresses"),
    },
    "V1Container": {
        **supported("image imagePullPolicy"),
        **ignored("ports", _SHARED_NETWORK),
    },
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
"""Fields with another fate than for a process."""

_OF_IMAGES: Final[Fields] = {model: {**fields, **IMAGE_FIELDS.get(model, {})} for model, fields in FIELDS.items()}


def fields_of(host: HostCapacity, *, addresses: str = "", are_named: bool = False) -> Fields:
    """Return what becomes of each field on a machine.

    Args:
        host: The machine.
        addresses: The variables that tell programs of a job where to listen; empty when none do.
        are_named: Whether the pods of the job have a network of their own.
    """
    fields = _OF_IMAGES if host.runs_images else FIELDS
    if are_named:
        ports = supported("ports")
    elif addresses:
        why = f"each job has free ports of its own here, told in {addresses}; a port written into a command may collide"
        ports = ignored("ports", why)
    else:
        return fields
    return {**fields, "V1Container": {**fields["V1Container"], **ports}}
