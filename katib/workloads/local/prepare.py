"""From a Job's template to a pod that is ready to start: names, labels, directories, commands."""

from __future__ import annotations

import os
import secrets
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from katib.errors import FieldError, InvalidError, UnavailableError
from katib.runtime.objects import Object, ObjectStore
from katib.workloads.local.container import ContainerPlan, Role
from katib.workloads.local.directories import job_directory
from katib.workloads.local.environment import PodContext, container_command
from katib.workloads.local.pod import PodPlan
from katib.workloads.local.references import LocalObjects, PodIdentity
from katib.workloads.local.rewriting import Rewriter
from katib.workloads.local.tokens import Capacity, Request
from katib.workloads.local.volumes import TEMPLATE_PATH, Volumes

DEFAULT_GRACE_SECONDS = 30
INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"
INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
TRIAL_KIND = "Trial"

_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5

Rewrites = Callable[[Object], Mapping[str, str]]
"""For a job: absolute path prefixes as its containers know them, and the directory of the pod that stands for each."""


def no_rewrites(_job: Object) -> Mapping[str, str]:
    """Leave all paths as they are."""
    return {}


@dataclass(frozen=True, slots=True)
class Preparation:
    """What pods are made with.

    Attributes:
        root: Where jobs have their directories.
        workspace: For a job: the working directory of containers that name none.
        rewrites: Paths that lie in the pod's directory, besides its volumes.
        variables: Further variables of every container's environment.
    """

    store: ObjectStore
    root: Path
    workspace: Callable[[Object], Path]
    capacity: Capacity
    rewrites: Rewrites = no_rewrites
    variables: Mapping[str, str] = field(default_factory=dict)


def trial_name(job: Object) -> str:
    """Return the name of the Trial that controls a job, the job's own name when none does."""
    metadata = job["metadata"]
    owners = metadata.get("ownerReferences") or ()
    found = (o["name"] for o in owners if o.get("controller") and o.get("kind") == TRIAL_KIND)
    return str(next(found, metadata["name"]))


def prepare_pod(job: Object, index: int | None, tools: Preparation) -> PodPlan:
    """Create the directory of a new pod and resolve its commands. Reads ConfigMaps and Secrets from the store.

    A template that cannot run on this machine gives a plan whose `cannot_start` says why.

    Raises:
        UnavailableError: The store or the disk cannot be used now.
    """
    metadata, template = job["metadata"], job["spec"]["template"]
    spec = template.get("spec") or {}
    identity = _identity(job, template, index)
    directory = job_directory(tools.root, metadata["namespace"], metadata["name"]) / identity.name
    request, problem = Request(), ""
    containers: tuple[ContainerPlan, ...] = ()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        request = _granted_request(template, tools.capacity)
        containers = _containers(job, spec, identity, directory, index, tools)
    except OSError as error:
        raise UnavailableError(
            f"cannot create {directory}: {error.strerror}; free space or choose another directory"
        ) from error
    except InvalidError as error:
        problem = "; ".join(map(str, error.errors))
    return PodPlan(
        name=identity.name,
        index=index,
        uid=identity.uid,
        labels=dict(identity.labels),
        directory=directory,
        containers=containers,
        grace_seconds=spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS),
        request=request,
        cannot_start=problem,
    )


def _identity(job: Object, template: Mapping[str, Any], index: int | None) -> PodIdentity:
    metadata = job["metadata"]
    stem = metadata["name"] if index is None else f"{metadata['name']}-{index}"
    suffix = "".join(secrets.choice(_SUFFIX_ALPHABET) for _ in range(_SUFFIX_LENGTH))
    name = f"{stem}-{suffix}"
    own = template.get("metadata") or {}
    marks = {} if index is None else {INDEX_ANNOTATION: str(index)}
    uid = metadata.get("uid", "")
    owner = {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": metadata["name"],
        "controller-uid": uid,
        "job-name": metadata["name"],
    }
    return PodIdentity(
        name=name,
        namespace=metadata["namespace"],
        uid=str(uuid.uuid4()),
        hostname=name if index is None else stem,
        labels={**(own.get("labels") or {}), **owner, **marks},
        annotations={**(own.get("annotations") or {}), **marks},
        service_account=(template.get("spec") or {}).get("serviceAccountName", "default"),
    )


def _granted_request(template: Mapping[str, Any], capacity: Capacity) -> Request:
    try:
        request = Request.of_template(template)
    except ValueError as error:
        raise _invalid("resources", str(error), "write quantities such as 500m or 2Gi", "quantity") from error
    if excess := request.excess_over(capacity):
        raise _invalid("containers", excess, "lower the resource requests", "resources-exceed-machine")
    return request


def _containers(
    job: Object,
    spec: Mapping[str, Any],
    identity: PodIdentity,
    directory: Path,
    index: int | None,
    tools: Preparation,
) -> tuple[ContainerPlan, ...]:
    objects = LocalObjects(tools.store, identity.namespace)
    volumes = Volumes(spec, directory, objects, identity)
    further = {prefix: directory / name for prefix, name in tools.rewrites(job).items()}
    for target in further.values():
        target.mkdir(parents=True, exist_ok=True)
    init, mains = spec.get("initContainers") or (), spec.get("containers") or ()
    context = PodContext(
        identity=identity,
        objects=objects,
        capacity=tools.capacity,
        inherited=dict(os.environ),
        ours={**tools.variables, "KATIB_TRIAL_NAME": trial_name(job), "KATIB_TRIAL_DIR": str(directory)},
        forced={} if index is None else {INDEX_VARIABLE: str(index)},
        containers=(*init, *mains),
    )
    restart, workspace = spec.get("restartPolicy") == "OnFailure", tools.workspace(job)
    placed = [(c, f"{TEMPLATE_PATH}.initContainers[{i}]", _init_role(c)) for i, c in enumerate(init)]
    placed += [(c, f"{TEMPLATE_PATH}.containers[{i}]", Role.MAIN) for i, c in enumerate(mains)]
    plans: list[ContainerPlan] = []
    errors: list[FieldError] = []
    for container, path, role in placed:
        try:
            rewriter = volumes.rewriter(container, path, further)
            plans.append(_container_plan(container, path, role, context, rewriter, workspace, restart=restart))
        except InvalidError as error:
            errors += error.errors
    if errors:
        raise InvalidError(errors)
    return tuple(plans)


def _container_plan(
    container: Mapping[str, Any],
    path: str,
    role: Role,
    context: PodContext,
    rewriter: Rewriter,
    workspace: Path,
    *,
    restart: bool,
) -> ContainerPlan:
    command = container_command(container, path, context, rewriter)
    return ContainerPlan(
        role=role,
        command=command,
        directory=workspace / command.working_directory,
        restart_on_failure=restart,
        restart_always=role is Role.SIDECAR,
    )


def _init_role(container: Mapping[str, Any]) -> Role:
    return Role.SIDECAR if container.get("restartPolicy") == "Always" else Role.INIT


def _invalid(field: str, cause: str, remedy: str, origin: str) -> InvalidError:
    return InvalidError([FieldError(f"{TEMPLATE_PATH}.{field}", cause, remedy, origin)])
