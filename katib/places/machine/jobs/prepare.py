"""From a pod as its job wants it to a pod that is ready to start: names, labels, directories, commands.

On disk jobs and their pods are in `root/<namespace>/<job>/<pod>/`. A pod that takes the place of one of the same name
has a directory with a number behind it, so that the output of the earlier one stays. For a container that runs in its
image nothing is rewritten: all that it knows is mounted.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from katib.engine.runtime.objects import Key, Object, ObjectStore
from katib.errors import FieldError, InvalidError, UnavailableError, invalid
from katib.model.checkpoints import DIRECTORY_VARIABLE
from katib.model.files.directories import make_below
from katib.model.names import SEED_VARIABLE, SUFFIX_ALPHABET, trial_seed
from katib.places.machine.jobs.dependencies import (
    JobOwner,
    JobSettings,
    Machine,
    PodMetrics,
    Provision,
    checkpoint_container,
)
from katib.places.machine.jobs.kind import NewPod, PodStart
from katib.places.machine.jobs.run import JobRun
from katib.places.machine.pods.environment import (
    PodContext,
    Rewriter,
    container_command,
)
from katib.places.machine.pods.plans import ContainerPlan, ContainerRole, PodPlan, read_note
from katib.places.machine.pods.references import LocalObjects, PodIdentity, Volumes
from katib.places.machine.pods.requests import VISIBLE_CARDS, Capacity, Request

if TYPE_CHECKING:
    from katib.places.machine.pods.image_runs import ImageRun

DEFAULT_GRACE_SECONDS = 30
TRIAL_KIND = "Trial"

_EARLIER_NOTE = "job.json"
"""The file in the directory of a job in which earlier versions kept its uid."""
_SUFFIX_LENGTH = 5
_RANDOM = random.SystemRandom()  # whatever a program that embeds us seeds
_OWN_WORKSPACE = "workspace"
_WRITES_PROGRAM = re.compile(r'printf "%s" "\$SCRIPT" > "[^$/]')
"""The Kubeflow SDK's way to carry a function in a command: it is written to a file beside which it is run."""


@dataclass(frozen=True, slots=True)
class Preparation:
    """The tools for making pods; the store has the ConfigMaps and Secrets that they refer to."""

    store: ObjectStore
    machine: Machine
    settings: JobSettings
    owner: JobOwner
    metrics: PodMetrics


def begun_by(directory: Path) -> str | None:
    """Return the uid of the job that last began to run here; None when none did, or its files are gone."""
    with contextlib.suppress(OSError, ValueError, LookupError):
        return str(json.loads((directory / _EARLIER_NOTE).read_text())["uid"])
    for pod in directory.glob("*/"):
        with contextlib.suppress(OSError, ValueError, LookupError):
            return str(read_note(pod)["job"])
    return None


def clear_directory(directory: Path) -> None:
    """Remove the files of an earlier run or an older job of that name.

    Raises:
        UnavailableError: The disk cannot be written.
    """
    try:
        if directory.exists():
            shutil.rmtree(directory)
    except OSError as error:
        cause = f"cannot write {directory}: {error.strerror}"
        raise UnavailableError(f"{cause}; free space or change its rights") from error


def trial_name(job: Object) -> str:
    """Return the name of the Trial that controls a job, the job's own name when none does."""
    return trial_owner(job) or str(job["metadata"]["name"])


def trial_owner(job: Object) -> str | None:
    """Return the name of the Trial that controls a job; None if there is none."""
    for owner in job["metadata"].get("ownerReferences") or ():
        if owner.get("controller") and owner.get("kind") == TRIAL_KIND:
            return str(owner["name"])
    return None


