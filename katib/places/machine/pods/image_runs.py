"""Containers that are to run in their images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from katib.places.machine.pods.environment import HOST_NETWORK


class Pull(StrEnum):
    """When an image is fetched, in the words that podman and docker share."""

    ALWAYS = "always"
    MISSING = "missing"
    NEVER = "never"


class Mount(NamedTuple):
    """A path of this machine that a container knows by another.

    Attributes:
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
        environment: Additions to the variables of the image.
        working_directory: Empty: that of the image.
        hostname: Its own name.
        aliases: Further names that lead to it in a network of its own.
        mounts: Nearer to the root first.
        user: `uid` or `uid:gid`; empty: that of the image.
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
