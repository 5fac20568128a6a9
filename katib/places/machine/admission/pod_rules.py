"""Rules for a pod and its containers: names, environment, rights, resources, volumes.

Volumes are not mounted: each is represented by a directory. A mount path in `command`, `args`, `workingDir` or a value
of `env` is replaced by that directory. A path that is known to the program only cannot be provided that way.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from katib.model.files.directories import folders_near
from katib.model.quantities import parse_quantity
from katib.model.templates import has_placeholder
from katib.model.templates.claims import MAPPED_TYPE
from katib.model.wording import closest, did_you_mean, shown
from katib.places.machine.admission.host import GIB, CommandEnvironment, HostCapacity
from katib.places.machine.findings import Part, containers_of, exists, is_directory, is_file, mapping, mapping_at
from katib.places.machine.pods.environment import Rewriter
from katib.places.machine.pods.requests import GPU_RESOURCES, SHARE_ANNOTATION, share_of

GPU: Final = "GPU"
FIELD_PATHS: Final = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
RESOURCE_PATHS: Final = ("limits.cpu", "limits.memory", "requests.cpu", "requests.memory")

_INDEXED_FIELD_PATH: Final = re.compile(r"metadata\.(labels|annotations)\['[^']+'\]")
_LARGEST: Final = Decimal(10) ** 24
"""No machine has a yottabyte; a larger number would only flood a message with digits."""

_SOURCES: Final = ("configMapKeyRef", "fieldRef", "fileKeyRef", "resourceFieldRef", "secretKeyRef")


def check_pod_rules(pod: Part, machine: CommandEnvironment) -> None:
    host = machine.capacity
    main, first = list(pod["containers"]), list(pod["initContainers"])
    if pod["containers"].value == []:
        pod["containers"].error("it is empty", "give a container with a command", "pod-containers")
    seen: set[str] = set()
    for name in [container["name"] for container in main + first if container["name"].text]:
        if name.text in seen:
            name.error(f"{shown(name.text)} is used twice", "give it a name of its own", "pod-name-twice")
        seen.add(name.text)
    pod.at_least(terminationGracePeriodSeconds=0)
    _check_rights(pod["securityContext"], host)
    volumes = check_volumes(pod["volumes"])
    for container in main + first:
        mounts = check_mounts(container, volumes, are_mounted=host.runs_images)
        _check_restart_policy(container["restartPolicy"], is_first=container in first)
        _check_rights(container["securityContext"], host)
        if host.runs_images and not host.is_scheduled:
            _check_user(container["securityContext"], mapping(pod["securityContext"].value))
        _check_environment(container["env"])
        for port in container["ports"]:
            port.at_least(containerPort=1)
        check_command(container, mounts, replace(machine, is_settled=container == (first or main)[0] or not first))
    _check_resources(pod, main, first, host)
    if pod["os.name"].text not in {"", "linux"}:
        cause = f"this machine does not run {pod['os.name'].text}"
        pod["os.name"].error(cause, "submit the experiment to Kubernetes", "pod-os")


def check_card_share(annotations: Part, host: HostCapacity) -> None:
    """Check the number of pods that share a GPU, from the annotations of a pod template."""
    given = mapping(annotations.value)
    if has_placeholder(given.get(SHARE_ANNOTATION, "")):
        return
    try:
        share = share_of({"metadata": {"annotations": given}})
    except ValueError as error:
        remedy = "write how many pods share a GPU, such as 4; each has that part of one"
        annotations.error(f"{SHARE_ANNOTATION}: {error}", remedy, "gpu-share")
        return
    if share > 1 and host.is_scheduled:
        remedy = "remove it; where the cluster shares GPUs, add gres=shard:1 to katib.kubeflow.org/slurm-options"
        annotations.error(f"{SHARE_ANNOTATION}: Slurm decides how GPUs are shared", remedy, "gpu-share")


def check_requests_together(templates: Sequence[tuple[Mapping[str, Any], int]], spec: Part, host: HostCapacity) -> None:
    """Compare the requests of pods that run together with the machine; those of a single pod are checked elsewhere."""
    if sum(count for _, count in templates) < 2:  # noqa: PLR2004  # nothing is together with one pod
        return
    needed: dict[str, Decimal] = {}
    for template, count in templates:
        for container in containers_of(template.get("spec")):
            for name, amount in _requests(container).items():
                needed[name] = needed.get(name, Decimal(0)) + count * amount
    for name in sorted(needed):
        _compare(name, needed[name], spec, host, " for all its pods together")


def _check_restart_policy(policy: Part, *, is_first: bool) -> None:
    if not (is_first and policy.value == "Always"):
        cause = f"a restart policy of its own, {shown(policy.value)}, is not kept here"
        remedy = (
            "remove it, or submit the experiment to Kubernetes: here only an init container can have one, Always, "
            "which makes it a sidecar"
        )
        policy.refuse(cause, remedy, "pod-container-restart")


def _check_user(rights: Part, of_pod: Mapping[str, Any]) -> None:
    """Check the user of a container in its image; the image's own user is unknown before it runs."""
    both = Part({**of_pod, **mapping(rights.value)}, rights.path, rights.findings)
    user = both["runAsUser"]
    if both["runAsNonRoot"].value is True and not user.integer:
        cause = "the user of the image is not known here" if user.integer is None else "runAsUser is root"
        both["runAsNonRoot"].error(cause, "give runAsUser a number above 0", "pod-rights")
    if not user.is_given:
        both["runAsGroup"].refuse("it needs runAsUser", "give runAsUser as well", "pod-rights")


