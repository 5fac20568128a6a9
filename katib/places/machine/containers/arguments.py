"""Command lines of `podman run` and `docker run`. Pure.

The environment of a container is not on the command line, which every account of the machine can read: the option
`--env NAME` takes the value from the environment of the client. Variables that the client itself would use, such as
`PATH`, are the exception.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from katib.places.machine.pods.environment import HOST_NETWORK
from katib.places.machine.pods.image_runs import ImageRun, Mount

LOOPBACK = "127.0.0.1"
_HOSTNAME_LENGTH = 63

_OBEYED = re.compile(
    r"(LD|LC|XDG|DOCKER|CONTAINERS?|PODMAN|STORAGE|BUILDAH|REGISTRY|REGISTRIES|DBUS|SSL|NOTIFY|LISTEN|SSH)_.*"
    r"|GO[A-Z]+|(?i:[a-z]+_proxy)|PATH|HOME|USER|LOGNAME|TMPDIR|TERM|LANG|SHELL|PWD|HOSTNAME|_.*"
)
"""Names of variables that the client, or a program started by it, may use itself."""


class RuntimeProgram(StrEnum):
    """The client program."""

    PODMAN = "podman"
    DOCKER = "docker"


@dataclass(frozen=True, slots=True)
class Abilities:
    """Abilities of a runtime on this machine.

    Attributes:
        limits: Which of `cpu` and `memory` it can limit.
        init: Whether it has an init process that reaps others and forwards signals.
        names: Whether containers in a network of their own resolve each other's names.
    """

    limits: frozenset[str] = frozenset({"cpu", "memory"})
    init: bool = True
    names: bool = True


def run_line(
    program: RuntimeProgram,
    abilities: Abilities,
    run: ImageRun,
    name: str,
    labels: Mapping[str, str],
    taken: Iterable[str],
    pid_file: Path | None = None,
) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """Return the arguments that run a container, attached, and remove it at its end; and the client's environment.

    Args:
        taken: Names of the client's own variables, which must not change.
        pid_file: File for the process id of the first process once it has started; None for none.
    """
    known = frozenset(taken)
    written = {name: value for name, value in run.environment.items() if name in known or _OBEYED.fullmatch(name)}
    passed = {name: value for name, value in run.environment.items() if name not in written}
    entrypoint, arguments = run.entrypoint[:1], (*run.entrypoint[1:], *run.arguments)
    words = (
        *("run", "--rm", "--name", name, "--pull", run.pull.value, "--log-driver", "none"),
        *(("--quiet",) if program is RuntimeProgram.PODMAN else ()),
        *(("--init",) if abilities.init else ()),
        *(("--pidfile", str(pid_file)) if pid_file is not None else ()),
        *_options("--label", (f"{key}={value}" for key, value in sorted({**run.labels, **labels}.items()))),
        *_network(run),
        *_options("--env", sorted(passed)),
        *_options("--env", (f"{key}={value}" for key, value in sorted(written.items()))),
        *(word for mount in run.mounts for word in _mount(mount)),
        *(("--workdir", run.working_directory) if run.working_directory else ()),
        *_rights(run),
        *_limits(run, abilities),
        *_devices(program, run.gpus),
        *_options("--entrypoint", entrypoint),
        run.image,
        *arguments,
    )
    return words, passed


def remove_words(program: RuntimeProgram, *names: str) -> tuple[str, ...]:
    """Return the arguments that remove containers and their processes; a missing one is no error."""
    at_once = ("--time", "0", "--ignore") if program is RuntimeProgram.PODMAN else ()
    return ("rm", "--force", "--volumes", *at_once, *names)


def list_words(kind: str, label: str) -> tuple[str, ...]:
    """Return the arguments that print, one a line, the containers or networks with a label.

    Args:
        kind: `ps` or `network`.
        label: `name=value`.
    """
    words = ("ps", "--all", "--quiet", "--no-trunc") if kind == "ps" else ("network", "ls", "--quiet")
    return (*words, "--filter", f"label={label}")


def _options(option: str, values: Iterable[str]) -> list[str]:
    return [word for value in values for word in (option, value)]


def _network(run: ImageRun) -> list[str]:
    hostname = run.hostname[:_HOSTNAME_LENGTH].rstrip("-.")
    words = ["--network", run.network, *(("--hostname", hostname) if hostname else ())]
    if run.network == HOST_NETWORK:  # the host does not resolve the name, and programs look up their own
        return words + ([f"--add-host={hostname}:{LOOPBACK}"] if hostname else [])
    return words + _options("--network-alias", dict.fromkeys(filter(None, (hostname, *run.aliases))))


def _mount(mount: Mount) -> tuple[str, str]:
    source = str(mount.source)
    if ":" in source or ":" in mount.target:
        parts = ["type=bind", f"source={source}", f"target={mount.target}", *(("readonly",) if mount.read_only else ())]
        return ("--mount", ",".join(parts))
    return ("--volume", f"{source}:{mount.target}{':ro' if mount.read_only else ''}")


def _rights(run: ImageRun) -> list[str]:
    return [
        # Files of the user are mounted as they are: their labels must neither be enforced nor changed.
        *("--security-opt", "label=disable"),
        *(("--security-opt", "no-new-privileges") if run.no_new_privileges else ()),
        *(("--user", run.user) if run.user else ()),
        *_options("--group-add", map(str, run.groups)),
        *_options("--cap-drop", run.capabilities_dropped),
        *_options("--cap-add", run.capabilities_added),
        *(("--read-only",) if run.read_only else ()),
        *(("--privileged",) if run.privileged else ()),
    ]


def _limits(run: ImageRun, abilities: Abilities) -> list[str]:
    words: list[str] = []
    if run.cpus is not None and "cpu" in abilities.limits:
        words += ["--cpus", f"{run.cpus.normalize():f}"]
    if run.memory_bytes is not None and "memory" in abilities.limits:
        words += ["--memory", str(run.memory_bytes)]
    return words


def _devices(program: RuntimeProgram, gpus: tuple[str, ...]) -> list[str]:
    if not gpus:
        return []
    if program is RuntimeProgram.DOCKER:  # the quotes are for docker: without them it reads the comma as another option
        return ["--gpus", f'"device={",".join(gpus)}"']
    return _options("--device", (f"nvidia.com/gpu={gpu}" for gpu in gpus))