def prepare_pod(run: JobRun, wanted: NewPod, start: PodStart, tools: Preparation) -> PodPlan:
    """Create the directory of a new pod and resolve its commands. Reads ConfigMaps and Secrets from the store.

    A template that cannot run on this machine gives a plan whose `cannot_start` says why.

    Raises:
        UnavailableError: The store or the disk cannot be used now.
    """
    if tools.machine.place is not None:
        placement = tools.owner.placement(run.job, wanted.path)
        wanted = replace(wanted, annotations={**wanted.annotations, **placement})
    identity, provision = _identity(run.job, wanted), tools.owner.provision(run.job)
    directory = wanted_directory = run.directory / identity.name
    numbers = itertools.count(2)
    while directory.exists():  # of an earlier pod of this name
        directory = wanted_directory.with_name(f"{identity.name}.{next(numbers)}")
    request, problem = Request(), ""
    containers: tuple[ContainerPlan, ...] = ()
    spec, checkpoint = wanted.template.get("spec") or {}, provision.checkpoint
    is_kept = run.is_kept or (checkpoint is not None and checkpoint.is_kept and tools.machine.place is None)
    try:
        make_below(tools.settings.root, directory)
        if wanted.files:
            _write_files(wanted.files, directory)
        request = _granted_request(wanted, tools.machine.capacity)
        containers = _containers(run, wanted, identity, directory, tools, provision)
        if checkpoint is not None:
            containers = (checkpoint_container(checkpoint, run.directory), *containers)
    except OSError as error:
        raise UnavailableError(
            f"cannot create {directory}: {error.strerror}; free space or choose another directory"
        ) from error
    except InvalidError as error:
        problem = "; ".join(map(str, error.errors))
    return PodPlan(
        name=identity.name,
        index=start.index,
        role=start.role,
        after=start.after,
        uid=identity.uid,
        labels=dict(identity.labels),
        directory=directory,
        containers=containers,
        grace_seconds=spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS),
        request=request,
        cannot_start=problem,
        annotations=dict(identity.annotations),
        images={
            container.get("name", ""): container.get("image", "")
            for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
        },
        holder=f"experiment {provision.experiment}" if provision.experiment else f"job {Key.of(run.job).name}",
        group=run.uid if is_kept else "",  # what it prints is in its log then, however this engine ends
        slots=wanted.slots,
        checkpoint=None if checkpoint is None else checkpoint.directory,
    )


def impossible_pod(run: JobRun, start: PodStart, problem: str) -> PodPlan:
    """Return the plan of a pod that its kind cannot even describe, so that the job fails and says why."""
    index = "" if start.index is None else str(start.index)
    name, uid = "-".join(filter(None, (run.job["metadata"]["name"], start.role, index))), str(uuid.uuid4())
    return PodPlan(name, start.index, uid, {}, run.directory / name, (), 0.0, Request(), problem, role=start.role)


def _write_files(files: Mapping[str, str], directory: Path) -> None:
    for name, text in files.items():
        path = directory / name
        make_below(directory, path.parent)
        path.write_text(text)
        if text.startswith("#!"):
            path.chmod(0o755)


def _identity(job: Object, wanted: NewPod) -> PodIdentity:
    name = wanted.name
    if name.endswith("-"):
        name += "".join(_RANDOM.choices(SUFFIX_ALPHABET, k=_SUFFIX_LENGTH))
    own = wanted.template.get("metadata") or {}
    return PodIdentity(
        name=name,
        namespace=job["metadata"]["namespace"],
        uid=str(uuid.uuid4()),
        hostname=wanted.hostname or name,
        aliases=wanted.aliases,
        labels={**(own.get("labels") or {}), **wanted.labels},
        annotations={**(own.get("annotations") or {}), **wanted.annotations},
        service_account=(wanted.template.get("spec") or {}).get("serviceAccountName", "default"),
    )


def _granted_request(wanted: NewPod, capacity: Capacity) -> Request:
    path = f"{wanted.path}.spec"
    try:
        request = Request.of_template(wanted.template)
    except ValueError as error:
        raise invalid(
            f"{path}.resources", str(error), "write quantities such as 500m or 2Gi, and whole GPUs", "quantity"
        ) from error
    if not request.is_empty and (excess := request.excess_over(capacity)):
        raise invalid(f"{path}.containers", excess, "lower the resource requests", "resources-exceed-machine")
    return request


