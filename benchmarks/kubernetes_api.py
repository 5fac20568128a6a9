"""The Kubernetes API of one machine, from the outside.

    python -m benchmarks.kubernetes_api                                       all of it
    KUBEBUILDER_ASSETS=... python -m benchmarks.kubernetes_api                with a real API server as the rival
    KUBECTLS=/path/to/kubectl python -m benchmarks.kubernetes_api --only kubectl
    python -m benchmarks.kubernetes_api --only watch | client | crowd         one part

The server runs in a separate process. The rival is the API server of Kubernetes with etcd (without fsync), on the same
machine and in the same run, called by the same client.
"""

from __future__ import annotations

import argparse
import json
import os
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from benchmarks.many_trials import fill
from benchmarks.support import experiment, first_line, median_ms, memory_mb, module_process
from tests.support.kube import authority_of, kubectls

TRIALS, LISTED, WRITES, WATCHES = 10_000, 500, 200, 50
CROWD_TRIALS = 150
COMMANDS = 5
TRIALS_PATH = "/apis/kubeflow.org/v1beta1/namespaces/default/trials"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=["kubectl", "watch", "client", "crowd"])
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--starts", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve is not None:
        return serve(arguments.serve, starts=arguments.starts)
    if arguments.only in (None, "kubectl", "watch"):
        with served(trials=TRIALS) as server:
            if arguments.only != "watch":
                list_by_kubectl(server)
            if arguments.only != "kubectl":
                watch_all(server)
    if arguments.only in (None, "client"):
        compare_clients()
    if arguments.only in (None, "crowd"):
        watch_an_experiment()
    return 0


# --- the server -------------------------------------------------------------------------------------------------------


def serve(directory: Path, *, starts: bool) -> int:
    """Serve a data directory until standard input ends."""
    from tests.support.kube import kube_world

    with kube_world(directory, starts=starts) as world:
        print(world.server.kubeconfig, flush=True)
        sys.stdin.read()
    return 0


