"""The environment, command and arguments of a container. No processes, no clock; reads ConfigMaps and Secrets.

A container inherits the environment of the engine (`inherited_environment`), so that `python` is the user's python,
then come `HOSTNAME` and our variables, then `envFrom`, then `env` in its order; later ones win. `$(VAR)` sees
`envFrom` and the entries of `env` above it, never the inherited part: on a cluster it would not either.

Ours are `KATIB_TRIAL_NAME`, `KATIB_TRIAL_DIR` (a directory of this pod, kept with its logs), additions of the engine
and `PYTHONUNBUFFERED=1` unless it is set: without it Python buffers its output to a pipe, 8 kB at a
time, and metrics would come late, or never when the trial is stopped early.

A container that requests CPUs has to use as many threads (`thread_variables`): libraries of linear algebra take all
cores of the machine otherwise, and trials that share it slow each other down.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING
from pathlib import Path
from typing import Any

from katib.errors import FieldError, InvalidError, invalid
from katib.model.quantities import parse_quantity
from katib.places.machine.pods.references import (
    CONFIG_MAP,
    SECRET,
    LocalObjects,
    PodIdentity,
    resource_value,
)
from katib.places.machine.pods.requests import Capacity
from katib.places.machine.processes.proc import ENGINE_ID, PROCESS_ID
from katib.wire.rpc import OUR_VERBOSITY_VARIABLE, VERBOSITY_VARIABLE

HOST_NETWORK = "host"


_THREADS = "OMP_NUM_THREADS"
_OTHER_THREADS = (
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
_PROCESSES = "PET_NPROC_PER_NODE"
"""How many processes torchrun starts."""


@dataclass(frozen=True, slots=True)
class ContainerCommand:
    """A command: program and arguments, the whole environment, and `workingDir` as given, possibly empty."""

    name: str
    argv: tuple[str, ...]
    env: dict[str, str]
    working_directory: str


@dataclass(frozen=True, slots=True)
class PodContext:
    """The common context of the containers of a pod.

    Attributes:
        identity: Names and labels for fieldRef.
        objects: Reads ConfigMaps and Secrets.
        capacity: The machine, for resourceFieldRef without a limit.
        inherited: The engine's environment.
        ours: Variables that this product adds; the user's win.
        forced: By the name of a container, variables that the user cannot change; they are known to `$(VAR)`.
        containers: All containers of the template, for resourceFieldRef by name.
        processes: How many processes of a container of the template share its request.
        spec: Of the pod; like the next attributes, for containers that run in their images.
        directory: Of the pod on disk, which they know by the same path.
        workspace: The directory from which the experiment was submitted, likewise.
        paths: By the path as a container knows it, the directory that stands for it, volumes apart.
        visible: Files of ours that a variable may name; those that are named are mounted at their own paths.
        network: `host`, or the name of a network of the runtime.
    """

    identity: PodIdentity
    objects: LocalObjects
    capacity: Capacity
    inherited: Mapping[str, str]
    ours: Mapping[str, str]
    forced: Mapping[str, Mapping[str, str]]
    containers: Sequence[Mapping[str, Any]]
    processes: int = 1
    spec: Mapping[str, Any] = field(default_factory=dict)
    directory: Path = Path()
    workspace: Path = Path()
    paths: Mapping[str, Path] = field(default_factory=dict)
    visible: tuple[Path, ...] = ()
    network: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


def container_command(
    container: Mapping[str, Any], path: str, context: PodContext, rewriter: Rewriter
) -> ContainerCommand:
    """Return the command of a container.

    Raises:
        InvalidError: It has no command, or a value it needs is missing; all such errors at once.
    """
    declared = declared_variables(container, path, context)
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    if not container.get("command"):
        cause = f'container "{container.get("name", "")}" has no command, and the entry point of its image is not known'
        raise invalid(f"{path}.command", cause, "write the command out", "command-missing")
    seen = {**declared, **context.forced.get(container.get("name", ""), {})}
    env = {"PYTHONUNBUFFERED": "1", **context.inherited, "HOSTNAME": context.identity.hostname, **context.ours}
    env |= {name: rewriter.rewrite(value) for name, value in seen.items()}
    if container.get("resources"):
        env |= thread_variables(container, path, context, env)
    return ContainerCommand(
        name=container.get("name", ""),
        argv=tuple([rewriter.rewrite(expand(str(word), seen)) for word in words]),
        env=env,
        working_directory=rewriter.rewrite(container.get("workingDir") or ""),
    )


def declared_variables(container: Mapping[str, Any], path: str, context: PodContext) -> dict[str, str]:
    """Return the variables of `envFrom` and `env`, in order. Raises as `container_command`."""
    variables: dict[str, str] = {}
    forced = context.forced.get(container.get("name", ""), {})
    errors: list[FieldError] = []
    for position, source in enumerate(container.get("envFrom") or ()):
        try:
            variables |= _from_source(source, f"{path}.envFrom[{position}]", context)
        except InvalidError as error:
            errors += error.errors
    for position, entry in enumerate(container.get("env") or ()):
        try:
            value = _entry_value(entry, f"{path}.env[{position}]", container, context, {**variables, **forced})
        except InvalidError as error:
            errors += error.errors
            continue
        if value is not None:
            variables[entry["name"]] = value
    if errors:
        raise InvalidError(errors)
    return variables


def thread_variables(
    container: Mapping[str, Any], path: str, context: PodContext, environment: Mapping[str, str]
) -> dict[str, str]:
    """Return how many threads each process of a container is to use: as many as it requests CPUs, rounded up.

    Nothing without a request, and nothing that the user has set; the other libraries follow `OMP_NUM_THREADS`.

    Raises:
        InvalidError: Its request is not a quantity.
    """
    resources = container.get("resources") or {}
    amounts = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    processes = environment.get(_PROCESSES, "")
    as_many_as_cards = processes and not processes.isdecimal()
    if "cpu" not in amounts or _THREADS in environment or as_many_as_cards:
        return {}
    try:
        cores = int(parse_quantity(amounts["cpu"]).to_integral_value(ROUND_CEILING))
    except ValueError as error:
        raise invalid(f"{path}.resources", str(error), "write quantities such as 500m", "quantity") from error
    threads = max(1, cores // max(1, int(processes or context.processes)))
    return {name: str(threads) for name in (_THREADS, *_OTHER_THREADS) if name not in environment}


def _from_source(source: Mapping[str, Any], path: str, context: PodContext) -> dict[str, str]:
    prefix = source.get("prefix", "")
    found: dict[str, str] = {}
    for place, kind in (("configMapRef", CONFIG_MAP), ("secretRef", SECRET)):
        if reference := source.get(place):
            optional = reference.get("optional", False)
            data = context.objects.data(kind, reference.get("name", ""), optional=optional, path=f"{path}.{place}")
            found |= {f"{prefix}{name}": value for name, value in (data or {}).items()}
    return found


def _entry_value(
    entry: Mapping[str, Any],
    path: str,
    container: Mapping[str, Any],
    context: PodContext,
    variables: Mapping[str, str],
) -> str | None:
    """Return the value of one entry of `env`; None leaves the variable unset."""
    source = entry.get("valueFrom")
    if not source:
        return expand(str(entry.get("value") or ""), variables)
    where = f"{path}.valueFrom"
    if reference := source.get("configMapKeyRef"):
        return context.objects.value(CONFIG_MAP, reference, f"{where}.configMapKeyRef")
    if reference := source.get("secretKeyRef"):
        return context.objects.value(SECRET, reference, f"{where}.secretKeyRef")
    if reference := source.get("fieldRef"):
        field_path = reference.get("fieldPath", "")
        return _known(context.identity.field_value(field_path), f"{where}.fieldRef.fieldPath", field_path)
    if reference := source.get("resourceFieldRef"):
        return _resource(reference, f"{where}.resourceFieldRef", container, context)
    raise invalid(where, f"unknown source {', '.join(source)}", "use a value", "env-source")


def _resource(reference: Mapping[str, Any], where: str, container: Mapping[str, Any], context: PodContext) -> str:
    name = reference.get("containerName", "")
    owner = next((c for c in context.containers if name and c.get("name") == name), container)
    try:
        value = resource_value(owner, reference, context.capacity)
    except ValueError as error:
        raise invalid(where, str(error), "write a quantity", "quantity") from error
    return _known(value, f"{where}.resource", reference.get("resource", ""))


def _known(value: str | None, path: str, name: str) -> str:
    if value is None:
        cause = f'"{name}" is not known on this machine'
        raise invalid(path, cause, "name another field or write the value out", "env-source")
    return value


# --- texts of a container that mean something else on this machine ----------------------------------------------------


_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")
_PATH_CHARACTER = r"[\w./-]"


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Return the text with its references replaced by the rules of Kubernetes.

    `$(VAR)` becomes the value of VAR: an unknown VAR stays as written; `$$` is one dollar sign, so `$$(VAR)` is the
    text `$(VAR)`. Everything else, `${VAR}` and `$VAR` above all, belongs to the user's shell.
    """

    def replacement(match: re.Match[str]) -> str:
        name = match.group(1)
        return "$" if name is None else variables.get(name, match.group(0))

    return _REFERENCE.sub(replacement, text)


