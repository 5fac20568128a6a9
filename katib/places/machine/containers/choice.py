"""Choice of the runtime that runs trials in their images, and removal of containers that an engine left.

The choice is made once, when an engine opens. Every container has a label of its data directory, and while an engine
uses a runtime a note in that directory names it. Only one engine at a time works in a directory, so containers with the
label are leftovers when an engine opens.

The guard of a killed engine removes them at once with `removal_script`. Another engine may run by then, so the script
selects by the label of its own engine.

`ContainerRuntime` is the runtime as pods use it. Implements `katib.places.machine.pods.images.ImageRuntime`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from katib.engine.algorithm_services.config import ServicesConfig
from katib.errors import TerminalError
from katib.model.files.directories import make_below
from katib.places.machine.containers.arguments import (
    Abilities,
    RuntimeProgram,
    list_words,
    remove_words,
    run_line,
)
from katib.places.machine.containers.failures import is_daemon_missing, pull_failure, runtime_down, short, start_failure
from katib.places.machine.pods.environment import ContainerCommand
from katib.places.machine.pods.image_runs import ImageRun
from katib.places.machine.processes.handle import SpawnError

_log = logging.getLogger(__name__)

_INFO_SECONDS = 30.0
_PACKAGES = {RuntimeProgram.PODMAN: "podman", RuntimeProgram.DOCKER: "docker.io"}
_FORMATS = {RuntimeProgram.PODMAN: "json", RuntimeProgram.DOCKER: "{{json .}}"}
_PODMAN_INITS = (
    "/usr/libexec/podman/catatonit",
    "/usr/local/libexec/podman/catatonit",
    "/usr/local/lib/podman/catatonit",
    "/usr/lib/podman/catatonit",
    "/usr/bin/catatonit",
)
"""Paths at which podman looks for the init process of containers with `--init`."""

_PODMAN_NAMES = tuple(path.replace("catatonit", "aardvark-dns") for path in _PODMAN_INITS)
"""Paths at which podman looks for the name server of container networks."""

_ROOTLESS_WAYS = ("slirp4netns", "pasta")
"""Programs that connect a container network with the machine if podman is rootless."""

_TUNNEL = "/dev/net/tun"

_HAS_PID_FILES = 4
"""First major version of podman with `--pidfile`. The remote client does not have it."""

_NOTES = "run/containers"
"""Subdirectory of the data directory, invisible to containers."""


class RuntimeChoice(StrEnum):
    """Value of the option `--containers`."""

    AUTO = "auto"
    NEVER = "never"
    PODMAN = "podman"
    DOCKER = "docker"
    PYXIS = "pyxis"
    APPTAINER = "apptainer"


def chosen(said: str | None, config: ServicesConfig) -> RuntimeChoice:
    """Return the choice of the command line or the environment, or else of the configuration."""
    return RuntimeChoice(said or config.containers or RuntimeChoice.NEVER)


def runs_images(choice: RuntimeChoice, environ: Mapping[str, str]) -> bool:
    """Return whether trials are likely to run in their images; no runtime is asked."""
    if choice is RuntimeChoice.AUTO:
        return any(_find(program, environ) for program in RuntimeProgram)
    return choice is not RuntimeChoice.NEVER


def choose(word: str, environ: Mapping[str, str], data_directory: Path) -> ContainerRuntime | None:
    """Return the runtime to use, before it is `prepared`; None if trials run as processes.

    Args:
        word: The user's `RuntimeChoice`. `auto` takes the first that answers, podman before docker.
        environ: Search path and environment of the clients.
        data_directory: Data directory of the engine, the label of all its objects.

    Raises:
        TerminalError: The chosen runtime is not installed or does not answer.
    """
    choice = RuntimeChoice(word)
    if choice is RuntimeChoice.NEVER:
        return None
    if choice in {RuntimeChoice.PYXIS, RuntimeChoice.APPTAINER}:
        raise TerminalError(f"--containers {choice} is for nodes of Slurm; add --on slurm, or use podman or docker")
    if choice is not RuntimeChoice.AUTO:
        return _open(RuntimeProgram(choice.value), environ, data_directory)
    for program in RuntimeProgram:
        if _find(program, environ):
            try:
                return _open(program, environ, data_directory)
            except TerminalError as error:
                _log.warning("Runtime of images passed over", extra={"cause": str(error)})
    return None


def owner_of(data_directory: Path) -> str:
    """Return the value of a data directory's label."""
    return hashlib.sha256(str(data_directory.resolve()).encode(errors="surrogateescape")).hexdigest()[:24]


def podman_abilities(info: Mapping[str, Any], *, has_init: bool, has_names: bool) -> Abilities:
    """Return podman's abilities from `podman info` and its installed helpers."""
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
    limits = {name for name, field in (("cpu", "CpuCfsQuota"), ("memory", "MemoryLimit")) if info.get(field, True)}
    return Abilities(frozenset(limits), init=True, names=True)


