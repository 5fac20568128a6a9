"""The webhooks of Experiments as a real API server calls them, and kubectl shows what they say."""

from __future__ import annotations

import base64
import copy
import json
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from katib.engine.controllers.kinds import EXPERIMENT
from katib.engine.runtime.clock import SystemClock
from katib.engine.runtime.objects import Key, Kind
from katib.errors import InvalidError, KatibError, NotFoundError
from katib.places.cluster.admission.certificate_sources import (
    MUTATING,
    SECRET,
    VALIDATING,
    CaBundle,
    CertificateSecret,
    CertificateTerms,
)
from katib.places.cluster.admission.server import CERTIFICATE_PERIOD_SECONDS, AdmissionServer
from katib.places.cluster.store import KubernetesStore
from katib.places.cluster.webhooks.experiments import ExperimentAdmission
from katib.wire.serving.certificates import Certificate, CertificateSource, authorities_in, issue
from tests.support.api_server import ApiServer
from tests.support.clock import VirtualClock
from tests.support.experiments import a_template, an_experiment
from tests.support.gate import CATALOG, Catalog
from tests.support.ports import free_port
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster

CRDS = Path(__file__).parents[2] / "manifests" / "components" / "crds"
EXAMPLES = Path(__file__).parents[1] / "support" / "katib_examples"
NAME = "admission-tests"
BARE = "admission-tests-bare"
POD = Kind("v1", "Pod")
FINALIZER = "update-prometheus-metrics"
KEY = Key(NAME, "webhook-certificate")
LABEL = "katib.kubeflow.org/metrics-collector-injection"
GROUP = "admissionregistration.k8s.io"
PATHS = {
    MUTATING: f"/apis/{GROUP}/v1/mutatingwebhookconfigurations",
    VALIDATING: f"/apis/{GROUP}/v1/validatingwebhookconfigurations",
}


