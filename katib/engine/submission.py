"""The gate of one machine: what its collectors, its processes and its size allow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from katib.api.algorithms import AlgorithmCatalog
from katib.api.types import CollectorKind
from katib.errors import FieldError
from katib.homes.submission import Gate
from katib.templates.source import ConfigMapReader
from katib.workloads.local.admission import HostCapacity, check_job

COLLECTORS = (CollectorKind.STDOUT, CollectorKind.FILE, CollectorKind.PUSH)
"""Kinds of metrics collectors that run on one machine."""


def local_gate(
    catalog: AlgorithmCatalog,
    capacity: HostCapacity,
    config_maps: ConfigMapReader,
    on_algorithm: Callable[[str], None] = lambda _name: None,
) -> Gate:
    """Return the gate of a machine.

    Args:
        catalog: Algorithms that are offered.
        capacity: What trials may ask for.
        config_maps: Finds a stored ConfigMap.
        on_algorithm: Told which algorithm a document asks for.
    """

    def check_object(
        source: Mapping[str, Any], path: str, workspace: Path | None
    ) -> tuple[list[FieldError], list[str]]:
        return check_job(dict(source), path, host=capacity, workspace=workspace)

    return Gate(catalog, config_maps, collectors=COLLECTORS, check_object=check_object, on_algorithm=on_algorithm)
