"""One runtime of this machine as pods use it. Fits `katib.local.pods.images.ImageRuntime`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from katib.local.containers.arguments import (
    Abilities,
    Program,
    kill_words,
    network_words,
    remove_words,
    run_line,
)
from katib.local.containers.failures import pull_failure, start_failure
from katib.local.pods.environment import ContainerCommand
from katib.local.pods.images import ImageRun
from katib.local.processes.spawn_errors import SpawnError

OWNER_LABEL = "katib.data-dir"
"""Label of everything that we make: for which data directory it was, as a digest."""


ENGINE_LABEL = "katib.engine"
"""Likewise: which engine has made it. Its guard removes that, and nothing of the engine after it."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """A runtime that was asked and answers.

    Attributes:
        program: Whose options it takes.
        path: Of its client.
        abilities: What it can do here.
        environment: Of its client.
        labels: Of all containers.
    """

    program: Program
    path: str
    abilities: Abilities = field(default_factory=Abilities)
    environment: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)

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

    def pull_failure(self, run: ImageRun, output: str) -> SpawnError:
        """Return why an image could not be fetched."""
        return pull_failure(self.program, run, output)

    def make_network(self, name: str) -> ContainerCommand:
        """Return the command that makes a network, unless it is there; several pods may do so at once."""
        words = " ".join(shlex.quote(word) for word in (self.path, *network_words(name, self.labels)))
        exists = f"{shlex.quote(self.path)} network inspect {shlex.quote(name)} >/dev/null 2>&1"
        script = f"{exists} || {words} >/dev/null || {exists}"
        return ContainerCommand("katib-network", ("/bin/sh", "-c", script), dict(self.environment), "")

    def remove_network(self, name: str) -> ContainerCommand:
        """Return the command that removes a network."""
        return self._command(("network", "rm", name))

    def start(self, run: ImageRun, name: str) -> ContainerCommand:
        """Return the command that runs a container until its end, and removes it then."""
        line = run_line(self.program, self.abilities, run, name, self.labels, self.environment)
        return self._command(line.words, line.environment)

    def kill(self, name: str) -> ContainerCommand:
        """Return the command that kills a container."""
        return self._command(kill_words(name))

    def remove(self, name: str) -> ContainerCommand:
        """Return the command that removes a container whatever its state."""
        return self._command(remove_words(self.program, name))

    def failure(self, run: ImageRun, code: int, output: str) -> SpawnError | None:
        """Return why a container did not start."""
        return start_failure(self.program, run, code, output)

    def _command(self, words: Sequence[str], further: Mapping[str, str] | None = None) -> ContainerCommand:
        return ContainerCommand(self.program, (self.path, *words), {**self.environment, **(further or {})}, "")
