"""Which runtime runs the images of trials, decided once when an engine opens, and what an engine left there that ended.

Every container carries a label of its data directory, and while an engine uses a runtime a note in that directory says
which. One engine works in a directory at a time, so what carries the label when an engine opens is left over.

Containers need not wait for that: the guard of an engine that was killed runs `removal_script`. Another engine may have
opened by then, so the script goes by the label of its own engine.

A `Runtime` is one of them as pods use it. Fits `katib.places.machine.pods.images.ImageRuntime`.
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
from katib.model.files.private_directories import make_below
from katib.places.machine.containers.arguments import (
    Abilities,
    Program,
    list_words,
    remove_words,
    run_line,
)
from katib.places.machine.containers.failures import is_daemon_missing, pull_failure, runtime_down, short, start_failure
from katib.places.machine.pods.environment import ContainerCommand
from katib.places.machine.pods.images import ImageRun
from katib.places.machine.processes.handle import SpawnError

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


def choose(word: str, environ: Mapping[str, str], data_directory: Path) -> Runtime | None:
    """Return the runtime that is to be used, before it is `prepared`; None: trials run as processes.

    Args:
        word: What the user says, a `Choice`. `auto` takes the first that answers, podman before docker.
        environ: Where the clients are looked for, and what they are started with.
        data_directory: Of the engine; all that it makes is labelled with it.

    Raises:
        TerminalError: The one that was asked for is not installed or does not answer.
    """
    choice = Choice(word)
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
def keep_clean(note: Path, data_directory: Path, runtime: Runtime | None, environ: Mapping[str, str]) -> Iterator[None]:
    """Remove what an earlier engine left, and have the next one remove what this one leaves.

    Args:
        note: Where the runtime is noted.
        data_directory: Of the engine.
        runtime: What this engine uses; None: nothing.
        environ: What the clients are started with.
    """
    _remove_noted(note, data_directory, environ)
    if runtime is not None:
        note.write_text(json.dumps({"program": runtime.program.value, "path": runtime.path}))
    try:
        yield
    finally:
        _remove_noted(note, data_directory, environ, level=logging.DEBUG)  # they are ours, and on their way out


def _remove_noted(
    note: Path, data_directory: Path, environ: Mapping[str, str], *, level: int = logging.WARNING
) -> None:
    try:
        noted = json.loads(note.read_text())
        program, path = Program(noted["program"]), str(noted["path"])
    except (OSError, ValueError, KeyError, TypeError):
        return
    if remove_all(program, path, owner_of(data_directory), environ, level=level):
        note.unlink(missing_ok=True)


def remove_all(
    program: Program, path: str, owner: str, environ: Mapping[str, str], *, level: int = logging.WARNING
) -> bool:
    """Remove all containers and networks of a data directory; False when the runtime did not do it.

    Args:
        program: Whose options these are.
        path: Of its client.
        owner: Of the label of a data directory.
        environ: What the client is started with.
        level: How loudly to say that there were some.
    """
    containers = [path, *list_words("ps", f"{OWNER_LABEL}={owner}")], [path, *remove_words(program)]
    networks = [path, *list_words("network", f"{OWNER_LABEL}={owner}")], [path, "network", "rm"]
    return _removed(*containers, environ, level) and _removed(*networks, environ, level)


def removal_script(program: Program, path: str, engine_id: str) -> str:
    """Return a shell script that removes all containers and networks of one engine.

    A client that was killed may have asked for a container that appears a moment later, so it looks twice.
    """
    label = f"{ENGINE_LABEL}={engine_id}"
    containers = _script_of([path, *list_words("ps", label)], [path, *remove_words(program)])
    networks = _script_of([path, *list_words("network", label)], [path, "network", "rm"])
    return f"{containers}; sleep 1; {containers}; {networks}"


def _script_of(find: Sequence[str], remove: Sequence[str]) -> str:
    return f'found=$({shlex.join(find)}) && [ -n "$found" ] && {shlex.join(remove)} $found'


def _removed(find: Sequence[str], remove: Sequence[str], environ: Mapping[str, str], level: int) -> bool:
    """Remove what is found; True when nothing is left, even if another process has removed it."""
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
"""Label of everything that we make: for which data directory it was, as a digest."""

ENGINE_LABEL = "katib.engine"
"""Likewise: which engine has made it. Its guard removes that, and nothing of the engine after it."""

_PID = "pid"
_OUT_OF_MEMORY = "oom"
"""An empty file of this name is what podman's monitor leaves where it was started."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """A runtime that was asked and answers.

    Attributes:
        program: Whose options it takes.
        path: Of its client.
        abilities: What it can do here.
        environment: Of its client.
        labels: Of all containers.
        notes: Where each start has a directory: its client runs there, and writes down that the first process has
            started; podman's monitor, which goes on from there, that memory ran out. None where it does not.
    """

    program: Program
    path: str
    abilities: Abilities = field(default_factory=Abilities)
    environment: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    notes: Path | None = None

    def prepared(self) -> Runtime:
        """Return the same with an empty directory for notes, without what a killed engine left in it.

        The directory is None when it cannot be had. Only the engine that has claimed the data directory may call this.
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
        """Return a shell script that removes what the engine of this runtime made; see `of_engine`."""
        return removal_script(self.program, self.path, self.labels[ENGINE_LABEL])

    def of_engine(self, engine_id: str) -> Runtime:
        """Return the same for one engine, whose name everything bears that it makes."""
        return replace(self, labels={**self.labels, ENGINE_LABEL: engine_id})

    @property
    def has_names(self) -> bool:
        """Whether containers find each other by name in a network of their own."""
        return self.abilities.names

    def has_image(self, image: str) -> ContainerCommand:
        """Return the command that succeeds where an image is on this machine."""
        return self._command(("image", "inspect", "--format", "{{.Id}}", image))

    def pull(self, image: str) -> ContainerCommand:
        """Return the command that fetches an image."""
        return self._command(("pull", "--quiet", image))

    def pull_failure(self, run: ImageRun, output: str, *, is_here: bool) -> SpawnError:
        """Return why an image could not be fetched."""
        return pull_failure(self.program, run, output, is_here=is_here)

    def make_network(self, name: str) -> ContainerCommand:
        """Return the command that makes a network, unless it is there; several pods may do so at once."""
        labels = (word for key, value in self.labels.items() for word in ("--label", f"{key}={value}"))
        words = shlex.join((self.path, "network", "create", *labels, name))
        exists = f"{shlex.quote(self.path)} network inspect {shlex.quote(name)} >/dev/null 2>&1"
        script = f"{exists} || {words} >/dev/null || {exists}"
        return ContainerCommand("katib-network", ("/bin/sh", "-c", script), dict(self.environment), "")

    def remove_network(self, name: str) -> ContainerCommand:
        """Return the command that removes a network."""
        return self._command(("network", "rm", name))

    def start(self, run: ImageRun, name: str) -> ContainerCommand:
        """Return the command that runs a container until its end, and removes it then."""
        notes = self._notes(name)
        pid_file = notes and notes / _PID
        words, passed = run_line(self.program, self.abilities, run, name, self.labels, self.environment, pid_file)
        return self._command(words, passed, str(notes or ""))

    def kill(self, name: str) -> ContainerCommand:
        """Return the command that kills a container."""
        return self._command(("kill", "--signal", "KILL", name))

    def remove(self, name: str) -> ContainerCommand:
        """Return the command that removes a container whatever its state."""
        return self._command(remove_words(self.program, name))

    def failure(self, run: ImageRun, name: str, code: int, output: str) -> SpawnError | None:
        """Return why a container did not start."""
        return start_failure(self.program, run, code, output, has_started=self._is_noted(name, _PID))

    def ran_out_of_memory(self, name: str) -> bool:
        """Return whether a process of a container was ended because it took more memory than its limit."""
        return self._is_noted(name, _OUT_OF_MEMORY)

    def forget(self, name: str) -> None:
        """Remove what was noted about a start."""
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
