"""A controller of its own process over a real API server, with everything around it but pods.

Trials run as `StandIn` objects, which a stand-in in this process ends as soon as it sees them: it reports one reading
and sets a condition, as a job's controller and a collector together would. Suggestions come from a real service in a
process of its own, found by address; readings are kept by a real DB manager on SQLite, which can be taken away.
Every write to our kinds is watched: none may change what was stored for good (tests/support/spec_guard.py).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

import yaml

from katib.engine.databases.sqlite import open_database
from katib.engine.observations.access import access_list
from katib.engine.observations.sql import SqlObservationLog
from katib.engine.runtime.objects import EventType, Key, Kind, Object
from katib.errors import ConflictError, KatibError, NotFoundError
from katib.model.metrics import ZERO_TIME, MetricLog
from katib.places.cluster.client import open_connection
from katib.places.cluster.installation_key import SECRET_NAME, ensure_keys
from katib.places.cluster.store import KubernetesStore
from katib.wire.rpc.db_manager import serve_db_manager
from katib.wire.rpc.log_guard import LogGuard
from katib.wire.rpc.tokens import TokenSigner
from tests.support.api_server import ApiServer
from tests.support.experiments import an_experiment
from tests.support.ports import free_port
from tests.support.server_kinds import install_our_kinds
from tests.support.spec_guard import SpecGuard
from tests.support.stores import STAND_IN
from tests.support.waiting import PATIENCE_SECONDS, eventually

STATUS_PORT = "6791"
_COMPONENTS = Path(__file__).resolve().parents[2] / "manifests" / "components"
EXPERIMENT = Kind("kubeflow.org/v1beta1", "Experiment")
SUGGESTION = Kind("kubeflow.org/v1beta1", "Suggestion")
TRIAL = Kind("kubeflow.org/v1beta1", "Trial")

KATIB = [str(Path(sys.executable).with_name("katib"))]

Outcome = Callable[[Object], str | None]
"""Returns the reading that a job leaves, or None while it is to continue."""


class StandIns:
    """Ends StandIn objects as soon as they appear, from a thread of its own.

    Attributes:
        runs: How often each name was created: twice is once too often.
        moments: When each of them was seen first.
    """

    def __init__(self, kubeconfig: Path, log: SqlObservationLog, outcome: Outcome = lambda _job: "0.5") -> None:
        self.outcome = outcome
        self.runs: dict[str, int] = {}
        self.moments: list[float] = []
        self._uids: set[str] = set()
        self._connection = open_connection(kubeconfig)
        self._store = KubernetesStore(self._connection)
        self._log = log
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stand-ins", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._connection.close()
        self._thread.join(60)

    def end(self, job: Object, reading: str) -> None:
        """End one job."""
        name = job["metadata"]["name"]
        self._log.delete(name)
        self._log.report(name, [MetricLog(ZERO_TIME, "loss", reading)])
        done = {"type": "Succeeded", "status": "True", "reason": "Done", "message": ""}
        with suppress(NotFoundError, ConflictError):
            self._store.update_status({**job, "status": {"conditions": [done]}})

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow()
            except KatibError:
                self._stopping.wait(0.2)

    def _follow(self) -> None:
        listed = self._store.list(STAND_IN)
        for job in listed.items:
            self._see(job, new=job["metadata"]["uid"] not in self._uids)
        with self._store.watch(STAND_IN, listed.resource_version) as watch:
            while not self._stopping.is_set():
                event = watch.next(0.5)
                if event is not None and event.type is not EventType.DELETED:
                    self._see(event.object, new=event.object["metadata"]["uid"] not in self._uids)

    def _see(self, job: Object, *, new: bool) -> None:
        if new:
            self._uids.add(job["metadata"]["uid"])
            self.moments.append(time.perf_counter())
            self.runs[job["metadata"]["name"]] = self.runs.get(job["metadata"]["name"], 0) + 1
        if job.get("status") or "deletionTimestamp" in job["metadata"]:
            return
        reading = self.outcome(job)
        if reading is not None:
            self.end(job, reading)


class ControllerProcess:
    """One `katib controller`, to be killed, frozen and started again."""

    def __init__(self, plane: ControlPlane, name: str, *, election: bool = False, **init: Any) -> None:
        self._plane = plane
        self._init = {"enableLeaderElection": election, **init}
        self.name = name
        self.log = plane.folder / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.health_port = 0
        self.kubeconfig: Path | None = None
        self.shutdown_delay = 0.0

    def start(self) -> Self:
        webhook, health, metrics = (free_port() for _ in range(3))
        self.webhook_port, self.health_port, self.metrics_port = webhook, health, metrics
        config = self._plane.folder / f"{self.name}.yaml"
        config.write_text(yaml.safe_dump(self._plane.katib_config(webhook, health, metrics, self._init)))
        command = [*KATIB, "controller", "--katib-config", str(config)]
        command += ["--kubeconfig", str(self.kubeconfig or self._plane.server.kubeconfig)]
        command += ["--db-manager-address", self._plane.db_manager_address, "--webhook-name", "127.0.0.1"]
        command += ["--shutdown-delay", str(self.shutdown_delay)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=self._plane.environment)
        return self

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        return self._end(signal.SIGTERM)

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def works(self) -> bool:
        """Whether its controllers are at work, by what it logged since it was started last."""
        return b"Controllers work" in self.log.read_bytes()

    def await_work(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until its controllers are at work; one that never is shows where each of its threads is."""
        eventually(self.works, f"the controllers of {self.name}", seconds=seconds, picture=self.stacks)

    def stacks(self) -> str:
        """End it, and return where each of its threads was, after the end of its log."""
        self._end(signal.SIGABRT)
        return self.log.read_text(errors="replace")[-20_000:]

    def _end(self, number: int) -> int:
        if self.process is None or self.process.poll() is not None:
            return 0 if self.process is None else self.process.returncode
        self.process.send_signal(number)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait(60)