def _open(program: RuntimeProgram, environ: Mapping[str, str], data_directory: Path) -> ContainerRuntime:
    path = _find(program, environ)
    if path is None:
        others = [other for other in RuntimeProgram if other is not program and _find(other, environ)]
        remedy = f"use --containers {others[0]}" if others else f"install it (apt-get install {_PACKAGES[program]})"
        raise TerminalError(f"--containers {program}: {program} is not installed; {remedy}, or leave the option out")
    environment = {name: value for name, value in environ.items() if not name.startswith("KATIB_")}
    info = _ask(program, path, environment)
    if program is RuntimeProgram.PODMAN:
        names = _any(_PODMAN_NAMES) and (not _is_rootless(info) or _has_rootless_network(environ))
        abilities = podman_abilities(info, has_init=_any(_PODMAN_INITS), has_names=names)
    else:
        abilities = docker_abilities(info)
    notes = data_directory / _NOTES if writes_pid_files(program, info) else None
    return ContainerRuntime(program, path, abilities, environment, {OWNER_LABEL: owner_of(data_directory)}, notes)


def writes_pid_files(program: RuntimeProgram, info: Mapping[str, Any]) -> bool:
    """Return whether a runtime has the option `--pidfile`, from its `info`."""
    if program is not RuntimeProgram.PODMAN or (info.get("host") or {}).get("serviceIsRemote", False):
        return False
    major, _, _ = str((info.get("version") or {}).get("Version", "")).partition(".")
    return major.isdecimal() and int(major) >= _HAS_PID_FILES


def _find(program: RuntimeProgram, environ: Mapping[str, str]) -> str | None:
    return shutil.which(program.value, path=environ.get("PATH"))


def _has_rootless_network(environ: Mapping[str, str]) -> bool:
    has_way = any(shutil.which(way, path=environ.get("PATH")) for way in _ROOTLESS_WAYS)
    return has_way and os.access(_TUNNEL, os.R_OK | os.W_OK)


def _any(paths: tuple[str, ...]) -> bool:
    return any(Path(path).is_file() for path in paths)


