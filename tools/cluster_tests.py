"""Run the tests that need Kubernetes (run by `make test-cluster`): those of an API server, then those with pods.

An API server without nodes is started from a folder of binaries, `KUBEBUILDER_ASSETS` or the toolkit's; its tests wait
half of the time, and run while images are built and the first pods run. Pods run in the first of these that is there:

1. The cluster of `KUBECONFIG`. Its nodes must have the images; they are built when it is the toolkit's cluster.
2. The toolkit beside the checkout, `../shared/kube/kube` (or `KUBE_TOOLKIT`): a cluster on this machine. Needs root.

Without binaries the tests of an API server use the cluster as well; with `KUBEBUILDER_ASSETS` alone, tests with pods
are left out. A cluster that runs already is left running, and installed software stays. A cluster started here is
taken down. Arguments go to pytest for the tests with pods. `KEEP_CLUSTER=1` leaves everything as it is after the tests,
`IMAGES="controller suggestion"` builds just these (or none, when empty) after a small change, and
`ONLY_PODS=1` leaves out the tests of an API server. `INSTALL=postgres` tests with pods against that one of
`manifests/installs`; the image of its database has to be on the node. With `SECOND_CHANCE=1` a few tests that
fail run once more (`tools/second_chance.py`), while the cluster is there. Tests that want the cluster for themselves
mostly wait: `BESIDE="make test-doors"` is a command that runs beside them, and has to succeed as well.

`--why-not` only says why there is nothing to test with, and nothing when there is something.
"""

# ruff: noqa: S603  # the programs are the developer's own, and on his PATH

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tools import second_chance
from tools.images import NAMES, ROOT, BuildError, build_all

TOOLKIT = Path(os.environ.get("KUBE_TOOLKIT", ROOT.parent / "shared" / "kube" / "kube"))
STATE = Path(os.environ.get("KUBE_DIR", "/tmp/kube"))  # noqa: S108  # the toolkit's own default
BINARIES = Path(os.environ.get("KUBE_BIN", f"{STATE}-bin"))
INSTALL = ROOT / "manifests" / "installs" / os.environ.get("INSTALL", "standalone")
NAMESPACE = "kubeflow"
READY_SECONDS = 180
NODE_IP = os.environ.get("KUBE_NODE_IP", "10.213.0.1")  # the toolkit's own default
DNS_SECONDS = 30
INSTALLED = "KATIB_IS_INSTALLED"
"""Variable set for tests with pods if all prerequisites exist: none may be skipped for a missing one."""
WORKERS = ("--dist", "worksteal", "-n")
WITHOUT_PODS = ("tests/contract", "tests/integration")
"""Tests that need an API server and no pods."""
NO_TESTS = pytest.ExitCode.NO_TESTS_COLLECTED
BASE_IMAGE = "docker.io/library/python:3.11-slim"


class UnusableError(Exception):
    """There is no usable cluster; the message names the remedy."""


