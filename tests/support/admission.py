"""Jobs that run on this machine, a machine to check them for, and what a check says about them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from katib.errors import FieldError
from katib.places.machine.admission import HostCapacity, check_job
from katib.places.machine.admission.host import GIB

PATH = "spec.trialTemplate.trialSpec"
HOST = HostCapacity(cpus=2, memory_bytes=4 * GIB, gpus=1, user_id=1000, group_id=1000, search_path=os.environ["PATH"])

Found = tuple[list[FieldError], list[str]]


def a_job(
    *, spec: Mapping[str, Any] | None = None, pod: Mapping[str, Any] | None = None, **container: Any
) -> dict[str, Any]:
    """Return a Job that runs here, with these fields of its spec, its pod and its only container; None removes one."""
    whole = {"name": "training", "command": ["sh", "-c", "echo loss=1"], **container}
    pod_spec = {
        "restartPolicy": "Never",
        "containers": [{k: v for k, v in whole.items() if v is not None}],
        **(pod or {}),
    }
    job_spec = {"template": {"spec": {k: v for k, v in pod_spec.items() if v is not None}}, **(spec or {})}
    return {"apiVersion": "batch/v1", "kind": "Job", "spec": job_spec}


def check(job: Mapping[str, Any], host: HostCapacity = HOST) -> Found:
    """Return errors and notices."""
    return check_job(job, PATH, host=host)


def errors_of(job: Mapping[str, Any], host: HostCapacity = HOST) -> list[str]:
    """Return errors as text, without the path of the template."""
    return [str(e).removeprefix(f"{PATH}.") for e in check(job, host)[0]]


def places_of(job: Mapping[str, Any], host: HostCapacity = HOST) -> list[tuple[str, str]]:
    """Return path, below the template, and origin of every error."""
    return [(e.path.removeprefix(f"{PATH}."), e.origin) for e in check(job, host)[0]]


def notices_of(job: Mapping[str, Any]) -> list[str]:
    """Return the notices of a Job without errors."""
    errors, notices = check(job)
    assert errors == []
    return [notice.replace(f"{PATH}.", "") for notice in notices]


def with_volume(source: dict[str, Any], mount_path: str, **container: Any) -> dict[str, Any]:
    """Return a Job whose container mounts a volume there."""
    mounts = [{"name": "v", "mountPath": mount_path}]
    return a_job_with_volume(source, mounts, container)


def a_job_with_volume(source: dict[str, Any], mounts: list[Any], container: dict[str, Any]) -> dict[str, Any]:
    """Return a Job with volume `v` and these mounts."""
    job = a_job(volumeMounts=mounts, **container)
    job["spec"]["template"]["spec"]["volumes"] = [{"name": "v", **source}]
    return job
