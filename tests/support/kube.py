"""The Kubernetes API of an engine of this process, and what talks to it."""

from __future__ import annotations

import base64
import json
import os
import shutil
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import yaml

from katib.doors.kube_api.server import KubernetesServer
from katib.places.machine import open_engine
from katib.places.machine.engine import Engine

TOKEN = "a-token-of-tests"
EXPERIMENTS = "/apis/kubeflow.org/v1beta1/namespaces/default/experiments"
TRIALS = "/apis/kubeflow.org/v1beta1/namespaces/default/trials"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
NO_KUBECTL = "there is no kubectl in PATH, KUBECTLS or KUBEBUILDER_ASSETS (Debian: kubernetes-client)"

Json = dict[str, Any]


class World(NamedTuple):
    """An engine, its server, and a client with its token."""

    engine: Engine
    server: KubernetesServer
    http: httpx.Client


@contextmanager
def kube_world(directory: Path, *, starts: bool) -> Iterator[World]:
    """Give an engine with its Kubernetes API; its controllers work only when it `starts`."""
    with open_engine(data_dir=directory, own_process=False) as engine:
        if starts:
            engine.start()
        with (
            KubernetesServer(engine.objects, directory, host="127.0.0.1", token=TOKEN) as server,
            client_of(server) as http,
        ):
            yield World(engine, server, http)


def client_of(server: KubernetesServer, token: str = TOKEN) -> httpx.Client:
    """Return a client that trusts what the kubeconfig says."""
    trusted = ssl.create_default_context(cadata=authority_of(server.kubeconfig))
    headers = {"authorization": f"Bearer {token}"}
    return httpx.Client(base_url=server.url, verify=trusted, headers=headers, timeout=30.0)


def authority_of(kubeconfig: Path) -> str:
    """Return the certificate to trust, as PEM text."""
    cluster = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]
    return base64.b64decode(cluster["certificate-authority-data"]).decode()


def config_map(name: str, **data: str) -> Json:
    """Return a ConfigMap."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def lines_of(response: httpx.Response, count: int) -> list[Json]:
    """Return the first events of a watch."""
    lines = response.iter_lines()
    return [json.loads(next(lines)) for _ in range(count)]


def kubectls() -> list[str]:
    """Return the kubectl programs to test with: those that `KUBECTLS` names, else the one that is found."""
    named = [path for path in os.environ.get("KUBECTLS", "").split(os.pathsep) if path]
    beside = Path(os.environ.get("KUBEBUILDER_ASSETS") or "/nonexistent") / "kubectl"
    found = shutil.which("kubectl") or (str(beside) if beside.is_file() else "")
    return named or ([found] if found else [])


class Kubectl:
    """Calls a kubectl.

    Args:
        program: Its path.
        kubeconfig: Where it finds the server.
        home: Where it keeps what it has read of the API.
    """

    def __init__(self, program: str, kubeconfig: Path, home: Path) -> None:
        self.command = [program]
        self.environment: Mapping[str, str] = {
            "PATH": os.environ["PATH"],
            "KUBECONFIG": str(kubeconfig),
            "HOME": str(home),
        }

    def run(self, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
        """Call it and return what it printed."""
        return subprocess.run(
            [*self.command, *arguments],
            input=text,
            capture_output=True,
            text=True,
            env=dict(self.environment),
            timeout=90,
            check=False,
        )

    def __call__(self, *arguments: str, text: str = "") -> str:
        """Call it and return its output; it must succeed."""
        done = self.run(*arguments, text=text)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}{done.stdout}"
        return done.stdout