def _check_rights(context: Part, host: HostCapacity) -> None:
    if host.runs_images and not host.is_scheduled:
        context.at_least(runAsUser=0, runAsGroup=0, fsGroup=0)
        for group in context["supplementalGroups"].items:
            group.below(0)
        return
    for field, word, own in (("runAsUser", "user", host.user_id), ("runAsGroup", "group", host.group_id)):
        if (number := context[field].integer) not in {None, own}:
            cause = f"processes run as {word} {own} here, not {number}"
            context[field].error(cause, f"remove it, or start the engine as {word} {number}", "pod-rights")
    if context["runAsNonRoot"].value is True and host.user_id == 0:
        remedy = "remove it, or start the engine as another user"
        context["runAsNonRoot"].error("processes run as root here", remedy, "pod-rights")


def _check_environment(env: Part) -> None:
    for entry in env:
        source = entry["valueFrom"]
        if not source.fields:
            continue
        if entry["value"].is_given or sum(name in source.fields for name in _SOURCES) != 1:
            remedy = f"give value, or one of {', '.join(_SOURCES)} in valueFrom"
            entry.error("its value has no source, or several", remedy, "env-source")
        path, resource = source["fieldRef.fieldPath"], source["resourceFieldRef.resource"]
        if path.text and path.text not in FIELD_PATHS and not _INDEXED_FIELD_PATH.fullmatch(path.text):
            known = (*FIELD_PATHS, "metadata.labels['key']", "metadata.annotations['key']")
            path.error(f"a pod has no field {shown(path.text)} here", did_you_mean(path.text, known), "env-field-path")
        if resource.text and resource.text not in RESOURCE_PATHS:
            remedy = did_you_mean(resource.text, RESOURCE_PATHS)
            resource.error(f"{shown(resource.text)} is not known here", remedy, "env-resource")


def _check_resources(pod: Part, main: list[Part], first: list[Part], host: HostCapacity) -> None:
    """Compare the requests of one pod with the machine: containers run together, init containers one by one."""
    for container in main + first:
        _check_quantities(container["resources"], host)
    sidecars = [container for container in first if container["restartPolicy"].value == "Always"]
    together = [_requests(container.value) for container in [*main, *sidecars]]
    alone = [_requests(container.value) for container in first if container not in sidecars]
    for name in sorted({name for requests in together + alone for name in requests}):
        place = pod if len(main + first) > 1 else (main + first)[0]
        needed = max([sum(r.get(name, Decimal(0)) for r in together), *(r.get(name, Decimal(0)) for r in alone)])
        _compare(name, Decimal(needed), place["resources"], host)


