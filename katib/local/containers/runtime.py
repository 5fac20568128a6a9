"""One runtime of this machine as pods use it. Fits `katib.local.pods.images.ImageRuntime`."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from katib.local.containers.arguments import (
    Abilities,
    Program,
    remove_words,
    run_line,
)
from katib.local.containers.failures import pull_failure, start_failure
from katib.local.pods.environment import ContainerCommand
from katib.local.pods.images import ImageRun
from katib.local.processes.handle import SpawnError

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
            self.notes.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError:
            return replace(self, notes=None)
        return self

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