class Rewriter:
    """Replaces absolute path prefixes by directories of this machine, the longest prefix first.

    A volume is mounted at `/data` in a container; here it is a directory of the pod. There are no mounts, so the path
    is replaced if it is written out: in the command, the arguments and the environment.
    """

    def __init__(self, directories: Mapping[str, Path]) -> None:
        self._directories = {prefix.rstrip("/") or "/": str(directory) for prefix, directory in directories.items()}
        prefixes = sorted(self._directories, key=len, reverse=True)
        alternatives = "|".join(map(re.escape, prefixes))
        # A prefix counts where a path begins and where one of its components ends: not inside of another path.
        self._pattern = re.compile(rf"(?<!{_PATH_CHARACTER})({alternatives})(?=/|(?!{_PATH_CHARACTER}))")

    def rewrite(self, text: str) -> str:
        if not self._directories:
            return text
        return self._pattern.sub(lambda match: self._directories[match.group(1)], text)


_CHOSEN = ("VIRTUAL_ENV", "CONDA_PREFIX")
_OWN = frozenset(
    {
        "KATIB_TOKEN",
        "KATIB_DB_MANAGER_ADDRESS",
        "KATIB_DB_MANAGER_TOKEN",
        "KATIB_DB_MANAGER_CA",
        "KUBEFLOW_TRAINER_SERVER_URL",
        "KUBEFLOW_TRAINER_SERVER_TOKEN",
        "KUBEFLOW_TRAINER_SERVER_CA_CERT",
        ENGINE_ID,
        PROCESS_ID,
    }
)
"""The token of the server opens it to every holder; a trial has no use for it. The others are addresses for reports,
and are those of another trial when the engine itself runs in one."""