def _compare(name: str, needed: Decimal, place: Part, host: HostCapacity, of_what: str = "") -> None:
    if host.is_scheduled and ("/" not in name or name == GPU):
        return
    if name == "cpu":
        available, words = Decimal(str(host.cpus)), (f"{needed.normalize():f} CPU", f"{host.cpus:g}")
    elif name == "memory":
        available = Decimal(host.memory_bytes)
        words = (f"{needed / GIB:.1f} GiB of memory", f"{host.memory_bytes / GIB:.1f} GiB")
    elif name == GPU:
        available, words = Decimal(host.gpus), (f"{needed.normalize():f} GPU", f"{host.gpus}")
    elif "/" in name:
        available, words = Decimal(0), (f"{needed.normalize():f} {name}", "0")
    else:
        return
    if needed > available:
        cause = f"needs {words[0]}{of_what}, this machine has {words[1]}"
        place.error(cause, "request less, or submit the experiment to Kubernetes", "pod-resources")


def _check_quantities(resources: Part, host: HostCapacity) -> None:
    for field in ("requests", "limits"):
        for name, amount in resources[field].fields.items():
            quantity = _amount(amount.value)
            is_literal = isinstance(amount.value, str | int | float) and not has_placeholder(amount.value)
            if is_literal and (quantity is None or quantity < 0):
                cause = f"{shown(amount.value)} is not a quantity"
                amount.error(cause, 'write it as 2, "500m" or "1Gi"', "pod-quantity")
            elif field == "limits" and name in {"cpu", "memory"} - host.limits:
                of_what = "containers by this account" if host.runs_images else "processes here"
                amount.notice(f"limits are not enforced on {of_what}")
            elif name not in {"cpu", "memory", *host.limits} and "/" not in name:
                amount.notice("only cpu, memory and devices are counted here")


def _requests(container: Mapping[str, Any]) -> dict[str, Decimal]:
    """Return the requests of a container, by default its limits. GPUs of all vendors count together."""
    found: dict[str, Decimal] = {}
    given = {**mapping_at(container, "resources.limits"), **mapping_at(container, "resources.requests")}
    for name, value in given.items():
        key, quantity = GPU if name in GPU_RESOURCES else name, _amount(value)
        if quantity is not None and quantity >= 0:
            found[key] = found.get(key, Decimal(0)) + quantity
    return found


def _amount(value: object) -> Decimal | None:
    """Return the number of cores, bytes or devices; None if it is malformed or not known yet."""
    if isinstance(value, bool):
        return None
    try:
        quantity = parse_quantity(value)
    except (ValueError, ArithmeticError):
        return None
    return quantity if abs(quantity) < _LARGEST else None


# --- volumes ----------------------------------------------------------------------------------------------------------


SOURCES = ("configMap", "downwardAPI", "emptyDir", "hostPath", "projected", "secret")


def check_volumes(volumes: Part) -> dict[str, Part]:
    for volume in volumes:
        if not any(name in SOURCES or (name != "name" and part.is_given) for name, part in volume.fields.items()):
            volume.error("the volume has no source", "write emptyDir: {}", "volume-source-missing")
        host_path = volume["hostPath.path"]
        if host_path.text and not exists(Path(host_path.text)):
            cause = f"{shown(host_path.text)} is not on this machine"
            host_path.error(cause, "create it, or name another path", "volume-host-path-missing")
    return {volume["name"].text: volume for volume in volumes if volume["name"].text}


def check_mounts(container: Part, volumes: Mapping[str, Part], *, are_mounted: bool) -> list[str]:
    mount_paths = []
    for mount in container["volumeMounts"]:
        name, path = mount["name"], mount["mountPath"]
        if name.text and name.text not in volumes:
            cause = f"the pod has no volume {shown(name.text)}"
            name.error(cause, did_you_mean(name.text, volumes), "volume-unknown")
        elif path.text:
            mount_paths.append(path.text.rstrip("/") or "/")
            if name.text in volumes and not are_mounted:
                _check_reach(container, path, mount_paths[-1], volumes[name.text])
    return mount_paths


