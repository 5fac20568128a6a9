"""What is known about a container that runs in its image, and what a pod needs of the program that runs it.

A runtime (podman, docker) is a command of this machine. Its client stays attached while the container runs, so it is
the process of the container for everybody else: its output and its exit code are those of the container, and it passes
signals on.
Only what the client cannot do by being a process is asked for apart: the end by force, and the removal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Protocol

from katib.local.pods.environment import ContainerCommand
from katib.local.processes.spawn_errors import SpawnError

HOST_NETWORK = "host"


class Pull(StrEnum):
    """When an image is fetched, in the words that podman and docker share."""

    ALWAYS = "always"
    MISSING = "missing"
    NEVER = "never"


class Mount(NamedTuple):
    """A path of this machine that a container knows by another.

    Attributes:
        source: Of this machine.
        target: Absolute, as the container knows it.
        read_only: Whether the container cannot write there.
    """

    source: Path
    target: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class ImageRun:
    """A container that is to run in its image.

    Attributes:
        name: Unique on this machine; every start adds a number to it.
        image: As the template names it.
        pull: When it is fetched.
        entrypoint: Replaces that of the image, and its arguments too; empty: that of the image.
        arguments: Replace those of the image; empty: those of the image, if the entry point is.
        environment: What is added to the variables of the image.
        working_directory: Empty: that of the image.
        hostname: Its own name.
        aliases: Further names that lead to it in a network of its own.
        mounts: Nearer to the root first.
        labels: For people who look at it.
        user: `uid` or `uid:gid`; empty: that of the image.
        groups: Further groups.
        cpus: How many cores it may use; None without limit.
        memory_bytes: How much memory it may use; None without limit.
        gpus: Identifiers of the cards it may use.
        network: `host`, or the name of a network of the runtime.
        read_only: Whether its own files cannot be changed.
        privileged: Whether it has all rights of the runtime.
        capabilities_added: Without `CAP_`.
        capabilities_dropped: Likewise; `ALL` for all of them.
        no_new_privileges: Whether its programs cannot gain rights.
    """

    name: str
    image: str
    pull: Pull = Pull.MISSING
    entrypoint: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    working_directory: str = ""
    hostname: str = ""
    aliases: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    groups: tuple[int, ...] = ()
    cpus: Decimal | None = None
    memory_bytes: int | None = None
    gpus: tuple[str, ...] = ()
    network: str = HOST_NETWORK
    read_only: bool = False
    privileged: bool = False
    capabilities_added: tuple[str, ...] = ()
    capabilities_dropped: tuple[str, ...] = ()
    no_new_privileges: bool = False


class ImageRuntime(Protocol):
    """Runs images. Every method returns at once; commands are for the guard to start."""

    @property
    def has_names(self) -> bool:
        """Whether containers find each other by name in a network of their own."""

    def has_image(self, image: str) -> ContainerCommand:
        """Return the command that succeeds where an image is on this machine."""

    def pull(self, image: str) -> ContainerCommand:
        """Return the command that fetches an image."""

    def pull_failure(self, run: ImageRun, output: str, *, is_here: bool) -> SpawnError:
        """Return why an image could not be fetched.

        Args:
            run: What was to run.
            output: The end of what the command printed.
            is_here: Whether the image is on this machine all the same, of an earlier fetch.
        """

    def make_network(self, name: str) -> ContainerCommand:
        """Return the command that makes a network, unless it is there."""

    def remove_network(self, name: str) -> ContainerCommand:
        """Return the command that removes a network."""

    def start(self, run: ImageRun, name: str) -> ContainerCommand:
        """Return the command that runs a container until its end, and removes it then.

        Where it names a working directory, that is made for this start; otherwise any will do.
        """

    def kill(self, name: str) -> ContainerCommand:
        """Return the command that kills a container; it fails where there is none."""

    def remove(self, name: str) -> ContainerCommand:
        """Return the command that removes a container whatever its state; where there is none, it changes nothing."""

    def failure(self, run: ImageRun, name: str, code: int, output: str) -> SpawnError | None:
        """Return why a container did not start; None when its program ran, and the exit code is that of the program.

        Args:
            run: What was to run.
            name: Of the container.
            code: Exit code of the command.
            output: The end of what this start printed.
        """

    def ran_out_of_memory(self, name: str) -> bool:
        """Return whether the runtime has noted that a container took more memory than its limit."""

    def forget(self, name: str) -> None:
        """Remove what was noted about a container that has ended."""
