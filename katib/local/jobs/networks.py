"""Which network the pods of a job have when they run in their images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from katib.api.types import CollectorKind
from katib.local.findings import mapping, mappings
from katib.local.jobs.batch.job import JOB
from katib.local.jobs.kind import Address
from katib.local.pods.images import HOST_NETWORK, ImageRuntime
from katib.runtime.objects import Kind, Object

PUSHES_NOTHING: Final = frozenset({CollectorKind.STDOUT, CollectorKind.NONE})
"""Collectors whose programs have nothing to push and nobody to answer: `katib.report` prints there."""

_UID_DIGITS = 8


def network_of(
    job: Object,
    kind: Kind,
    templates: Sequence[Mapping[str, Any]],
    images: ImageRuntime | None,
    *,
    needs_machine: bool,
) -> str:
    """Return the network of the pods of a job: one of its own, in which they have names, or that of the machine.

    Args:
        job: The job.
        kind: Pods of a Job do not know each other.
        templates: Of its pods. Containers of one pod reach each other at 127.0.0.1, and each has a network address of
            its own: so where several run side by side, all are on the machine's network.
        images: What runs them; None: they are processes.
        needs_machine: Whether something in the pods calls the engine, or is called by it, at 127.0.0.1.
    """
    if images is None or not images.has_names or needs_machine or not may_be_named(kind, templates):
        return HOST_NETWORK
    return f"katib-{job['metadata']['name']}-{job['metadata']['uid'][:_UID_DIGITS]}"


def may_be_named(kind: Kind, templates: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether pods of a job can have names in a network of their own, as far as the job says it.

    Args:
        kind: Of the job.
        templates: Of its pods; may be malformed.
    """
    return kind != JOB and not any(map(_is_on_host, templates))


def _is_on_host(template: Mapping[str, Any]) -> bool:
    spec = mapping(template.get("spec"))
    if spec.get("hostNetwork"):
        return True
    sidecars = [c for _, c in mappings(spec.get("initContainers")) if c.get("restartPolicy") == "Always"]
    return len(list(mappings(spec.get("containers")))) + len(sidecars) > 1


class NamedWiring:
    """Pods that have a network of their own: their names and the ports of a cluster. Fits `Wiring`."""

    def address(self, name: str, port: int, _port_name: str = "") -> Address:
        """Return the name and the port as they are."""
        return Address(name, port)

    def host(self, name: str) -> str:
        """Return the name."""
        return name

    def release(self) -> None:
        """Keep everything: names are free as soon as their containers are gone."""
