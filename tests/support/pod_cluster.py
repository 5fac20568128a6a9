"""A cluster with nodes and with the product installed, as users see it: through kubectl and through the objects.

What users type goes through kubectl. What tests look at again and again is asked for in this process.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from katib.errors import KatibError, NotFoundError
from katib.places.cluster.client import ApiConnection, open_connection
from katib.places.cluster.client.answers import NotServedError
from tests.support.experiments import a_double, an_experiment
from tests.support.waiting import eventually
from tools.cluster_tests import INSTALLED

Json = dict[str, Any]
T = TypeVar("T")

PATIENCE = 3
"""How many times longer everything may take on a busy machine, above all on its only kubelet."""

GONE_SECONDS = 90
"""A kubelet may take a minute to remove a pod whose containers have ended long before."""

CORE = "kubeflow"
IMAGE = "docker.io/library/python:3.11-slim"
LABEL = {"katib.kubeflow.org/metrics-collector-injection": "enabled"}
FINAL = ("Succeeded", "Failed")
OURS = ("experiments.kubeflow.org", "suggestions.kubeflow.org", "trials.kubeflow.org")
CHILDREN = (
    "jobs",
    "pods",
    "deployments",
    "services",
    "persistentvolumeclaims",
    "serviceaccounts",
    "roles",
    "rolebindings",
)


API_VERSIONS = {
    "configmaps": "v1",
    "deployments": "apps/v1",
    "jobs": "batch/v1",
    "namespaces": "v1",
    "nodes": "v1",
    "persistentvolumeclaims": "v1",
    "persistentvolumes": "v1",
    "pods": "v1",
    "rolebindings": "rbac.authorization.k8s.io/v1",
    "roles": "rbac.authorization.k8s.io/v1",
    "secrets": "v1",
    "serviceaccounts": "v1",
    "services": "v1",
}
"""Of the kinds that tests name without their group, as kubectl allows for those of Kubernetes itself."""


@dataclass(frozen=True, slots=True)
class PodCluster:
    """The cluster, with the rights of its admin.

    Attributes:
        kubeconfig: Of the admin.
        connection: The admin's; the one who opened it closes it.
    """

    kubeconfig: Path
    connection: ApiConnection

    def run(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """Run kubectl and return what it prints; what it complains about fails the test."""
        command = ["kubectl", f"--kubeconfig={self.kubeconfig}", *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        assert not check or done.returncode == 0, f"{' '.join(arguments)}: {done.stderr}"
        return done.stdout + (done.stderr if done.returncode else "")

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Apply objects."""
        self.run("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def items(self, kind: str, namespace: str, selector: str = "") -> list[Json]:
        """Return the objects of a kind: `pods`, `trials.kubeflow.org`."""
        found = self._get(f"{self._version_path(kind)}/namespaces/{namespace}/{plural_of(kind)}", selector)
        header = {"apiVersion": found["apiVersion"], "kind": found["kind"].removesuffix("List")}
        return [{**header, **item} for item in found["items"]]

    def find(self, kind: str, name: str, namespace: str = "") -> Json | None:
        """Return an object, None when it is not there."""
        within = f"/namespaces/{namespace}" if namespace else ""
        path = f"{self._version_path(kind)}{within}/{plural_of(kind)}/{name}"
        with suppress(NotFoundError):
            return self._get(path)
        return None

    def _version_path(self, kind: str) -> str:
        """Return the path of a kind's API version; the API server is asked where the kind names its group."""
        _, _, group = kind.partition(".")
        version = API_VERSIONS[plural_of(kind)] if not group else ""
        if group:
            version = self._version_of(plural_of(kind), group)
        return f"/apis/{version}" if "/" in version else f"/api/{version}"

    def _version_of(self, plural: str, group: str) -> str:
        """Return the version of a group that has a kind: other versions of the group may have other kinds only."""
        for version in self._get(f"/apis/{group}")["versions"]:
            with suppress(NotServedError):  # another test takes its kinds away at this moment
                served = self._get(f"/apis/{version['groupVersion']}")["resources"]
                if any(resource["name"] == plural for resource in served):
                    return str(version["groupVersion"])
        raise AssertionError(f"the API server has no {plural} in {group}")

    def _get(self, path: str, selector: str = "") -> Json:
        try:
            return self.connection.request("GET", path, query={"labelSelector": selector} if selector else None)
        except (NotFoundError, NotServedError):
            raise
        except KatibError as error:
            raise AssertionError(str(error)) from error

    def set_status(self, kind: str, obj: Json, status: Json) -> None:
        """Write the status of an object, as the controller of its kind would."""
        metadata = obj["metadata"]
        group, version = obj["apiVersion"].split("/")
        path = f"/apis/{group}/{version}/namespaces/{metadata['namespace']}/{kind}/{metadata['name']}/status"
        self.run("replace", "--raw", path, "-f", "-", stdin=json.dumps({**obj, "status": status}), check=False)

    def make_namespace(self, name: str) -> Room:
        """Make a namespace that may hold experiments, and wait until pods can be started there."""
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": LABEL}})
        wait_for(lambda: self.find("serviceaccount", "default", name), "the default service account")
        return Room(self, name)


@dataclass(frozen=True, slots=True)
class Room:
    """A namespace of one test."""

    cluster: PodCluster
    namespace: str

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Apply objects in the namespace."""
        self.cluster.apply(*({**o, "metadata": {**o["metadata"], "namespace": self.namespace}} for o in objects))

    def patch(self, name: str, spec: Json) -> None:
        """Change the spec of an experiment."""
        change = json.dumps({"spec": spec})
        self.cluster.run("patch", OURS[0], name, f"--namespace={self.namespace}", "--type=merge", "-p", change)

    def experiment(self, name: str) -> Json:
        """Return an experiment."""
        found = self.cluster.find(OURS[0], name, self.namespace)
        assert found is not None, f"experiment {name} is gone"
        return found

    def trials(self, experiment: str) -> list[Json]:
        """Return the trials of an experiment."""
        return self.cluster.items(OURS[2], self.namespace, f"katib.kubeflow.org/experiment={experiment}")

    def pods(self) -> list[Json]:
        """Return all pods."""
        return self.cluster.items("pods", self.namespace)

    def ended(self, name: str, seconds: float = 150, state: str = "Succeeded") -> Json:
        """Wait until an experiment ended, and return it; it must have ended so."""

        def end() -> str:
            experiment = self.experiment(name)
            return next((kind for kind in FINAL if is_true(experiment, kind)), "")

        found = wait_for(end, f"experiment {name} to end", seconds, self.picture)
        assert found == state, self.picture()
        return self.experiment(name)

    def delete(self, name: str, seconds: int = PATIENCE * GONE_SECONDS) -> None:
        """Delete an experiment and wait until it is gone."""
        self.cluster.run("delete", OURS[0], name, f"--namespace={self.namespace}", f"--timeout={seconds}s")

    def left_over(self) -> list[str]:
        """Return what is in the namespace beside what the cluster itself puts there."""
        found = (item for kind in (*OURS, *CHILDREN) for item in self.cluster.items(kind, self.namespace))
        return sorted({kubectl_name(item) for item in found} - {"serviceaccount/default"})

    def picture(self) -> str:
        """Return what there is to see, for the message of a failed test."""
        kinds = ",".join((*OURS, "jobs", "pods"))
        looks: Sequence[Sequence[str]] = (
            ("get", kinds, "-n", self.namespace, "-o", "wide"),
            ("get", OURS[0], "-n", self.namespace, "-o", "jsonpath={range .items[*]}{.status}{'\\n'}{end}"),
            ("get", "events", "-n", self.namespace, "--sort-by=.lastTimestamp"),
            ("logs", "-n", CORE, "deployment/katib-controller", "--tail=40"),
        )
        return "\n".join(self.cluster.run(*look, check=False)[-6000:] for look in looks)


def plural_of(kind: str) -> str:
    """Return what a kind is called in paths: `pods` for `pod`, `trials` for `trials.kubeflow.org`."""
    name = kind.partition(".")[0]
    return name if name.endswith("s") else f"{name}s"


def kubectl_name(obj: Json) -> str:
    """Return how kubectl names an object: `pod/a`, `job.batch/a`."""
    group = obj["apiVersion"].rpartition("/")[0]
    return f"{obj['kind'].lower()}{group and '.' + group}/{obj['metadata']['name']}"


def wait_for(
    look: Callable[[], T], what: str, seconds: float = 60, picture: Callable[[], str] = lambda: "", every: float = 0.3
) -> T:
    """Look until there is something to see, and return it. `seconds` are those of a quiet machine."""
    return eventually(look, what, seconds=PATIENCE * seconds, every=every, picture=picture)


def is_true(obj: Json, condition: str) -> bool:
    """Return whether a condition of an object holds."""
    return condition_of(obj, condition).get("status") == "True"


def condition_of(obj: Json, condition: str) -> Json:
    """Return a condition; empty when there is none."""
    conditions: list[Json] = obj.get("status", {}).get("conditions", [])
    return next((c for c in conditions if c["type"] == condition), {})


@contextmanager
def algorithm(cluster: PodCluster, entry: Json) -> Iterator[None]:
    """Have one more algorithm in the KatibConfig for a while; other test processes add and remove theirs meanwhile."""
    above, line = "  suggestions:\n", f"    - {json.dumps(entry)}\n"
    _configure(cluster, above, above + line)
    try:
        yield
    finally:
        _configure(cluster, line, "")  # the text is the installed one again, which Helm may take over


def _configure(cluster: PodCluster, old: str, new: str) -> None:
    """Replace a part of the KatibConfig's text, one test process at a time."""
    with (Path(tempfile.gettempdir()) / "katib-tests-config.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = cluster.find("configmap", "katib-config", CORE)
        assert found is not None
        text = found["data"]["katib-config.yaml"]
        assert text.count(old) == 1
        change = json.dumps({"data": {"katib-config.yaml": text.replace(old, new)}})
        cluster.run("patch", "configmap", "katib-config", f"--namespace={CORE}", "--type=merge", "-p", change)


def accepts(room: Room, wanted: Json) -> bool:
    """Apply an object; return whether it was taken."""
    try:
        room.apply(wanted)
    except AssertionError:
        return False
    return True


def found_cluster() -> PodCluster:
    """Return the cluster of KUBECONFIG, whose connection the caller closes; skip the test where there is none."""
    named = os.environ.get("KUBECONFIG")
    if not named:
        pytest.skip("no cluster with nodes: set KUBECONFIG, or run make test-cluster")
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is missing")
    cluster = PodCluster(Path(named), open_connection(named))
    controller = cluster.find("deployment", "katib-controller", CORE) or {}
    if not controller.get("status", {}).get("readyReplicas"):
        cluster.connection.close()
        complain = pytest.fail if os.environ.get(INSTALLED) else pytest.skip
        complain("the controller is not installed in this cluster, or not ready: run make test-cluster")
    return cluster


def python_job(script: str, **spec: Any) -> Json:
    """Return a Job that runs a Python script in its only container; `lr` is in its environment."""
    environment = [{"name": "lr", "value": "${trialParameters.lr}"}]
    container = {
        "name": "training-container",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-u", "-c", script],
        "env": environment,
    }
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 2, "containers": [container]}
    return {"apiVersion": "batch/v1", "kind": "Job", "spec": {"backoffLimit": 0, "template": {"spec": pod}, **spec}}


def experiment(name: str, job: Json | None, *, trials: int = 3, parallel: int = 2, **spec: Any) -> Json:
    """Return an experiment over `lr` that minimizes `loss`.

    Args:
        name: Its name.
        job: What a trial runs as; None when `spec` has a whole `trialTemplate`.
        trials: maxTrialCount.
        parallel: parallelTrialCount.
        spec: Further fields, which win.
    """
    template = {
        "primaryContainerName": "training-container",
        "trialParameters": [{"name": "lr", "reference": "lr"}],
        "trialSpec": job,
        **spec.pop("template", {}),
    }
    defaults = {
        "algorithm": {"algorithmName": "random", "algorithmSettings": [{"name": "random_state", "value": "1"}]},
        "parameters": [a_double("lr", low="0.1", high="0.9")],
        "parallelTrialCount": parallel,
        "maxTrialCount": trials,
        "maxFailedTrialCount": 1,
        "trialTemplate": template,
    }
    return an_experiment(name=name, namespace="", **{**defaults, **spec})