class World:
    """A cluster whose webhooks call a server of this process."""

    def __init__(self, api_server: ApiServer) -> None:
        self.api = api_server
        self.store = KubernetesStore(api_server.admin)
        self.host = address_towards(api_server.admin.host)
        self.port = free_port(self.host)
        self.catalog: Catalog = CATALOG
        self.clock = VirtualClock()
        self.server: AdmissionServer | None = None
        self.terms = CertificateTerms((self.host,))

    def source(self) -> CertificateSecret:
        return CertificateSecret(self.store, KEY, self.terms, CaBundle(self.store, NAME), SystemClock())

    @contextmanager
    def serving(self, source: CertificateSource | None = None) -> Iterator[AdmissionServer]:
        """Answer the API server for a while."""
        admission = ExperimentAdmission(
            self.store, catalog=lambda: self.catalog, collectors=lambda: ("StdOut", "File", "TensorFlowEvent")
        )
        server = AdmissionServer(
            admission.handlers(), source or self.source(), host=self.host, port=self.port, clock=self.clock
        )
        with server:
            yield server

    def look_again(self) -> None:
        """Let the server look at its certificate."""
        eventually(lambda: self.clock.waiting_count == 1, "the last look to end")
        self.clock.advance(CERTIFICATE_PERIOD_SECONDS)
        eventually(lambda: self.clock.waiting_count == 1, "the look to end")

    def configure(self, bundle: bytes = b"") -> None:
        """Install the webhooks as the manifests do, or put them back to that."""
        for kind in PATHS:
            self.remove_configuration(kind)
            rules = {
                "experiments": [rule("kubeflow.org", "v1beta1", "experiments", "CREATE")],
                "edits": [rule("kubeflow.org", "v1beta1", "experiments", "UPDATE")],
                "pods": [rule("", "v1", "pods", "CREATE")],
            }
            webhooks = [
                self.webhook("experiment", kind, rules["experiments"], "Fail", bundle),
                self.webhook("experiment", kind, rules["edits"], "Ignore", bundle, prefix="update."),
            ]
            if kind == MUTATING:
                webhooks.append(self.webhook("pod", kind, rules["pods"], "Ignore", bundle))
            self.store.create(
                {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": NAME}, "webhooks": webhooks}
            )

    def webhook(
        self, what: str, kind: Any, rules: list[Any], policy: str, bundle: bytes, *, prefix: str = ""
    ) -> dict[str, Any]:
        verb = "mutate" if kind == MUTATING else "validate"
        trusted = {"caBundle": base64.b64encode(bundle).decode()} if bundle else {}
        return {
            "name": f"{verb}.{prefix}{what}.katib.kubeflow.org",
            "admissionReviewVersions": ["v1", "v1beta1"],
            "sideEffects": "None",
            "failurePolicy": policy,
            "timeoutSeconds": 20,
            "rules": rules,
            "namespaceSelector": {"matchLabels": {"of": NAME}},
            "clientConfig": {"url": f"https://{self.host}:{self.port}/{verb}-{what}", **trusted},
        }

    def remove_configuration(self, kind: Any) -> None:
        with suppress(NotFoundError):
            self.api.admin.request("DELETE", f"{PATHS[kind]}/{NAME}")

    def kubectl(self, *arguments: str, document: Any = None) -> subprocess.CompletedProcess[str]:
        program = shutil.which("kubectl") or os.path.join(os.environ.get("KUBEBUILDER_ASSETS", ""), "kubectl")  # noqa: PTH118
        return subprocess.run(
            [program, f"--kubeconfig={self.api.kubeconfig}", *arguments],
            input=None if document is None else yaml.safe_dump(document),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def apply(self, document: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        return self.kubectl("apply", "-f", "-", document=document)

    def refusal(self, raw: dict[str, Any]) -> str:
        """Return why an experiment may not be created, empty when it may. Nothing is stored."""
        path = f"/apis/kubeflow.org/v1beta1/namespaces/{raw['metadata']['namespace']}/experiments"
        try:
            self.api.admin.request("POST", path, query={"dryRun": "All"}, body=raw)
        except KatibError as error:
            return str(error)
        return ""

    def await_accepted(self) -> None:
        eventually(lambda: self.refusal(experiment("probe")) == "", "the webhooks to answer")

    def await_refused(self, words: str) -> None:
        eventually(lambda: words in self.refusal(experiment("probe")), f"a refusal because of {words}")

    def clean(self) -> None:
        for kind in PATHS:
            self.remove_configuration(kind)
        for item in self.store.list(EXPERIMENT, NAME).items:
            self.store.delete(EXPERIMENT, Key.of(item))
        with suppress(NotFoundError):
            self.store.delete(SECRET, KEY)


@pytest.fixture(scope="module")
def prepared(api_server: ApiServer) -> Iterator[ApiServer]:
    """An API server with the kinds of ours, and two namespaces of which one may hold experiments."""
    for file in sorted(CRDS.glob("*s.yaml")):
        crd = yaml.safe_load(file.read_text())
        api_server.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    for name, labels in ((NAME, {LABEL: "enabled"}), (BARE, {})):
        metadata = {"name": name, "labels": {"of": NAME, **labels}}
        api_server.create("/api/v1/namespaces", {"metadata": metadata})
    eventually(lambda: is_served(api_server), "experiments to be served")
    yield api_server
    for name in (NAME, BARE):
        api_server.delete_namespace(name)


@pytest.fixture
def world(prepared: ApiServer) -> Iterator[World]:
    world = World(prepared)
    try:
        world.configure()
        yield world
    finally:
        world.clean()


def is_served(api_server: ApiServer) -> bool:
    try:
        api_server.admin.request("GET", f"/apis/kubeflow.org/v1beta1/namespaces/{NAME}/experiments")
    except KatibError:
        return False
    return True


def rule(group: str, version: str, resource: str, *operations: str) -> dict[str, Any]:
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": [resource],
        "operations": list(operations),
        "scope": "Namespaced",
    }


def experiment(name: str, *, namespace: str = NAME, **spec: Any) -> dict[str, Any]:
    return an_experiment(name=name, namespace=namespace, **spec)


def address_towards(url: str) -> str:
    """Return the address of this machine under which an API server reaches it."""
    target = urlsplit(url)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((target.hostname or "127.0.0.1", target.port or 443))
        address: str = probe.getsockname()[0]
    return address


# --- what users see ---------------------------------------------------------------------------------------------------


def test_kubectl_prints_every_error_on_a_line_of_its_own(world: World) -> None:
    bad = experiment("demo", namespace=BARE, maxTrialCount=0, algorithm={"algorithmName": "randm"})
    with world.serving():
        world.await_accepted()
        shown = world.apply(bad)

    assert shown.returncode == 1
    head, *lines = [line.strip() for line in shown.stderr.splitlines()]
    assert head.startswith('The Experiment "demo" ')
    assert [line.partition(": ")[0] for line in lines] == [
        "* metadata.namespace",
        "* spec.maxTrialCount",
        "* spec.algorithm.algorithmName",
    ]
    assert f"kubectl label namespace {BARE} --overwrite {LABEL}=enabled" in lines[0]
    assert "did you mean random" in lines[2]


def test_kubectl_applies_a_good_experiment_with_defaults_and_warnings(world: World) -> None:
    template = a_template()
    template["trialSpec"]["spec"]["ttlSecondsAfterFinished"] = 0
    good = experiment("demo", trialTemplate=template, parallelTrialCount=None)
    with world.serving():
        world.await_accepted()
        shown = world.apply(good)
        stored = world.store.get(EXPERIMENT, Key(NAME, "demo"))
        again = world.apply(good)

    assert shown.stdout == "experiment.kubeflow.org/demo created\n"
    assert again.returncode == 0, again.stderr
    assert world.store.get(EXPERIMENT, Key(NAME, "demo")) == stored
    assert [line for line in shown.stderr.splitlines() if "ttlSecondsAfterFinished" in line]
    spec = stored["spec"]
    assert (spec["parallelTrialCount"], spec["resumePolicy"]) == (3, "Never")
    assert spec["trialTemplate"]["trialSpec"] == template["trialSpec"]
    assert spec["parameters"][0]["feasibleSpace"]["distribution"] == "uniform"


def test_a_name_can_be_generated(world: World) -> None:
    raw = {**experiment("x"), "metadata": {"generateName": "demo-", "namespace": NAME}}
    with world.serving():
        world.await_accepted()
        shown = world.kubectl("create", "-f", "-", document=raw)

    assert shown.stdout.startswith("experiment.kubeflow.org/demo-"), shown.stderr


@pytest.mark.parametrize("name", ["hp-tuning/random", "nas/darts-cpu", "kubeflow-training-operator/pytorchjob-mnist"])
def test_an_example_of_katib_is_applied_as_it_stands(world: World, name: str) -> None:
    document = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    document["metadata"]["namespace"] = NAME
    world.catalog = Catalog(document["spec"]["algorithm"]["algorithmName"], "random")
    with world.serving():
        world.await_accepted()
        shown = world.apply(document)
        world.store.delete(EXPERIMENT, Key(NAME, document["metadata"]["name"]))

    assert shown.stdout.endswith(" created\n"), shown.stderr


def test_rules_by_which_a_container_runs_again_are_kept_and_unknown_ones_refused(world: World) -> None:
    good, bad = experiment("rules"), experiment("unknown-rules")
    for one, action in ((good, "RestartAllContainers"), (bad, "Reboot")):
        container = one["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]["containers"][0]
        rule = {"action": action, "exitCodes": {"operator": "In", "values": [3]}}
        container |= {"restartPolicy": "Never", "restartPolicyRules": [rule]}
    with world.serving():
        world.await_accepted()
        applied, refused = world.apply(good), world.apply(bad)

    place = "spec.trialTemplate.trialSpec.spec.template.spec.containers[0]"
    assert applied.returncode == 0, applied.stderr
    assert f'{place}.restartPolicyRules[0].action: "Reboot" ' in refused.stderr
    stored = world.store.get(EXPERIMENT, Key(NAME, "rules"))["spec"]["trialTemplate"]["trialSpec"]
    (container,) = stored["spec"]["template"]["spec"]["containers"]
    assert container["restartPolicyRules"][0]["action"] == "RestartAllContainers"


def test_a_change_that_cannot_be_is_refused_with_both_values(world: World) -> None:
    with world.serving():
        world.await_accepted()
        world.store.create(experiment("demo"))
        raised = world.kubectl("patch", "experiment", "demo", "-n", NAME, "--type=merge", *merge({"maxTrialCount": 9}))
        # Rules in the definition, which newer servers have, are asked before the webhooks that validate.
        world.remove_configuration(VALIDATING)
        changed = world.kubectl(
            "patch", "experiment", "demo", "-n", NAME, "--type=merge", *merge({"algorithm": {"algorithmName": "grid"}})
        )

    assert raised.returncode == 0, raised.stderr
    assert "spec.algorithm.algorithmName: " in changed.stderr


def merge(spec: dict[str, Any]) -> tuple[str, str]:
    return "--patch", json.dumps({"spec": spec})


def test_an_experiment_can_be_deleted_whatever_has_changed_around_it(world: World) -> None:
    raw = experiment("demo")
    raw["metadata"]["finalizers"] = ["update-prometheus-metrics"]
    with world.serving():
        world.await_accepted()
        stored = copy.deepcopy(dict(world.store.create(raw)))
        world.catalog = Catalog()
        world.store.delete(EXPERIMENT, Key(NAME, "demo"))
        stored = copy.deepcopy(dict(world.store.get(EXPERIMENT, Key(NAME, "demo"))))
        stored["metadata"]["finalizers"] = []
        world.store.update(stored)

        with pytest.raises(NotFoundError):
            world.store.get(EXPERIMENT, Key(NAME, "demo"))


# --- certificates -----------------------------------------------------------------------------------------------------


def test_a_bundle_that_somebody_reset_is_written_again(world: World) -> None:
    with world.serving():
        world.await_accepted()
        world.configure()
        world.await_refused("x509")
        world.look_again()
        world.await_accepted()


def test_experiments_are_created_all_the_time_while_certificates_are_renewed(world: World) -> None:
    """Certificates so short-lived that each is renewed as soon as it is in use."""
    world.terms = CertificateTerms((world.host,), timedelta(days=1), timedelta(days=2), timedelta(seconds=1))
    stop = threading.Event()

    def create() -> list[str]:
        found = []
        while not stop.is_set():
            found.append(world.refusal(experiment("probe")))
        return found

    served: set[str] = set()

    def renewed() -> bool:
        world.look_again()
        served.add(world.store.get(SECRET, KEY)["data"]["tls.crt"])
        return len(served) >= 5

    with world.serving(), ThreadPoolExecutor(2) as pool:
        world.await_accepted()
        callers = [pool.submit(create) for _ in range(2)]
        try:
            eventually(renewed, "five certificates")
        finally:
            stop.set()
        answers = [answer for caller in callers for answer in caller.result(60)]

    assert len(answers) > 20
    assert set(answers) == {""}
    assert len(authorities_in(base64.b64decode(world.store.get(SECRET, KEY)["data"]["ca.crt"]))) == 2


class Fixed:
    """A source of one certificate."""

    def __init__(self, certificate: Certificate) -> None:
        self._certificate = certificate

    def refresh(self) -> Certificate:
        return self._certificate


def test_an_expired_certificate_is_replaced_without_anybody_doing_anything(world: World) -> None:
    expired = issue((world.host,), datetime.now(UTC) - timedelta(days=2), timedelta(days=1))
    world.configure(expired.authority)
    contents = {"tls.crt": expired.certificate.chain, "tls.key": expired.certificate.key, "ca.crt": expired.authority}
    data = {name: base64.b64encode(content).decode() for name, content in contents.items()}
    metadata = {"namespace": KEY.namespace, "name": KEY.name}
    world.store.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data})
    with world.serving(Fixed(expired.certificate)):
        world.await_refused("expired")

    with world.serving():
        world.await_accepted()


def test_two_replicas_that_start_at_once_serve_one_certificate(world: World) -> None:
    barrier = threading.Barrier(4)

    def start() -> Certificate:
        source = world.source()
        barrier.wait(60)
        return source.refresh()

    with ThreadPoolExecutor(4) as pool:
        certificates = [future.result(60) for future in [pool.submit(start) for _ in range(4)]]

    assert all(certificate == certificates[0] for certificate in certificates)
    with world.serving():
        world.await_accepted()


# --- nobody there -----------------------------------------------------------------------------------------------------


def test_without_the_server_no_experiment_is_created_and_everything_else_goes_on(world: World) -> None:
    with world.serving():
        world.await_accepted()
        stored = copy.deepcopy(dict(world.store.create(experiment("demo"))))
    shown = world.apply(experiment("other"))

    assert shown.returncode == 1
    assert "failed calling webhook" in shown.stderr
    stored = world.store.patch(stored, {"spec": {"parallelTrialCount": 1}, "metadata": {"finalizers": [FINALIZER]}})
    assert stored["spec"]["parallelTrialCount"] == 1
    stored = world.store.patch(stored, {"metadata": {"finalizers": None}})
    assert "finalizers" not in stored["metadata"]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": NAME, "name": "unrelated"},
        "spec": {"containers": [{"name": "a", "image": "none"}], "automountServiceAccountToken": False},
    }
    world.store.create(pod)
    world.store.delete(POD, Key(NAME, "unrelated"))
    world.store.update_status({**stored, "status": {"trials": 1}})
    world.store.delete(EXPERIMENT, Key(NAME, "demo"))
    with pytest.raises(NotFoundError):
        world.store.get(EXPERIMENT, Key(NAME, "demo"))


def test_an_object_of_three_mebibytes_does_not_stop_the_server(world: World) -> None:
    large = experiment("large")
    large["metadata"]["annotations"] = {"text": "x" * 200_000}
    large["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]["containers"][0]["args"] = ["y" * 1_000_000]
    with world.serving():
        world.await_accepted()
        world.store.create(large)
        stored = copy.deepcopy(dict(world.store.get(EXPERIMENT, Key(NAME, "large"))))
        stored["spec"]["maxTrialCount"] = 9
        world.store.update(stored)
        stored["spec"]["maxTrialCount"] = -1
        stored["metadata"]["resourceVersion"] = world.store.get(EXPERIMENT, Key(NAME, "large"))["metadata"][
            "resourceVersion"
        ]
        with pytest.raises(InvalidError, match="maxTrialCount"):
            world.store.update(stored)
