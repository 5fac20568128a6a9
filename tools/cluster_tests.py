"""Run the tests that need a cluster (run by `make test-cluster`), in the first of these that is there.

1. The cluster of `KUBECONFIG`. Its nodes must have the images; they are built when it is the toolkit's cluster.
2. The folder of binaries of `KUBEBUILDER_ASSETS`: an API server without nodes, so tests with pods are left out.
3. The toolkit beside the checkout, `../shared/kube/kube` (or `KUBE_TOOLKIT`): a cluster on this machine. Needs root.

A cluster that runs already is left running, and what is installed there stays. What is started here is taken down.
Arguments go to pytest. `KEEP_CLUSTER=1` leaves everything as it is after the tests, and
`IMAGES="controller suggestion"` builds just these (or none, when empty) for somebody who changed little.

`--why-not` only says why there is no cluster, and nothing when there is one. `--binaries` prints a folder for
`KUBEBUILDER_ASSETS`, if there is one.
"""

# ruff: noqa: S603, S607  # the programs are the developer's own, and on his PATH

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools.images import NAMES, ROOT, BuildError, build_all
from tools.repair_api_server import SERVER, repaired_copy

TOOLKIT = Path(os.environ.get("KUBE_TOOLKIT", ROOT.parent / "shared" / "kube" / "kube"))
STATE = Path(os.environ.get("KUBE_DIR", "/tmp/kube"))  # noqa: S108  # the toolkit's own default
BINARIES = Path(os.environ.get("KUBE_BIN", f"{STATE}-repaired"))
INSTALL = ROOT / "manifests" / "installs" / "standalone"
NAMESPACE = "kubeflow"
CLAIM = "katib-observations"
READY_SECONDS = 180
OLDEST_KUBECTL = 21
BASE_IMAGE = "docker.io/library/python:3.11-slim"