class MeasuredServer:
    """A server of a data directory in a separate process."""

    def __init__(self, process: subprocess.Popen[str], kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self._process = process
        config = yaml.safe_load(kubeconfig.read_text())
        headers = {"authorization": f"Bearer {config['users'][0]['user']['token']}"}
        trusted = ssl.create_default_context(cadata=authority_of(kubeconfig))
        url = config["clusters"][0]["cluster"]["server"]
        self.http = httpx.Client(base_url=url, verify=trusted, headers=headers, timeout=60.0)

    def a_trial(self) -> str:
        (trial,) = self.http.get(TRIALS_PATH, params={"limit": "1"}).json()["items"]
        return str(trial["metadata"]["name"])

    def memory_mb(self) -> float:
        return memory_mb(self._process.pid)


@contextmanager
def served(*, trials: int = 0, starts: bool = False) -> Iterator[MeasuredServer]:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / "data"
        if trials:
            fill(directory, trials)
        command = ("benchmarks.kubernetes_api", "--serve", str(directory), *["--starts"] * starts)
        with module_process(*command) as process:
            yield MeasuredServer(process, Path(first_line(process)))


# --- many trials ------------------------------------------------------------------------------------------------------


def list_by_kubectl(server: MeasuredServer) -> None:
    for program in kubectls():
        environment = {"PATH": os.environ["PATH"], "KUBECONFIG": str(server.kubeconfig), "HOME": tempfile.mkdtemp()}
        seconds = []
        for _ in range(COMMANDS):
            began = time.perf_counter()
            done = subprocess.run([program, "get", "trials"], env=environment, capture_output=True, check=True)
            seconds.append(time.perf_counter() - began)
        assert done.stdout.count(b"\n") == TRIALS + 1
        began = time.perf_counter()
        subprocess.run([program, "get", "trial", server.a_trial()], env=environment, capture_output=True, check=True)
        print(
            f"kubectl get trials, {TRIALS:,} trials: median {statistics.median(seconds):.2f} s "
            f"({min(seconds):.2f} to {max(seconds):.2f}); one alone {time.perf_counter() - began:.2f} s  ({program})"
        )
    if not kubectls():
        print("kubectl get trials: there is no kubectl (KUBECTLS names some)")


def watch_all(server: MeasuredServer) -> None:
    before = server.memory_mb()
    firsts, wholes = [], []
    for _ in range(COMMANDS):
        began = time.perf_counter()
        with server.http.stream("GET", TRIALS_PATH, params={"watch": "1"}) as stream:
            lines = stream.iter_lines()
            next(lines)
            firsts.append(time.perf_counter() - began)
            for _ in range(TRIALS - 1):
                next(lines)
            wholes.append(time.perf_counter() - began)
    name = server.a_trial()
    since = server.http.get(TRIALS_PATH, params={"limit": "1"}).json()["metadata"]["resourceVersion"]
    news = []
    with server.http.stream("GET", TRIALS_PATH, params={"watch": "1", "resourceVersion": since}) as stream:
        lines = stream.iter_lines()
        for number in range(20):
            began = time.perf_counter()
            change = {"metadata": {"labels": {"n": str(number)}}}
            headers = {"content-type": "application/merge-patch+json"}
            server.http.patch(f"{TRIALS_PATH}/{name}", content=json.dumps(change), headers=headers)
            next(lines)
            news.append(time.perf_counter() - began)
    print(
        f"watch of {TRIALS:,} trials: first event after {statistics.median(firsts) * 1e3:.0f} ms, "
        f"all after {statistics.median(wholes):.2f} s; from a patch to its event "
        f"{statistics.median(news) * 1e3:.1f} ms; memory {before:.0f} MB before, "
        f"{server.memory_mb():.0f} MB after {COMMANDS}"
    )


# --- one client, two servers ------------------------------------------------------------------------------------------


def compare_clients() -> None:
    """Call our server and the real one in turns by the Python client."""
    with served() as ours:
        servers = {"ours": ours.kubeconfig}
        rival = real_server()
        if rival is None:
            print("no rival: KUBEBUILDER_ASSETS names no folder with etcd and kube-apiserver")
        else:
            servers["real"] = rival.kubeconfig
        calls = {name: client_calls(kubeconfig) for name, kubeconfig in servers.items()}
        for call in next(iter(calls.values())):
            medians = {name: median_ms(of[call], WRITES) for name, of in calls.items()}
            ratio = f", {medians['ours'] / medians['real']:.2f} times" if "real" in medians else ""
            print(f"{call}: " + ", ".join(f"{name} {ms:.1f} ms" for name, ms in medians.items()) + ratio)
        if rival is not None:
            rival.close()


def real_server() -> Any:
    assets = Path(os.environ.get("KUBEBUILDER_ASSETS") or "/nonexistent")
    if not (assets / "kube-apiserver").exists():
        return None
    from tests.support.api_server import LocalApiServer

    server = LocalApiServer(assets, Path(tempfile.mkdtemp()))
    server.start_all()
    return server


def client_calls(kubeconfig: Path) -> dict[str, Callable[[], object]]:
    """Return the calls to measure, as functions."""
    from kubernetes import client, config

    core = client.CoreV1Api(config.new_client_from_config(str(kubeconfig)))
    custom = client.CustomObjectsApi(core.api_client)
    where = ("kubeflow.org", "v1beta1", "default")
    label = {"metadata": {"labels": {"of": "benchmarks"}}}
    for number in range(LISTED):
        body = {"metadata": {"name": f"listed-{number}", **label["metadata"]}, "data": {"text": "x" * 500}}
        core.create_namespaced_config_map("default", body)
    experiment_path = experiment(Path(tempfile.mkdtemp()), "echo loss=1", trials=3, parallel=1)
    custom.create_namespaced_custom_object(*where, "experiments", json.loads(experiment_path.read_text()))
    numbers = iter(range(1_000_000))

    def create() -> object:
        name = f"made-{next(numbers)}"
        return core.create_namespaced_config_map("default", {"metadata": {"name": name}, "data": {"a": "b"}})

    def patch() -> object:
        change = {"metadata": {"labels": {"n": str(next(numbers))}}}
        return custom.patch_namespaced_custom_object(*where, "experiments", "bench", change)

    return {
        "get of an experiment": lambda: custom.get_namespaced_custom_object(*where, "experiments", "bench"),
        f"list of {LISTED} ConfigMaps": lambda: (
            core.list_namespaced_config_map("default", label_selector="of=benchmarks", _preload_content=False).data  # type: ignore[attr-defined]  # an answer that is not decoded
        ),
        "create of a ConfigMap": create,
        "patch of an experiment": patch,
    }


# --- watches of a running experiment ----------------------------------------------------------------------------------


def watch_an_experiment() -> None:
    """Run the same experiment without and with watches; readers are threads of this process."""
    times = {}
    for count in (0, WATCHES, 0, WATCHES):
        with served(starts=True) as server:
            stop = threading.Event()
            ready = threading.Semaphore(0)
            readers = [threading.Thread(target=follow, args=(server, ready, stop)) for _ in range(count)]
            for reader in readers:
                reader.start()
            for _ in readers:
                ready.acquire()
            path = experiment(Path(tempfile.mkdtemp()), "echo loss=1", trials=CROWD_TRIALS, parallel=2)
            began = time.perf_counter()
            where = TRIALS_PATH.replace("trials", "experiments")
            server.http.post(where, json=json.loads(path.read_text()))
            while not is_over(server.http.get(f"{where}/bench").json()):
                time.sleep(0.05)
            times.setdefault(count, []).append((time.perf_counter() - began) / CROWD_TRIALS * 1e3)
            stop.set()
    without, watched = min(times[0]), min(times[WATCHES])
    print(
        f"{WATCHES} watches of the trials of a running experiment, {CROWD_TRIALS} trials: {watched:.1f} ms a trial, "
        f"without {without:.1f} ms, {watched / without:.2f} times"
    )


def follow(server: MeasuredServer, ready: threading.Semaphore, stop: threading.Event) -> None:
    """Read a watch as fast as possible, without decoding it."""
    with (
        httpx.Client(
            base_url=server.http.base_url,
            headers=server.http.headers,
            verify=ssl.create_default_context(cadata=authority_of(server.kubeconfig)),
            timeout=60.0,
        ) as http,
        http.stream("GET", TRIALS_PATH, params={"watch": "1", "timeoutSeconds": "60"}) as stream,
    ):
        ready.release()
        for _ in stream.iter_raw():
            if stop.is_set():
                return


def is_over(found: dict[str, Any]) -> bool:
    conditions = found.get("status", {}).get("conditions") or ()
    return any(one["type"] in ("Succeeded", "Failed") and one["status"] == "True" for one in conditions)


if __name__ == "__main__":
    sys.exit(main())
