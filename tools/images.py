"""Build the container images (run by `make images`), with docker, podman or buildah, whichever is installed.

`python -m tools.images [NAME...]` builds all images, or the named ones. Options for the builder on this machine go into
`IMAGE_BUILD_OPTIONS`, such as `--build-arg BASE=registry.example.com/python:3.11-slim`.
"""

# ruff: noqa: S603  # the programs are the developer's own

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from katib.model.version import __version__

ROOT = Path(__file__).resolve().parent.parent
TAG = __version__
NAMES = ("metrics-collector", "suggestion", "controller", "db-manager", "early-stopping")
"""In the order of building: the quickest first, with layers that the others share, then the slowest."""

BUILDERS = {"docker": ("docker", "build"), "podman": ("podman", "build"), "buildah": ("buildah", "bud", "--layers")}
AT_ONCE = 3
"""Builds wait for the network half of the time."""

Deliver = Callable[[str], None]
"""Delivers a built image to the place of its use."""


class BuildError(Exception):
    """An image could not be built, or there is no builder."""


def main(arguments: Sequence[str]) -> int:
    unknown = sorted(set(arguments) - set(NAMES))
    if unknown:
        print(f"no image {', '.join(unknown)}; there are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    try:
        build_all(find_builder(), arguments or NAMES)
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def reference(name: str) -> str:
    return f"katib/{name}:{TAG}"


def find_builder() -> list[str]:
    """Return the command of an installed builder."""
    for program, command in BUILDERS.items():
        if shutil.which(program):
            return list(command)
    raise BuildError(f"no builder of images; install one of {', '.join(BUILDERS)}")


def build_all(builder: Sequence[str], names: Iterable[str], deliver: Deliver | None = None) -> None:
    """Build the first image, then the others, a few at once; the first failure is raised when all have ended.

    All images have the stage of our own code. A builder that caches layers then builds it once, not five times at once.

    Args:
        builder: Command and its options.
        names: Names of the images.
        deliver: Called for each built image, one at a time for all.
    """
    with ThreadPoolExecutor(AT_ONCE) as pool, ThreadPoolExecutor(1) as deliveries:
        builds: list[Future[str]] = []
        for name in names:
            builds.append(pool.submit(_build, builder, name))
            wait(builds[:1])
        waiting = []
        for build in builds:
            name = build.result()
            if deliver is not None:
                waiting.append(deliveries.submit(deliver, reference(name)))
        for delivery in waiting:
            delivery.result()


def _build(builder: Sequence[str], name: str) -> str:
    started = time.monotonic()
    dockerfile = ROOT / "images" / name / "Dockerfile"
    options = shlex.split(os.environ.get("IMAGE_BUILD_OPTIONS", ""))
    # The full name: without it buildah would call the image localhost/..., which no kubelet looks for.
    tag = f"docker.io/{reference(name)}"
    command = [*builder, *options, "--file", str(dockerfile), "--tag", tag, str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{reference(name)} could not be built: {shlex.join(command)}\n{done.stdout}{done.stderr}")
    print(f"built {reference(name)} in {time.monotonic() - started:.0f} s", flush=True)
    return name


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