class UnusableError(Exception):
    """There is nothing to run the tests in; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster to test in.

    Attributes:
        kubeconfig: Of its admin.
        is_toolkits: Whether its node is this machine, and images can be given to it.
    """

    kubeconfig: Path
    is_toolkits: bool

    def kubectl(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run kubectl."""
        command = ["kubectl", "--kubeconfig", str(self.kubeconfig), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if check and done.returncode:
            raise UnusableError(f"{shlex.join(command)}\n{done.stdout}{done.stderr}")
        return done


def main(arguments: Sequence[str]) -> int:
    """Find a cluster, install, test, and clean up."""
    if "--why-not" in arguments:
        print(why_there_is_none())
        return 0
    try:
        if "--binaries" in arguments:
            print(_binaries())
            return 0
        return _run(arguments)
    except (UnusableError, BuildError) as error:
        print(f"make test-cluster: {error}", file=sys.stderr)
        return 1


def _run(arguments: Sequence[str]) -> int:
    if not os.environ.get("KUBECONFIG") and os.environ.get("KUBEBUILDER_ASSETS"):
        print("no nodes behind KUBEBUILDER_ASSETS: tests that need pods are left out", flush=True)
        return _pytest(["-m", "cluster", "tests", "--ignore=tests/cluster", *arguments], {})
    with ExitStack() as stack:
        cluster = stack.enter_context(found_cluster())
        stack.enter_context(installation(cluster))
        with timed("tests/cluster"):
            code = _pytest(["tests/cluster", *arguments], {"KUBECONFIG": str(cluster.kubeconfig)})
    return code


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Say how long something took."""
    started = time.monotonic()
    yield
    print(f"{what}: {time.monotonic() - started:.0f} s", flush=True)


# --- the cluster ------------------------------------------------------------------------------------------------------


@contextmanager
def found_cluster() -> Iterator[Cluster]:
    """Give the cluster to test in, with images where they can be built; take down what was started."""
    _check_kubectl()
    if named := os.environ.get("KUBECONFIG"):
        kubeconfig = Path(named)
        cluster = Cluster(kubeconfig, is_toolkits=(kubeconfig.parent / "run" / "containerd.sock").exists())
        if cluster.is_toolkits:
            _build_images(kubeconfig.parent)
        yield cluster
        return
    _check_toolkit()
    was_running = _is_running()
    if not was_running:
        _start()
    try:
        _build_images(STATE)
        yield Cluster(STATE / "kubeconfig", is_toolkits=True)
    finally:
        if not was_running and not os.environ.get("KEEP_CLUSTER"):
            _toolkit("down", "--purge")


def why_there_is_none() -> str:
    """Return why the tests cannot run here; empty when they can."""
    if os.environ.get("KUBECONFIG") or os.environ.get("KUBEBUILDER_ASSETS"):
        return ""
    try:
        _check_toolkit()
    except UnusableError as error:
        return str(error)
    return ""


def _check_toolkit() -> None:
    if not TOOLKIT.exists():
        raise UnusableError(
            f"no cluster: set KUBECONFIG, or KUBE_TOOLKIT to a toolkit that starts one ({TOOLKIT} is not there)"
        )
    if os.geteuid() != 0:
        raise UnusableError(f"no cluster: set KUBECONFIG, or run as root, which {TOOLKIT} needs")


def _check_kubectl() -> None:
    try:
        done = subprocess.run(
            ["kubectl", "version", "--client", "-o", "json"], capture_output=True, text=True, check=False
        )
        minor = int(json.loads(done.stdout)["clientVersion"]["minor"].rstrip("+"))
    except (OSError, ValueError, KeyError):
        raise UnusableError("kubectl is missing; install version 1.21 or newer") from None
    if minor < OLDEST_KUBECTL:
        raise UnusableError(f"kubectl 1.{minor} does not know components of kustomize; install version 1.21 or newer")


def _is_running() -> bool:
    pid = STATE / "run" / "kubelet.pid"
    try:
        os.kill(int(pid.read_text()), 0)
    except (OSError, ValueError):
        return False
    return True


def _start() -> None:
    with timed("cluster"):
        _binaries()
        _toolkit("node")
    with timed("base image"):
        _toolkit("base-image", BASE_IMAGE)


def _binaries() -> Path:
    """Return the folder of the toolkit's binaries, whose API server is repaired (`tools/repair_api_server.py`)."""
    _check_toolkit()
    if not (BINARIES / SERVER).exists():
        unpacked = Path(f"{STATE}-unpacked")
        _toolkit("unpack", binaries=unpacked)
        repaired_copy(unpacked, BINARIES)
    return BINARIES


def _toolkit(*arguments: str, binaries: Path = BINARIES) -> None:
    environment = {**os.environ, "KUBE_BIN": str(binaries), "KUBE_DIR": str(STATE)}
    done = subprocess.run([TOOLKIT, *arguments], capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise UnusableError(f"{TOOLKIT} {shlex.join(arguments)}\n{done.stdout}{done.stderr}")


def _build_images(state: Path) -> None:
    """Build in the toolkit's own storage, where the base image is, and hand the images to its node."""
    storage = ["--storage-driver", "vfs", "--root", f"{state}/buildah", "--runroot", f"{state}/run/buildah"]
    certificates = "/etc/ssl/certs:/etc/ssl/certs:ro"
    options = ["--isolation", "chroot", "--network", "host", "--pull-never", "--volume", certificates]
    node = ["ctr", "--address", f"{state}/run/containerd.sock", "--namespace", "k8s.io", "images", "import"]

    def deliver(image: str) -> None:
        archive = state / "katib-image.tar"
        archive.unlink(missing_ok=True)
        _do(["buildah", *storage, "push", "-q", f"docker.io/{image}", f"docker-archive:{archive}:docker.io/{image}"])
        _do([*node, str(archive)])
        archive.unlink()

    names = os.environ.get("IMAGES", " ".join(NAMES)).split()
    with timed("images"):
        build_all(["buildah", *storage, "bud", *options], names, deliver)


def _do(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnusableError(f"{shlex.join(command)}\n{done.stdout}{done.stderr}")


# --- the installation -------------------------------------------------------------------------------------------------


@contextmanager
def installation(cluster: Cluster) -> Iterator[None]:
    """Install what users install, wait until it works, and remove it unless it was there before."""
    was_there = cluster.kubectl("-n", NAMESPACE, "get", "deployment", "katib-controller", check=False).returncode == 0
    with timed("installation"):
        _give_volume(cluster)
        cluster.kubectl("apply", "-k", str(INSTALL))
        if was_there:  # the tag is the same, the image is not
            cluster.kubectl("-n", NAMESPACE, "rollout", "restart", "deployment", "-l", "katib.kubeflow.org/component")
        _await_ready(cluster)
    try:
        yield
    finally:
        if not was_there and not os.environ.get("KEEP_CLUSTER"):
            cluster.kubectl("delete", "-k", str(INSTALL), "--ignore-not-found", "--timeout=60s", check=False)


def _give_volume(cluster: Cluster) -> None:
    """Make the volume that a cluster with a storage class would make for the claim of the observation log."""
    classes = json.loads(cluster.kubectl("get", "storageclasses", "-o", "json").stdout)["items"]
    if classes or not cluster.is_toolkits:
        return
    directory = cluster.kubeconfig.parent / CLAIM
    directory.mkdir(exist_ok=True)
    directory.chmod(0o777)  # the DB manager is no root, and volumes of this type know no group
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": CLAIM},
        "spec": {
            "capacity": {"storage": "5Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": NAMESPACE, "name": CLAIM},
            "hostPath": {"path": str(directory)},
        },
    }
    path = cluster.kubeconfig.parent / f"{CLAIM}.json"
    path.write_text(json.dumps(volume))
    phase = cluster.kubectl("get", "pv", CLAIM, "-o", "jsonpath={.status.phase}", check=False).stdout
    if phase in {"Released", "Failed"}:  # its claim is gone, and it waits for somebody to say that it may be used again
        cluster.kubectl("delete", "pv", CLAIM)
    cluster.kubectl("apply", "-f", str(path))


def _await_ready(cluster: Cluster) -> None:
    until = time.monotonic() + READY_SECONDS
    for name in ("katib-db-manager", "katib-controller"):
        left = max(1, int(until - time.monotonic()))
        done = cluster.kubectl(
            "-n", NAMESPACE, "rollout", "status", f"deployment/{name}", f"--timeout={left}s", check=False
        )
        if done.returncode:
            raise UnusableError(f"{name} is not ready after {READY_SECONDS} s\n{_trouble(cluster, name)}")


def _trouble(cluster: Cluster, name: str) -> str:
    looks: list[Callable[[], subprocess.CompletedProcess[str]]] = [
        lambda: cluster.kubectl("-n", NAMESPACE, "get", "pods", "-o", "wide", check=False),
        lambda: cluster.kubectl("-n", NAMESPACE, "describe", "deployment", name, check=False),
        lambda: cluster.kubectl("-n", NAMESPACE, "logs", f"deployment/{name}", "--tail=30", check=False),
    ]
    return "\n".join(done.stdout + done.stderr for done in (look() for look in looks))


def _pytest(arguments: Sequence[str], variables: dict[str, str]) -> int:
    command = [sys.executable, "-m", "pytest", "-q", *arguments]
    return subprocess.run(command, cwd=ROOT, check=False, env={**os.environ, **variables}).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