@dataclass(frozen=True, slots=True)
class UsableCluster:
    """A cluster to test in.

    Attributes:
        kubeconfig: Of its admin.
        is_toolkits: Whether its node is this machine, and images can be given to it.
    """

    kubeconfig: Path
    is_toolkits: bool

    def kubectl(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        command = ["kubectl", "--kubeconfig", str(self.kubeconfig), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if check and done.returncode:
            raise UnusableError(f"{shlex.join(command)}\n{done.stdout}{done.stderr}")
        return done


def main(arguments: Sequence[str]) -> int:
    """Test with an API server; find a cluster, install, test with pods, and clean up."""
    if "--why-not" in arguments:
        print(why_there_is_none())
        return 0
    try:
        return _run(arguments)
    except (UnusableError, BuildError) as error:
        print(f"make test-cluster: {error}", file=sys.stderr)
        return 1


def _run(arguments: Sequence[str]) -> int:
    without_pods = not os.environ.get("KUBECONFIG") and bool(os.environ.get("KUBEBUILDER_ASSETS"))
    if without_pods:
        print("no nodes behind KUBEBUILDER_ASSETS: tests that need pods are left out", flush=True)
        return max(_test_api_server([]), _run_beside())
    assets = _assets()
    with ThreadPoolExecutor(1) as beside, ExitStack() as stack:
        tests: Future[int] | None = None
        only_pods = os.environ.get("ONLY_PODS")
        if assets is not None and not only_pods:
            tests = beside.submit(_test_api_server, [], {"KUBEBUILDER_ASSETS": str(assets), "KUBECONFIG": ""})
        cluster = stack.enter_context(found_cluster())
        stack.enter_context(installation(cluster))
        variables = {"KUBECONFIG": str(cluster.kubeconfig), INSTALLED: "1"}
        if assets is None and not only_pods:
            return max(_test_api_server(["-n", "0"], variables), _test_pods(arguments, variables))
        return _test_pods(arguments, variables, tests)


def _test_pods(arguments: Sequence[str], variables: Mapping[str, str], beside: Future[int] | None = None) -> int:
    """Run the tests with pods: three at a time, since they mostly wait for the kubelet, then exclusive ones."""
    with timed("tests with pods beside each other"):
        codes = [_pytest(["tests/cluster", "-m", "not alone", *WORKERS, "3", *arguments], variables)]
    others = 0 if beside is None else beside.result()
    with ThreadPoolExecutor(1) as pool, timed("tests with pods alone, and what runs beside them"):
        further = pool.submit(_run_beside)
        codes.append(_pytest(["tests/cluster", "-m", "alone", *arguments], variables))
        others = max(others, further.result())
    ran = [code for code in codes if code != NO_TESTS] or [int(NO_TESTS)]  # arguments may choose tests of one sort only
    return max(*ran, others)


def _run_beside() -> int:
    """Run the command of `BESIDE`, if there is one, and return its exit code."""
    command = shlex.split(os.environ.get("BESIDE", ""))
    return subprocess.run(command, check=False).returncode if command else 0


def _test_api_server(arguments: Sequence[str], variables: Mapping[str, str] | None = None) -> int:
    """Run the tests without pods, in two processes with an API server each: they wait half of the time."""
    with timed("tests with an API server"):
        return _pytest(["-m", "cluster", *WITHOUT_PODS, *WORKERS, "2", *arguments], variables or {})


def _assets() -> Path | None:
    """Return the folder of binaries for an API server; None if there is none."""
    if named := os.environ.get("KUBEBUILDER_ASSETS"):
        return Path(named)
    return None if _why_no_toolkit() else _binaries()


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print the duration of a step."""
    started = time.monotonic()
    yield
    print(f"{what}: {time.monotonic() - started:.0f} s", flush=True)


# --- the cluster ------------------------------------------------------------------------------------------------------


@contextmanager
def found_cluster() -> Iterator[UsableCluster]:
    """Yield the cluster to test in, with images if they can be built; stop it if it was started here."""
    _check_kubectl()
    if named := os.environ.get("KUBECONFIG"):
        kubeconfig = Path(named)
        cluster = UsableCluster(kubeconfig, is_toolkits=(kubeconfig.parent / "run" / "containerd.sock").exists())
        if cluster.is_toolkits:
            _build_images(kubeconfig.parent)
        yield cluster
        return
    _check_toolkit()
    was_running = is_running()
    try:
        if not was_running:
            _start()
        _build_images(STATE)
        yield UsableCluster(STATE / "kubeconfig", is_toolkits=True)
    finally:
        if not was_running and not os.environ.get("KEEP_CLUSTER"):
            _toolkit("down", "--purge")


def why_there_is_none() -> str:
    """Return why the tests cannot run here; empty if they can."""
    if os.environ.get("KUBECONFIG") or os.environ.get("KUBEBUILDER_ASSETS"):
        return ""
    return _why_no_toolkit()


def _why_no_toolkit() -> str:
    if not TOOLKIT.exists():
        return f"no cluster: set KUBECONFIG, or KUBE_TOOLKIT to a toolkit that starts one ({TOOLKIT} is not there)"
    if os.geteuid() != 0:
        return f"no cluster: set KUBECONFIG, or run as root, which {TOOLKIT} needs"
    return ""


def _check_toolkit() -> None:
    if why_not := _why_no_toolkit():
        raise UnusableError(why_not)


def _check_kubectl() -> None:
    if shutil.which("kubectl") is None:
        raise UnusableError("kubectl is missing; install it")


def is_running() -> bool:
    return _runs(STATE / "run" / "kubelet.pid")


def _runs(pid_file: Path) -> bool:
    """Whether the process of a pid file is still the toolkit's: process ids are reused."""
    try:
        command_line = Path(f"/proc/{int(pid_file.read_text())}/cmdline").read_bytes().decode(errors="replace")
    except (OSError, ValueError):
        return False
    return str(STATE) in command_line or str(TOOLKIT) in command_line


def _start() -> None:
    for pid_file in (STATE / "run").glob("*.pid"):  # a cluster that was not taken down, but lost its machine
        if not _runs(pid_file):
            pid_file.unlink()
    with timed("cluster"):
        _binaries()
        _toolkit("node")
        _await_names()
    with timed("base image"):
        _toolkit("base-image", BASE_IMAGE)


def _await_names() -> None:
    """Wait until the cluster's DNS resolves a Service, for which the toolkit does not wait."""
    question = b"\0\7\1\0\0\1\0\0\0\0\0\0" + b"".join(
        bytes([len(label)]) + label for label in (*b"kubernetes.default.svc.cluster.local".split(b"."), b"")
    )
    trouble = "no answer"
    for _ in range(DNS_SECONDS):
        if not _runs(STATE / "run" / "dns.pid"):
            _start_dns()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.settimeout(1)
            try:
                asking.connect((NODE_IP, 53))
                asking.send(question + b"\0\1\0\1")  # type A, class IN
                flags, answers = struct.unpack(">2xH2xH", asking.recv(512)[:8])
            except OSError as error:
                trouble = str(error) or "no answer"
            else:
                if answers:
                    return
                trouble = f"response code {flags & 15}"  # RFC 1035, section 4.1.1
        time.sleep(1)
    log = (STATE / "log" / "dns.log").read_text()
    raise UnusableError(f"the cluster's DNS at {NODE_IP} does not know the Service of the API server: {trouble}\n{log}")


def _start_dns() -> None:
    """Restart the cluster's DNS so that it ignores SIGHUP until it has a handler.

    The toolkit sends one with the first list of Services. It would kill a server that is still starting, for example
    if the program is read from a cold disk.
    """
    keeper = STATE / "run" / "dns-sync.pid"
    if _runs(keeper):  # it sends its list once, and the new server would not receive it
        os.kill(int(keeper.read_text()), signal.SIGTERM)
    keeper.unlink(missing_ok=True)
    _toolkit("node", before=("env", "--ignore-signal=HUP"))


def _binaries() -> Path:
    """Return the folder of the toolkit's binaries."""
    _check_toolkit()
    _toolkit("unpack")
    return BINARIES


def _toolkit(*arguments: str, before: Sequence[str] = ()) -> None:
    environment = {**os.environ, "KUBE_BIN": str(BINARIES), "KUBE_DIR": str(STATE)}
    done = subprocess.run([*before, TOOLKIT, *arguments], capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise UnusableError(f"{TOOLKIT} {shlex.join(arguments)}\n{done.stdout}{done.stderr}")


def _build_images(state: Path) -> None:
    """Build changed images, and copy them to the toolkit's node."""
    storage = _storage(state)
    certificates = "/etc/ssl/certs:/etc/ssl/certs:ro"
    options = ["--layers", "--isolation", "chroot", "--network", "host", "--pull-never", "--volume", certificates]
    node = ["ctr", "--address", f"{state}/run/containerd.sock", "--namespace", "k8s.io", "images"]

    def deliver(image: str) -> None:
        name = f"docker.io/{image}"
        built = _do(["buildah", *storage, "images", "--quiet", "--no-trunc", name])
        delivered = state / "delivered" / image.replace("/", "-")
        if delivered.exists() and delivered.read_text() == built + _do([*node, "list", f"name=={name}"]):
            return
        archive = state / "katib-image.tar"
        archive.unlink(missing_ok=True)
        _do(["buildah", *storage, "push", "-q", name, f"docker-archive:{archive}:{name}"])
        _do([*node, "import", str(archive)])
        archive.unlink()
        delivered.parent.mkdir(exist_ok=True)
        delivered.write_text(built + _do([*node, "list", f"name=={name}"]))

    names = os.environ.get("IMAGES", " ".join(NAMES)).split()
    with timed("images"):
        build_all(["buildah", *storage, "bud", *options], names, deliver)


def _storage(state: Path) -> list[str]:
    """Return options for the image storage: our own, which stores layers cheaply, or else the toolkit's.

    The toolkit's storage, which has the base image, copies all files for every layer.
    """
    toolkits = ["--storage-driver", "vfs", "--root", f"{state}/buildah", "--runroot", f"{state}/run/buildah"]
    ours = ["--storage-driver", "overlay", "--root", f"{state}/layers", "--runroot", f"{state}/run/layers"]
    if _works(["buildah", *ours, "images", "--quiet", BASE_IMAGE]):
        return ours
    archive = state / "base-image.tar"
    archive.unlink(missing_ok=True)
    _do(["buildah", *toolkits, "push", "-q", BASE_IMAGE, f"docker-archive:{archive}:{BASE_IMAGE}"])
    has_overlays = _works(["buildah", *ours, "pull", "-q", f"docker-archive:{archive}"])
    archive.unlink()
    return ours if has_overlays else toolkits


def _works(command: Sequence[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _do(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnusableError(f"{shlex.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


# --- the installation -------------------------------------------------------------------------------------------------


@contextmanager
def installation(cluster: UsableCluster) -> Iterator[None]:
    """Install the product, wait until it is ready, and remove it unless it was installed before."""
    was_there = cluster.kubectl("-n", NAMESPACE, "get", "deployment", "katib-controller", check=False).returncode == 0
    with timed("installation"):
        _give_volumes(cluster)
        cluster.kubectl("apply", "-k", str(INSTALL))
        if was_there:  # the tag is the same, the image is not
            cluster.kubectl("-n", NAMESPACE, "rollout", "restart", "deployment", "-l", "katib.kubeflow.org/component")
        _await_ready(cluster)
    try:
        yield
    finally:
        if not was_there and not os.environ.get("KEEP_CLUSTER"):
            cluster.kubectl("delete", "-k", str(INSTALL), "--ignore-not-found", "--timeout=60s", check=False)


def _give_volumes(cluster: UsableCluster) -> None:
    """Create the volumes that a storage class would create for the claims of the installation."""
    classes = json.loads(cluster.kubectl("get", "storageclasses", "-o", "json").stdout)["items"]
    if classes or not cluster.is_toolkits:
        return
    for document in yaml.safe_load_all(cluster.kubectl("kustomize", str(INSTALL)).stdout):
        if document["kind"] == "PersistentVolumeClaim":
            _give_volume(cluster, document["metadata"]["name"], document["spec"]["resources"]["requests"]["storage"])


def _give_volume(cluster: UsableCluster, claim: str, storage: str) -> None:
    directory = cluster.kubeconfig.parent / claim
    directory.mkdir(exist_ok=True)
    directory.chmod(0o777)  # writers are not root, and volumes of this type know no group
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": claim},
        "spec": {
            "capacity": {"storage": storage},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": NAMESPACE, "name": claim},
            "hostPath": {"path": str(directory)},
        },
    }
    path = cluster.kubeconfig.parent / f"{claim}.json"
    path.write_text(json.dumps(volume))
    phase = cluster.kubectl("get", "pv", claim, "-o", "jsonpath={.status.phase}", check=False).stdout
    if phase in {"Released", "Failed"}:  # its claim is gone, and it waits for somebody to say that it may be used again
        cluster.kubectl("delete", "pv", claim)
    cluster.kubectl("apply", "-f", str(path))


def _await_ready(cluster: UsableCluster) -> None:
    until = time.monotonic() + READY_SECONDS
    for name in ("katib-db-manager", "katib-controller"):
        left = max(1, int(until - time.monotonic()))
        done = cluster.kubectl(
            "-n", NAMESPACE, "rollout", "status", f"deployment/{name}", f"--timeout={left}s", check=False
        )
        if done.returncode:
            raise UnusableError(f"{name} is not ready after {READY_SECONDS} s\n{_trouble(cluster, name)}")


def _trouble(cluster: UsableCluster, name: str) -> str:
    looks: list[Callable[[], subprocess.CompletedProcess[str]]] = [
        lambda: cluster.kubectl("-n", NAMESPACE, "get", "pods", "-o", "wide", check=False),
        lambda: cluster.kubectl("-n", NAMESPACE, "describe", "deployment", name, check=False),
        lambda: cluster.kubectl("-n", NAMESPACE, "logs", f"deployment/{name}", "--tail=30", check=False),
    ]
    return "\n".join(done.stdout + done.stderr for done in (look() for look in looks))


def _pytest(arguments: Sequence[str], variables: Mapping[str, str]) -> int:
    runner = "tools.second_chance" if os.environ.get(second_chance.VARIABLE) else "pytest"
    command = [sys.executable, "-m", runner, "-q", *arguments]
    environment = {name: value for name, value in {**os.environ, **variables}.items() if value}
    return subprocess.run(command, cwd=ROOT, check=False, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
