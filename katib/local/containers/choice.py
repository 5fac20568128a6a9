"""Which runtime runs the images of trials, decided once when an engine opens."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import subprocess
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from katib.algorithm_services.config import ServicesConfig
from katib.errors import TerminalError
from katib.local.containers.arguments import Abilities, Program
from katib.local.containers.failures import is_daemon_missing, runtime_down, short
from katib.local.containers.runtime import OWNER_LABEL, Runtime

_log = logging.getLogger(__name__)

_INFO_SECONDS = 30.0
_PACKAGES = {Program.PODMAN: "podman", Program.DOCKER: "docker.io"}
_FORMATS = {Program.PODMAN: "json", Program.DOCKER: "{{json .}}"}
_PODMAN_INITS = (
    "/usr/libexec/podman/catatonit",
    "/usr/local/libexec/podman/catatonit",
    "/usr/local/lib/podman/catatonit",
    "/usr/lib/podman/catatonit",
    "/usr/bin/catatonit",
)
"""Where podman looks for the first process of a container with `--init`."""

_PODMAN_NAMES = tuple(path.replace("catatonit", "aardvark-dns") for path in _PODMAN_INITS)
"""Where podman looks for what resolves names of containers."""

_ROOTLESS_WAYS = ("slirp4netns", "pasta")
"""What connects a network of containers with the machine where podman runs for one account."""

_TUNNEL = "/dev/net/tun"

_HAS_PID_FILES = 4
"""From which version podman certainly has `--pidfile`. Its client for another machine does not have it."""

_NOTES = "run/containers"
"""Below the data directory, where no container sees them."""


class Choice(StrEnum):
    """What a user says about containers."""

    AUTO = "auto"
    NEVER = "never"
    PODMAN = "podman"
    DOCKER = "docker"
    PYXIS = "pyxis"
    APPTAINER = "apptainer"


def chosen(said: str | None, config: ServicesConfig) -> Choice:
    """Return what is to be used: the word of the command line or the environment, else of the configuration."""
    return Choice(said or config.containers or Choice.NEVER)


def runs_images(choice: Choice, environ: Mapping[str, str]) -> bool:
    """Return whether trials would run in their images, as far as that can be said without asking a runtime."""
    if choice is Choice.AUTO:
        return any(_find(program, environ) for program in Program)
    return choice is not Choice.NEVER


def choose(choice: Choice, environ: Mapping[str, str], data_directory: Path) -> Runtime | None:
    """Return the runtime that is to be used, before it is `prepared`; None: trials run as processes.

    Args:
        choice: What the user says. `auto` takes the first that answers, podman before docker.
        environ: Where the clients are looked for, and what they are started with.
        data_directory: Of the engine; all that it makes is labelled with it.

    Raises:
        TerminalError: The one that was asked for is not installed or does not answer.
    """
    if choice is Choice.NEVER:
        return None
    if choice in {Choice.PYXIS, Choice.APPTAINER}:
        raise TerminalError(f"--containers {choice} is for nodes of Slurm; add --on slurm, or use podman or docker")
    if choice is not Choice.AUTO:
        return _open(Program(choice.value), environ, data_directory)
    for program in Program:
        if _find(program, environ):
            try:
                return _open(program, environ, data_directory)
            except TerminalError as error:
                _log.warning("Runtime of images passed over", extra={"cause": str(error)})
    return None


def owner_of(data_directory: Path) -> str:
    """Return the value of the label of everything that is made for a data directory."""
    return hashlib.sha256(str(data_directory.resolve()).encode(errors="surrogateescape")).hexdigest()[:24]


def podman_abilities(info: Mapping[str, Any], *, has_init: bool, has_names: bool) -> Abilities:
    """Return what podman can do, from what `podman info` says and which of its helpers are there."""
    host = info.get("host") or {}
    rootless = _is_rootless(info)
    controllers = set(host.get("cgroupControllers") or ())
    limits = controllers & {"cpu", "memory"}
    if rootless and host.get("cgroupVersion") == "v1":
        limits = set()
    if not rootless and not controllers:
        limits = {"cpu", "memory"}
    return Abilities(frozenset(limits), has_init, has_names and host.get("networkBackend", "netavark") == "netavark")


def _is_rootless(info: Mapping[str, Any]) -> bool:
    return bool(((info.get("host") or {}).get("security") or {}).get("rootless"))


def docker_abilities(info: Mapping[str, Any]) -> Abilities:
    """Return what docker can do, from what `docker info` says."""
    limits = {name for name, field in (("cpu", "CpuCfsQuota"), ("memory", "MemoryLimit")) if info.get(field, True)}
    return Abilities(frozenset(limits), init=True, names=True)


def _open(program: Program, environ: Mapping[str, str], data_directory: Path) -> Runtime:
    path = _find(program, environ)
    if path is None:
        others = [other for other in Program if other is not program and _find(other, environ)]
        remedy = f"use --containers {others[0]}" if others else f"install it (apt-get install {_PACKAGES[program]})"
        raise TerminalError(f"--containers {program}: {program} is not installed; {remedy}, or leave the option out")
    environment = {name: value for name, value in environ.items() if not name.startswith("KATIB_")}
    info = _ask(program, path, environment)
    if program is Program.PODMAN:
        names = _any(_PODMAN_NAMES) and (not _is_rootless(info) or _has_rootless_network(environ))
        abilities = podman_abilities(info, has_init=_any(_PODMAN_INITS), has_names=names)
    else:
        abilities = docker_abilities(info)
    notes = data_directory / _NOTES if writes_pid_files(program, info) else None
    return Runtime(program, path, abilities, environment, {OWNER_LABEL: owner_of(data_directory)}, notes)


def writes_pid_files(program: Program, info: Mapping[str, Any]) -> bool:
    """Return whether a runtime has the option `--pidfile`, from what it says of itself."""
    if program is not Program.PODMAN or (info.get("host") or {}).get("serviceIsRemote", False):
        return False
    major, _, _ = str((info.get("version") or {}).get("Version", "")).partition(".")
    return major.isdecimal() and int(major) >= _HAS_PID_FILES


def _find(program: Program, environ: Mapping[str, str]) -> str | None:
    return shutil.which(program.value, path=environ.get("PATH"))


def _has_rootless_network(environ: Mapping[str, str]) -> bool:
    has_way = any(shutil.which(way, path=environ.get("PATH")) for way in _ROOTLESS_WAYS)
    return has_way and os.access(_TUNNEL, os.R_OK | os.W_OK)


def _any(paths: tuple[str, ...]) -> bool:
    return any(Path(path).is_file() for path in paths)


def _ask(program: Program, path: str, environment: Mapping[str, str]) -> Mapping[str, Any]:
    """Return what a runtime says of itself.

    Raises:
        TerminalError: It does not answer.
    """
    try:
        result = subprocess.run(  # noqa: S603 - the client that the user asked for
            [path, "info", "--format", _FORMATS[program]],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_INFO_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise runtime_down(program, f"no answer within {_INFO_SECONDS:g} s") from error
    except OSError as error:
        raise runtime_down(program, error.strerror or str(error)) from error
    info = _parsed(result.stdout)
    problems = info.get("ServerErrors") or ()
    if result.returncode or problems:
        said = "; ".join(map(str, problems)) or result.stderr or result.stdout
        lines = [line for line in said.splitlines() if is_daemon_missing(line)] or said.splitlines()[-1:] or ["no word"]
        raise runtime_down(program, short(lines[0].removeprefix("Error: ").removeprefix("ERROR: ")))
    return info


def _parsed(text: str) -> Mapping[str, Any]:
    try:
        info = json.loads(text)
    except ValueError:
        return {}
    return info if isinstance(info, dict) else {}