def _check_reach(container: Part, place: Part, mount_path: str, volume: Part) -> None:
    host_path = volume["hostPath.path"].text
    if not any(source in volume.fields for source in SOURCES) or (host_path and host_path.rstrip("/") == mount_path):
        return
    rewriter = Rewriter({mount_path: Path("/elsewhere")})
    words = [*container["command"].words, *container["args"].words]
    parts = [*words, *(entry["value"] for entry in container["env"]), container["workingDir"]]
    if any(isinstance(part.value, str) and rewriter.rewrite(part.value) != part.value for part in parts):
        why = "this path in command, args, workingDir or env is replaced by the directory that stands for the volume"
        place.notice(why)
    elif volume["hostPath.type"].value == MAPPED_TYPE:
        place.notice(f"nothing is mounted here, so a program that opens this path by itself does not find {host_path}")
    elif "emptyDir" in volume.fields and is_directory(Path(mount_path)):
        place.notice("the directory of this machine is used, which trials share")
    else:
        place.error(
            f"{shown(mount_path)} cannot be provided: nothing is mounted here, and the container does not mention it",
            "pass the path to the program in command, args or env, where it is replaced by a directory of the trial",
            "volume-unreachable",
        )


OFFER: Final = "run the image with --containers auto where podman or docker is installed"
"""Remedy for something missing on this machine."""

_PYTHON = re.compile(r"python[0-9.]*")
_SHELL = re.compile(r"(?:ba|da|z)?sh")
_OPTIONS: Final = {_PYTHON: re.compile(r"-[uBOEIqsSv]+"), _SHELL: re.compile(r"-[eux]+")}
"""Options of interpreters without a value; after any other one, the next word need not be a script."""

_TEXT_QUOTES: Final = ("\u201c", "\u201d", "\u2018", "\u2019")
_SERVICE_NAME = re.compile(r"[a-z0-9]\.svc\b")


def check_command(container: Part, mounts: Collection[str], machine: CommandEnvironment) -> None:
    """Check the command of a container.

    Args:
        mounts: Paths of volumes of the trial; their content is not known yet.
        machine: The machine; files that an init container may still write are not checked.
    """
    values = [entry["value"].text for entry in container["env"]]
    words = [*container["command"].words, *container["args"].words]
    written = {field: [word.value for word in container[field].words] for field in ("command", "args")}
    for field, found in {**written, "env": values}.items():
        if any(map(_SERVICE_NAME.search, found)):
            container[field].notice("names of services (.svc) lead nowhere on this machine")
    if machine.capacity.runs_images:
        if not container["image"].text:
            remedy = "name an image: containers run in their images here"
            container["image"].error("it is missing", remedy, "image-missing")
        return
    directory = _working_directory(container["workingDir"], mounts, machine)
    cause = "it is missing, and the entry point of the image is unknown because images are not run here"
    remedy = f"give the command with its full path or name, or {OFFER}"
    if not container["command"].require(remedy, "command-missing", cause):
        return
    if not words or _is_unknown(words[0].value, mounts):
        return
    program, search_path = words[0], _search_path(container["env"], machine.capacity)
    is_ours = program.value in machine.capacity.provided and search_path == machine.capacity.search_path
    if machine.capacity.is_scheduled:
        return  # nodes may have other programs
    if not is_ours and (machine.is_settled or "/" not in program.value):
        _check_program(program, directory, search_path)
    if machine.is_settled:
        _check_script(words, mounts, directory)