def _containers(
    run: JobRun, wanted: NewPod, identity: PodIdentity, directory: Path, tools: Preparation, provision: Provision
) -> tuple[ContainerPlan, ...]:
    collection, (workspace, checkpoint, _) = tools.metrics.collection(run.job, identity.labels), provision
    objects = LocalObjects(tools.store, identity.namespace)
    capacity, in_images = tools.machine.capacity, tools.machine.runs_images
    any_user = tools.machine.images is not None
    spec, spec_path = wanted.template.get("spec") or {}, f"{wanted.path}.spec"
    volumes = Volumes(spec, spec_path, directory, objects, identity, any_user=any_user)
    further = {prefix: directory / name for prefix, name in {**collection.rewrites, **wanted.rewrites}.items()}
    for target in (directory, *further.values()):
        make_below(directory, target)
        if any_user:
            target.chmod(0o777)  # a program of another user writes there; the directories above are the engine's own
    trial = trial_name(run.job)
    ours = {
        **wanted.defaults,
        **collection.variables,
        "KATIB_TRIAL_NAME": trial,
        "KATIB_TRIAL_DIR": str(directory),
        SEED_VARIABLE: str(trial_seed(identity.namespace, trial)),
    }
    if checkpoint is not None:
        further[checkpoint.mount_path] = checkpoint.directory
        ours[DIRECTORY_VARIABLE] = checkpoint.mount_path if in_images else str(checkpoint.directory)
    init, mains = spec.get("initContainers") or (), spec.get("containers") or ()
    inherited = tools.settings.inherited if tools.machine.inherits(identity.annotations) else {}
    if capacity.gpus:  # which of them a pod sees is known when it starts
        inherited = {name: value for name, value in inherited.items() if name != VISIBLE_CARDS}
    context = PodContext(
        identity=identity,
        objects=objects,
        capacity=capacity,
        inherited=inherited,
        ours=ours,
        forced=wanted.variables,
        containers=(*init, *mains),
        processes=wanted.processes,
        spec=spec,
        directory=directory,
        workspace=workspace,
        paths=further,
        visible=tools.settings.visible,
        network=run.network,
        labels={"katib.namespace": identity.namespace, "katib.trial": trial, "katib.pod": identity.name},
    )
    plans: list[ContainerPlan] = []
    errors: list[FieldError] = []
    for container, path, role in _in_order(spec, spec_path, collection.companions):
        try:
            mounted, outside = volumes.mounted(container, path)
            image: ImageRun | None = None
            start = workspace
            if in_images:
                from katib.places.machine.jobs.image_containers import image_container

                command, image = image_container(container, path, context, mounted)
                if tools.machine.node_images is not None:  # on a node the command runs the image
                    command, image = tools.machine.node_images(image, inherited, container), None
            else:
                command = container_command(container, path, context, Rewriter({**further, **mounted}))
                start = _start(container, workspace, directory)
            plans.append(
                ContainerPlan(
                    role=role,
                    command=command,
                    directory=start / command.working_directory,
                    restart_on_failure=wanted.restarts_on_failure,
                    restart_always=role is ContainerRole.SIDECAR and container.get("restartPolicy") == "Always",
                    volumes=outside,
                    image=image,
                )
            )
        except InvalidError as error:
            errors += error.errors
    if errors:
        raise InvalidError(errors)
    return tuple(plans)


def _in_order(
    spec: Mapping[str, Any], spec_path: str, companions: Sequence[tuple[str, Mapping[str, Any]]]
) -> Iterator[tuple[Mapping[str, Any], str, ContainerRole]]:
    """Yield the containers of a pod in the order in which they start, each with its path and its role."""
    for i, container in enumerate(spec.get("initContainers") or ()):
        is_sidecar = container.get("restartPolicy") == "Always"
        yield container, f"{spec_path}.initContainers[{i}]", ContainerRole.SIDECAR if is_sidecar else ContainerRole.INIT
    for path, container in companions:
        yield container, path, ContainerRole.SIDECAR
    for i, container in enumerate(spec.get("containers") or ()):
        yield container, f"{spec_path}.containers[{i}]", ContainerRole.MAIN


def _start(container: Mapping[str, Any], workspace: Path, directory: Path) -> Path:
    """Return the directory that relative paths of a container start from.

    It is the workspace; an empty one of the pod for a command that first writes the program that it runs, as the
    Kubeflow SDK has it: in the workspace it would replace a file of the user, or the program of another trial.
    """
    if not any(map(_WRITES_PROGRAM.search, (*(container.get("command") or ()), *(container.get("args") or ())))):
        return workspace
    own = directory / _OWN_WORKSPACE
    own.mkdir(exist_ok=True)
    return own
