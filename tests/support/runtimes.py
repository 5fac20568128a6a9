"""The runtimes that images run with, podman and docker, as far as they work here, with the images of the tests."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from tests.support import podman

ALL = ("podman-runc", "podman-crun", "docker")
"""What tests of containers run with, as far as it is installed."""

WITH_NETWORKS = ("podman", "docker")
"""What tests of networks run with: crun may need a view of the file system here that others do not share, and then
podman elsewhere cannot list its containers while they have a network."""


@dataclass(frozen=True)
class Installed:
    """A runtime that works here.

    Attributes:
        program: Its name, as `--containers` takes it.
        variables: What its client needs in its environment.
    """

    program: str
    variables: Mapping[str, str]

    @property
    def has_networks(self) -> bool:
        """Whether others can list its containers while they have a network."""
        return "PATH" not in self.variables

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return podman.run(self.program, *words, variables=self.variables)

    def containers(self, chosen: str) -> list[str]:
        """Return the names of containers, also of those that have ended."""
        return self._listed("ps", "--all", "--format", "{{.Names}}", "--filter", chosen)

    def running(self, chosen: str) -> list[str]:
        """Return the names of containers that run."""
        return self._listed("ps", "--format", "{{.Names}}", "--filter", chosen)

    def networks(self, chosen: str) -> list[str]:
        """Return the names of networks."""
        return self._listed("network", "ls", "--format", "{{.Name}}", "--filter", chosen)

    def _listed(self, *words: str) -> list[str]:
        result = self.run(*words)
        assert result.returncode == 0, result.stderr
        return result.stdout.split()


@functools.cache
def installed(name: str) -> Installed:
    """Return a runtime with the images of tests.

    Args:
        name: `podman`, `docker`, or `podman-crun` and `podman-runc` for podman with a certain runtime below it.

    Raises:
        LookupError: It does not work here; with the reason.
    """
    program, _, oci_runtime = name.partition("-")
    if program == "podman":
        return Installed(program, podman.environment(oci_runtime))
    if shutil.which(program) is None:
        raise LookupError(f"{program} is not installed (apt-get install docker.io)")
    found = Installed(program, {name: os.environ[name] for name in ("DOCKER_HOST",) if name in os.environ})
    answer = found.run("info", "--format", "{{.ServerVersion}}")
    if answer.returncode or not answer.stdout.strip():
        raise LookupError(f"the service of {program} does not run")
    podman.make_images(program)
    return found