def _working_directory(place: Part, mounts: Collection[str], machine: CommandEnvironment) -> Path | None:
    """Return the directory of relative paths, None if it is not known yet; check that it exists."""
    if not place.is_given:
        return machine.workspace
    if not place.text or _is_unknown(place.text, mounts):
        return None
    whole = Path(machine.workspace or "/", place.text)
    if not Path(place.text).is_absolute() and machine.workspace is None:
        return None
    if machine.is_settled and not is_directory(whole):
        remedy = f"create it, give another, leave it out to work beside the experiment's file, or {OFFER}"
        place.error(f"{shown(place.text)} is not a directory here", remedy, "working-directory-missing")
    return whole if is_directory(whole) else None


def _check_program(word: Part, directory: Path | None, search_path: str) -> None:
    program = str(word.value)
    is_path, file = "/" in program, Path(directory or "/", program)
    if is_path and not Path(program).is_absolute() and directory is None:
        return
    if is_path and is_file(file) and not os.access(file, os.X_OK):
        remedy = f"chmod +x {shlex.quote(program)}, or start it with its interpreter"
        word.error(f"{shown(program)} is not executable", remedy, "command-not-executable")
    elif not is_file(file) if is_path else shutil.which(program, path=search_path) is None:
        cause, remedy = "is not on this machine", f"install it, use a full path, or {OFFER}"
        if is_directory(file) and (is_path or directory is not None):
            cause, remedy = "is a directory", "name the program in it"
        elif not is_path and directory is not None and is_file(file):
            cause, remedy = "is not on PATH", f"write ./{shlex.quote(program)} for the one of this directory"
            if not os.access(file, os.X_OK):
                remedy = f"start the one of this directory with its interpreter, as in: python {shlex.quote(program)}"
        elif program.startswith(_TEXT_QUOTES):
            remedy = "write plain quotes, which a shell takes away"
        elif program.startswith("~"):
            remedy = "write the full path: only a shell replaces ~, and not within quotes"
        elif len(program.split()) > 1:
            remedy = "write each of its words as an element, or [sh, -c] and the line"
        word.error(f"{shown(program)} {cause}", remedy, "command-not-found")


def _check_script(words: list[Part], mounts: Collection[str], directory: Path | None) -> None:
    """Check the script in `python /opt/train.py`: it is often in an image and not on this machine."""
    options = next((o for name, o in _OPTIONS.items() if name.fullmatch(Path(words[0].value).name)), None)
    word = next((word for word in words[1:] if not (options and options.fullmatch(word.value))), None)
    if options is None or word is None or word.value.startswith("-") or _is_unknown(word.value, mounts):
        return
    if word.value.endswith(".ipynb"):
        script = shlex.quote(word.value.removesuffix(".ipynb") + ".py")
        remedy = f"save it as {script}: jupyter nbconvert --to script {shlex.quote(word.value)}"
        word.error(f"{shown(word.value)} is a notebook, not a program", remedy, "command-not-executable")
    elif (Path(word.value).is_absolute() or directory is not None) and not exists(Path(directory or "/", word.value)):
        cause, remedy = "is not on this machine", f"copy it here, use the path it has on this machine, or {OFFER}"
        if directory is not None and not Path(word.value).is_absolute():
            cause = f"is not in {directory}, in which the command starts"
            near = (folder / Path(word.value).name for folder in folders_near(directory))
            if (found := next(filter(is_file, near), None)) is not None:
                remedy = f"write {shlex.quote(os.path.relpath(found, directory))}"
            elif like := closest(word.value, (path.name for path in directory.glob(f"*{Path(word.value).suffix}"))):
                remedy = f"did you mean {shlex.quote(like)}?"
        word.error(f"{shown(word.value)} {cause}", remedy, "command-not-found")


def _search_path(env: Part, host: HostCapacity) -> str:
    own = [entry["value"].text for entry in env if entry["name"].value == "PATH"]
    return own[-1] if own and own[-1] and "$(" not in own[-1] else host.search_path


def _is_unknown(word: str, mounts: Collection[str]) -> bool:
    """Return whether a word is only meaningful when the trial runs: a value, a variable, a file of a volume."""
    is_mounted = any(word == mount or word.startswith(f"{mount.rstrip('/')}/") for mount in mounts)
    return is_mounted or has_placeholder(word) or "$(" in word