_NAMES = ("python", "python3")


def provided_commands(environ: Mapping[str, str]) -> frozenset[str]:
    """Return the commands that mean the Python which runs katib; empty if the user has chosen another."""
    return frozenset() if not sys.executable or any(map(environ.get, _CHOSEN)) else frozenset(_NAMES)


def inherited_environment(environ: Mapping[str, str], directory: Path) -> dict[str, str]:
    """Return the environment that containers start from, in which there is a `python`.

    With a virtual environment or conda active, the user has chosen a Python, and everything stays as it is. Otherwise
    `python` and `python3` mean the Python that runs katib, which is the one that the user installed things for; that of
    the PATH may be another one or, as on Debian, none. Variables of the engine itself are left out.
    """
    ours = {VERBOSITY_VARIABLE, OUR_VERBOSITY_VARIABLE} if OUR_VERBOSITY_VARIABLE in environ else set()
    environment = {name: value for name, value in environ.items() if name not in _OWN | ours}
    if not provided_commands(environ):
        return environment
    first = Path(sys.executable).parent if sys.prefix != sys.base_prefix else _linked(directory, sys.executable)
    path = environment.get("PATH", os.defpath)
    return environment | {"PATH": f"{first}{os.pathsep}{path}"}


def _linked(directory: Path, python: str) -> Path:
    """Return a directory that holds this Python and nothing else.

    Its own directory, often `/usr/bin`, would bring all of its programs before those that the user prefers. The Python
    of a virtual environment has a directory of its own, and finds its modules only under its own name.
    """
    with contextlib.suppress(OSError):  # without the links the PATH decides, as everywhere
        directory.mkdir(mode=0o700, exist_ok=True)
        for name in _NAMES:
            link, draft = directory / name, directory / f"{name}.new"
            draft.unlink(missing_ok=True)
            draft.symlink_to(python)
            draft.replace(link)
    return directory
