"""A runner of local jobs whose containers run in the images of tests."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from katib.places.machine.containers import RuntimeChoice, choose
from katib.places.machine.containers.choice import OWNER_LABEL, owner_of
from tests.support import podman
from tests.support.local_jobs import PRIMARY, Home, home
from tests.support.runtimes import Installed


@contextmanager
def home_of_boxes(
    root: Path, runtime: Installed, *, machine: Mapping[str, Any] = MappingProxyType({}), **options: Any
) -> Iterator[Home]:
    """Run a runner that leaves no container behind."""
    images = choose(RuntimeChoice(runtime.program), {**os.environ, **runtime.variables}, root)
    images = images.prepared() if images is not None else None
    with home(root, machine={"images": images, **machine}, **options) as opened:
        yield opened
    assert runtime.containers(mine(root)) == []


def mine(root: Path) -> str:
    """Return what selects the containers and networks of a data directory."""
    return f"label={OWNER_LABEL}={owner_of(root)}"


def boxes(*words: str, name: str = PRIMARY, **fields: Any) -> dict[str, Any]:
    """Return a container that runs in the image of the tests."""
    command = {"command": list(words)} if words else {}
    return {"name": name, "image": podman.IMAGE, **command, **fields}


def script(text: str, **fields: Any) -> dict[str, Any]:
    """Return a container that runs a shell script in the image of the tests."""
    return boxes("/bin/sh", "-c", text.replace("$$", "$$$$"), **fields)