def _ask(program: RuntimeProgram, path: str, environment: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the output of `info`.

    Raises:
        TerminalError: The runtime does not answer.
    """
    try:
        result = _run([path, "info", "--format", _FORMATS[program]], environment, _INFO_SECONDS)
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


def _run(argv: Sequence[str], environ: Mapping[str, str], seconds: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - the client that the user asked for, or that an engine of this account used
        argv,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds,
        check=False,
    )


def _parsed(text: str) -> Mapping[str, Any]:
    try:
        info = json.loads(text)
    except ValueError:
        return {}
    return info if isinstance(info, dict) else {}


_SECONDS = 60.0


@contextmanager
def keep_clean(
    note: Path, data_directory: Path, runtime: ContainerRuntime | None, environ: Mapping[str, str]
) -> Iterator[None]:
    """Remove an earlier engine's containers, and leave a note with which the next engine removes this one's."""
    _remove_noted(note, data_directory, environ)
    if runtime is not None:
        note.write_text(json.dumps({"program": runtime.program.value, "path": runtime.path}))
    try:
        yield
    finally:
        _remove_noted(note, data_directory, environ, level=logging.DEBUG)  # this engine's own, already ending


def _remove_noted(
    note: Path, data_directory: Path, environ: Mapping[str, str], *, level: int = logging.WARNING
) -> None:
    try:
        noted = json.loads(note.read_text())
        program, path = RuntimeProgram(noted["program"]), str(noted["path"])
    except (OSError, ValueError, KeyError, TypeError):
        return
    if remove_all(program, path, owner_of(data_directory), environ, level=level):
        note.unlink(missing_ok=True)


def remove_all(
    program: RuntimeProgram, path: str, owner: str, environ: Mapping[str, str], *, level: int = logging.WARNING
) -> bool:
    """Remove all containers and networks of a data directory; False if the runtime failed to."""
    containers = [path, *list_words("ps", f"{OWNER_LABEL}={owner}")], [path, *remove_words(program)]
    networks = [path, *list_words("network", f"{OWNER_LABEL}={owner}")], [path, "network", "rm"]
    return _removed(*containers, environ, level) and _removed(*networks, environ, level)


def removal_script(program: RuntimeProgram, path: str, engine_id: str) -> str:
    """Return a shell script that removes all containers and networks of one engine.

    A killed client may have requested a container that appears a moment later, so the script looks twice.
    """
    label = f"{ENGINE_LABEL}={engine_id}"
    containers = _script_of([path, *list_words("ps", label)], [path, *remove_words(program)])
    networks = _script_of([path, *list_words("network", label)], [path, "network", "rm"])
    return f"{containers}; sleep 1; {containers}; {networks}"


def _script_of(find: Sequence[str], remove: Sequence[str]) -> str:
    return f'found=$({shlex.join(find)}) && [ -n "$found" ] && {shlex.join(remove)} $found'


def _removed(find: Sequence[str], remove: Sequence[str], environ: Mapping[str, str], level: int) -> bool:
    """Remove the objects found; True if none remain, even if another process removed them."""
    found = _output(find, environ)
    if not found or not found.split():
        return found is not None
    _log.log(
        level, "Containers or networks of an engine that has ended are removed", extra={"count": len(found.split())}
    )
    return _output([*remove, *found.split()], environ) is not None or _output(find, environ) == ""


def _output(argv: Sequence[str], environ: Mapping[str, str]) -> str | None:
    with suppress(OSError, subprocess.TimeoutExpired):
        result = _run(argv, environ, _SECONDS)
        if result.returncode == 0:
            return result.stdout
        _log.warning("Containers cannot be removed", extra={"cause": result.stderr.strip()[-200:]})
    return None


OWNER_LABEL = "katib.data-dir"
"""Label of all containers and networks: a digest of the data directory."""

ENGINE_LABEL = "katib.engine"
"""Label of all containers and networks: the engine that made them. Its guard removes these, and nothing of a later
engine."""

_PID = "pid"
_OUT_OF_MEMORY = "oom"
"""Name of the empty file that podman's monitor creates in its working directory."""


@dataclass(frozen=True, slots=True)
class ContainerRuntime:
    """A container runtime that answers.

    Attributes:
        notes: Directory with a working directory for each start: the client notes there that the first process started,
            and podman's monitor, which outlives it, that memory ran out. None without such notes.
    """

    program: RuntimeProgram
    path: str
    abilities: Abilities = field(default_factory=Abilities)
    environment: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    notes: Path | None = None

    def prepared(self) -> ContainerRuntime:
        """Return this runtime with an empty directory of notes.

        The directory is None if it cannot be made. Only the engine that has claimed the data directory may call this.
        """
        if self.notes is None:
            return self
        try:
            shutil.rmtree(self.notes, ignore_errors=True)
            make_below(self.notes.parents[1], self.notes, 0o700)
        except OSError:
            return replace(self, notes=None)
        return self

    def removal(self) -> str:
        """Return a shell script that removes all containers and networks of this engine; see `of_engine`."""
        return removal_script(self.program, self.path, self.labels[ENGINE_LABEL])

    def of_engine(self, engine_id: str) -> ContainerRuntime:
        """Return this runtime for one engine: all its objects get the engine's label."""
        return replace(self, labels={**self.labels, ENGINE_LABEL: engine_id})

    @property
    def has_names(self) -> bool:
        """Whether containers find each other by name in a network of their own."""
        return self.abilities.names

    def has_image(self, image: str) -> ContainerCommand:
        """Return the command that succeeds if an image is on this machine."""
        return self._command(("image", "inspect", "--format", "{{.Id}}", image))

    def pull(self, image: str) -> ContainerCommand:
        return self._command(("pull", "--quiet", image))

    def pull_failure(self, run: ImageRun, output: str, *, is_here: bool) -> SpawnError:
        return pull_failure(self.program, run, output, is_here=is_here)

    def make_network(self, name: str) -> ContainerCommand:
        """Return the command that creates a network unless it exists; several pods may run it at once."""
        labels = (word for key, value in self.labels.items() for word in ("--label", f"{key}={value}"))
        words = shlex.join((self.path, "network", "create", *labels, name))
        exists = f"{shlex.quote(self.path)} network inspect {shlex.quote(name)} >/dev/null 2>&1"
        script = f"{exists} || {words} >/dev/null || {exists}"
        return ContainerCommand("katib-network", ("/bin/sh", "-c", script), dict(self.environment), "")

    def remove_network(self, name: str) -> ContainerCommand:
        return self._command(("network", "rm", name))

    def start(self, run: ImageRun, name: str) -> ContainerCommand:
        """Return the command that runs a container until its end, and then removes it."""
        notes = self._notes(name)
        pid_file = notes and notes / _PID
        words, passed = run_line(self.program, self.abilities, run, name, self.labels, self.environment, pid_file)
        return self._command(words, passed, str(notes or ""))

    def kill(self, name: str) -> ContainerCommand:
        return self._command(("kill", "--signal", "KILL", name))

    def remove(self, name: str) -> ContainerCommand:
        """Return the command that removes a container in any state."""
        return self._command(remove_words(self.program, name))

    def failure(self, run: ImageRun, name: str, code: int, output: str) -> SpawnError | None:
        """Return the error of a container that did not start; None if it started."""
        return start_failure(self.program, run, code, output, has_started=self._is_noted(name, _PID))

    def ran_out_of_memory(self, name: str) -> bool:
        """Return whether a process of a container was killed because it exceeded the memory limit."""
        return self._is_noted(name, _OUT_OF_MEMORY)

    def forget(self, name: str) -> None:
        if notes := self._notes(name):
            shutil.rmtree(notes, ignore_errors=True)

    def _notes(self, name: str) -> Path | None:
        return None if self.notes is None else self.notes / name

    def _is_noted(self, name: str, what: str) -> bool:
        notes = self._notes(name)
        return notes is not None and (notes / what).exists()

    def _command(
        self, words: Sequence[str], further: Mapping[str, str] | None = None, directory: str = ""
    ) -> ContainerCommand:
        return ContainerCommand(self.program, (self.path, *words), {**self.environment, **(further or {})}, directory)