class ControlPlane:
    """The surroundings of a controller. A context manager."""

    def __init__(self, server: ApiServer, folder: Path, outcome: Outcome = lambda _job: "0.5") -> None:
        self.server = server
        self.folder = folder
        self.core_namespace = "katib-core"
        self._outcome = outcome
        self._stack = ExitStack()
        self._controllers: list[ControllerProcess] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.connection = open_connection(self.server.kubeconfig)
            stack.callback(self.connection.close)
            self.store = KubernetesStore(self.connection)
            self._install()
            self.guard = stack.enter_context(SpecGuard(self.server.kubeconfig))
            database = stack.enter_context(open_database(self.folder / "observations.db"))
            self.log = SqlObservationLog(database)
            self._access = access_list(database)
            self._db_port = free_port()
            self.start_db_manager()
            stack.callback(self.stop_db_manager)
            self._serve_suggestions(stack)
            self.stand_ins = StandIns(self.server.kubeconfig, self.log, self._outcome)
            self.stand_ins.start()
            stack.callback(self.stand_ins.stop)
            stack.callback(self._kill_controllers)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stack.close()
        assert self.guard.broken == []

    # --- parts --------------------------------------------------------------------------------------------------------

    def controller(self, name: str = "controller", *, election: bool = False, **init: Any) -> ControllerProcess:
        """Return a controller; `init` are further fields of `init.controller` of its KatibConfig."""
        made = ControllerProcess(self, name, election=election, **init)
        self._controllers.append(made)
        return made

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables of a controller; services are told of the DB manager of this process, not of one in a pod."""
        prefix, port = "KATIB_DB_MANAGER_SERVICE", str(self._db_port)
        reached = {f"{prefix}_IP": "127.0.0.1", f"{prefix}_NAMESPACE": "", f"{prefix}_PORT": port}
        python = {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}
        own = {"KATIB_DB_MANAGER_STATUS_PORT": STATUS_PORT, "KATIB_CORE_NAMESPACE": self.core_namespace}
        return {**os.environ, **reached, **python, **own}

    @property
    def db_manager_address(self) -> str:
        return f"127.0.0.1:{self._db_port}"

    def start_db_manager(self) -> None:
        """Serve the log as a pod of ours does, with the key of the installation."""
        tokens = TokenSigner(ensure_keys(self.store, Key(self.core_namespace, SECRET_NAME)))
        self.log_guard = LogGuard(tokens, self._access)
        self._db_manager = serve_db_manager(self.log, self.db_manager_address, guard=self.log_guard)

    def stop_db_manager(self) -> None:
        self._db_manager.stop(0)

    def katib_config(self, webhook: int, health: int, metrics: int, init: Mapping[str, Any]) -> dict[str, Any]:
        controller = {
            "webhookPort": webhook,
            "healthzAddr": f"127.0.0.1:{health}",
            "metricsAddr": f"127.0.0.1:{metrics}",
            **init,
        }
        return {
            "apiVersion": "config.kubeflow.org/v1beta1",
            "kind": "KatibConfig",
            "init": {"controller": controller},
            "runtime": self._runtime,
        }

    def _install(self) -> None:
        install_our_kinds(self.server)
        self.server.namespace(self.core_namespace)

    def _serve_suggestions(self, stack: ExitStack) -> None:
        self._runtime: dict[str, Any] = {
            "suggestions": [],
            "metricsCollectors": [{"kind": kind, "image": "collector:1"} for kind in ("StdOut", "File")],
        }
        self.add_service("random", self._serve(stack, "random"))

    def _serve(self, stack: ExitStack, algorithm: str) -> str:
        """Run the service of an algorithm; return its address."""
        address = f"127.0.0.1:{free_port()}"
        command = [sys.executable, "-m", "suggestion_services", "--algorithm", algorithm, "--address", address]
        process = subprocess.Popen(command, env=self.environment)
        stack.callback(process.wait)
        stack.callback(process.kill)
        return address

    def add_service(self, algorithm: str, address: str) -> None:
        """Offer an algorithm whose service listens at an address."""
        self._runtime["suggestions"].append({"algorithmName": algorithm, "address": address})
        self._put_config(yaml.safe_dump({"runtime": self._runtime}))

    def serve_early_stopping(self, stack: ExitStack, algorithm: str) -> None:
        """Offer an early stopping algorithm, served by a process of its own that brings no token."""
        entry = {"algorithmName": algorithm, "address": self._serve(stack, algorithm), "sendsToken": False}
        self._runtime.setdefault("earlyStoppings", []).append(entry)
        self._put_config(yaml.safe_dump({"runtime": self._runtime}))

    def _put_config(self, text: str) -> None:
        metadata = {"name": "katib-config", "namespace": self.core_namespace}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"katib-config.yaml": text}}
        try:
            self.store.create(body)
        except KatibError:
            stored = self.store.get(Kind("v1", "ConfigMap"), Key(self.core_namespace, "katib-config"))
            self.store.update({**stored, "data": body["data"]})

    def _kill_controllers(self) -> None:
        for controller in self._controllers:
            if controller.is_alive:
                with suppress(ProcessLookupError):
                    controller.thaw()
                controller.kill()

    # --- the user -----------------------------------------------------------------------------------------------------

    def namespace(self, name: str) -> str:
        """Make a namespace for experiments."""
        self.server.namespace(name)
        kind = Kind("v1", "Namespace")
        stored = self.store.get(kind, Key("", name))
        labels = {**stored["metadata"].get("labels", {}), "katib.kubeflow.org/metrics-collector-injection": "enabled"}
        self.store.update({**stored, "metadata": {**stored["metadata"], "labels": labels}})
        return name

    def submit(self, name: str, namespace: str, **spec: Any) -> Object:
        return self.store.create(an_experiment_of_stand_ins(name, namespace, **spec))

    def experiment(self, name: str, namespace: str) -> Object:
        return self.store.get(EXPERIMENT, Key(namespace, name))

    def trials(self, namespace: str) -> tuple[Object, ...]:
        return self.store.list(TRIAL, namespace).items

    def picture(self, seen: Mapping[str, Any]) -> str:
        """Return what an experiment looks like, and where the threads of all controllers are, which end by it."""
        running = [controller for controller in self._controllers if controller.is_alive]
        return "\n".join([str(seen.get("status")), *(controller.stacks() for controller in running)])

    def wait_for_end(self, name: str, namespace: str, within_seconds: float = 180.0) -> Object:
        """Return the experiment once it is over."""
        found: Object = {}

        def has_ended() -> str:
            nonlocal found
            with suppress(KatibError):
                found = self.experiment(name, namespace)
            return ended(found)

        what = f"the end of {name}"
        eventually(has_ended, what, seconds=within_seconds, every=0.1, picture=lambda: self.picture(found))
        return found


def ended(experiment: Object) -> str:
    """Return how an experiment ended; empty while it continues."""
    for condition in (experiment.get("status") or {}).get("conditions") or ():
        if condition["type"] in ("Succeeded", "Failed") and condition["status"] == "True":
            return str(condition["reason"])
    return ""


def rules_of_the_controller() -> list[dict[str, Any]]:
    """Return what the manifests allow the controller, and what it may do to StandIns.

    With the component for OptimizationJobs: their kind stays on an API server once a test has installed it.
    """
    places = ("webhook/certificate.yaml", "db-manager/key.yaml", "optimization-jobs/rbac.yaml")
    files = [*(_COMPONENTS / "rbac").glob("controller*.yaml"), *(_COMPONENTS / place for place in places)]
    found = [obj for file in files for obj in yaml.safe_load_all(file.read_text()) if obj["kind"].endswith("Role")]
    roles = [role for role in found if not role["metadata"]["name"].startswith("katib-optimization-jobs-")]  # of users
    jobs = {"apiGroups": ["test.katib.dev"], "resources": ["standins"]}
    verbs = {"verbs": ["get", "list", "watch", "create", "delete"]}
    return [*(rule for role in roles for rule in role.get("rules") or ()), {**jobs, **verbs}]


def an_experiment_of_stand_ins(name: str, namespace: str, **spec: Any) -> dict[str, Any]:
    """Return an Experiment whose trials run as StandIns."""
    succeeded = 'status.conditions.#(type=="Succeeded")#|#(status=="True")#'
    template = {
        "primaryContainerName": "main",
        "successCondition": succeeded,
        "failureCondition": succeeded.replace("Succeeded", "Failed"),
        "trialParameters": [{"name": "lr", "reference": "lr"}],
        "trialSpec": {
            "apiVersion": STAND_IN.api_version,
            "kind": STAND_IN.kind,
            "spec": {"lr": "${trialParameters.lr}"},
        },
    }
    return an_experiment(name=name, namespace=namespace, **{"trialTemplate": template, "maxTrialCount": 5, **spec})
