"""The manifests as a real API server sees them."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.api_server import ApiServer
from tests.support.helm import CHART, POSTGRES, helm, needs_helm
from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "manifests"
EXAMPLES = sorted((ROOT / "tests" / "support" / "katib_examples").rglob("*.yaml"))
NAMESPACE = "kubeflow"
FOREIGN = {"Certificate", "Issuer", "VirtualService", "Sidecar", "AuthorizationPolicy"}

Json = dict[str, Any]
Kubectl = Callable[..., str]

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is missing"),
]


@pytest.fixture(scope="module")
def kubectl(api_server: ApiServer) -> Iterator[Kubectl]:
    """Kubectl for an API server that has our definitions, and no webhook that has its say, too."""
    if not api_server.owned:
        pytest.skip("needs an API server of its own, set KUBEBUILDER_ASSETS: an installed controller has its say, too")

    def run(*arguments: str, stdin: str | None = None, check: bool = True) -> str:
        command = ["kubectl", f"--kubeconfig={api_server.kubeconfig}", *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        assert not check or done.returncode == 0, done.stderr
        return done.stdout if done.returncode == 0 else done.stderr

    run("apply", "-k", str(MANIFESTS / "components" / "crds"))
    for name in (NAMESPACE, "argo"):
        api_server.namespace(name)
    eventually(lambda: "experiments" in run("api-resources", "--api-group=kubeflow.org"), "our kinds to be served")
    eventually(lambda: "error" not in run("explain", "experiment.spec", check=False), "our kinds to be explained")
    yield run
    # The kinds stay: other tests need them, and what those leave behind may have finalizers that nobody removes.
    run("delete", "experiments,suggestions,trials", "--all", f"--namespace={NAMESPACE}", "--timeout=180s")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_an_experiment_of_katib_is_accepted_as_it_is(kubectl: Kubectl, path: Path) -> None:
    assert "created (server dry run)" in kubectl("create", "--dry-run=server", "-f", str(path))


STORED: dict[str, Json] = {
    "experiments": {
        "kind": "Experiment",
        "spec": {
            "objective": {"type": "maximize", "goal": 0.99, "objectiveMetricName": "accuracy"},
            "algorithm": {"algorithmName": "random"},
            "parameters": [{"name": "lr", "parameterType": "double", "feasibleSpace": {"min": "0.01", "max": "0.03"}}],
            "maxFailedTrialCount": 0,
            "nasConfig": {"graphConfig": {}},
            "trialTemplate": {"trialSpec": {"apiVersion": "batch/v1", "kind": "Job", "spec": {"any": [1, "2", None]}}},
        },
        "status": {
            "startTime": "2024-03-04T17:55:08Z",
            "completionTime": None,
            "lastReconcileTime": None,
            "currentOptimalTrial": {"observation": {}},
            "conditions": [
                {
                    "type": "Created",
                    "status": "True",
                    "reason": "ExperimentCreated",
                    "message": "Experiment is created",
                    "lastUpdateTime": "2024-03-04T17:55:08Z",
                    "lastTransitionTime": "2024-03-04T17:55:08Z",
                }
            ],
            "runningTrialList": ["a-bcdfghjk"],
            "trials": 1,
            "trialsRunning": 1,
            "trialMetricsUnavailable": 1,
        },
    },
    "trials": {
        "kind": "Trial",
        "spec": {
            "objective": {"type": "minimize", "objectiveMetricName": "loss"},
            "metricsCollector": {},
            "parameterAssignments": [{"name": "lr", "value": "0.013"}],
            "runSpec": {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"creationTimestamp": None}},
            "successCondition": 'status.conditions.#(type=="Complete")#|#(status=="True")#',
        },
        "status": {
            "startTime": "2024-03-04T17:55:08Z",
            "completionTime": None,
            "observation": {"metrics": [{"name": "loss", "min": "0.1", "max": "0.2", "latest": "unavailable"}]},
        },
    },
    "suggestions": {
        "kind": "Suggestion",
        "spec": {"algorithm": {"algorithmName": "random"}, "requests": 3, "resumePolicy": "Never"},
        "status": {
            "startTime": "2024-03-04T17:55:08Z",
            "suggestionCount": 1,
            "suggestions": [
                {
                    "name": "a-bcdfghjk",
                    "parameterAssignments": [{"name": "lr", "value": "0.013"}],
                    "earlyStoppingRules": [{"name": "loss", "value": "0.5", "comparison": "less", "startStep": 4}],
                }
            ],
        },
    },
}
"""Objects as Katib stores them, with its nulls and its empty blocks."""


@pytest.mark.parametrize("plural", STORED)
def test_an_object_that_katib_stored_is_kept_whole(kubectl: Kubectl, plural: str) -> None:
    metadata = {"name": "stored", "namespace": NAMESPACE}
    obj = {"apiVersion": "kubeflow.org/v1beta1", "metadata": metadata, **STORED[plural]}
    path = f"/apis/kubeflow.org/v1beta1/namespaces/{NAMESPACE}/{plural}"

    created = json.loads(kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(obj)))
    changed = json.dumps({**created, "status": obj["status"]})
    stored = json.loads(kubectl("replace", "--raw", f"{path}/stored/status", "-f", "-", stdin=changed))

    assert (stored["spec"], stored["status"]) == (obj["spec"], obj["status"])


def experiment(**spec: Any) -> str:
    head = {"apiVersion": "kubeflow.org/v1beta1", "kind": "Experiment"}
    return json.dumps({**head, "metadata": {"name": "x", "namespace": NAMESPACE}, "spec": spec})


def test_bare_numbers_of_a_search_space_are_kept(kubectl: Kubectl) -> None:
    space = {"min": 0.01, "max": 3, "step": "0.5", "list": [1, "2", True]}
    spec = {"parameters": [{"name": "lr", "parameterType": "double", "feasibleSpace": space}]}

    accepted = json.loads(kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=experiment(**spec)))

    assert accepted["spec"]["parameters"][0]["feasibleSpace"] == space


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"maxTrialCount": "three"}, id="a count that is text"),
        pytest.param({"parameters": {"name": "lr"}}, id="a list that is a mapping"),
        pytest.param({"trialTemplate": {"retain": "yes"}}, id="a truth value that is text"),
    ],
)
def test_a_field_of_the_wrong_type_is_refused(kubectl: Kubectl, spec: Json) -> None:
    answer = kubectl("create", "--dry-run=server", "--validate=false", "-f", "-", stdin=experiment(**spec), check=False)

    assert "must be of type" in answer


def test_a_template_of_a_megabyte_is_accepted(kubectl: Kubectl) -> None:
    container = {"name": "main", "args": ["x" * 1_000_000]}
    job = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": {"containers": [container]}}}}

    answer = kubectl("create", "--dry-run=server", "-f", "-", stdin=experiment(trialTemplate={"trialSpec": job}))

    assert "created" in answer


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("experiment.spec.algorithm", ("algorithmName", "algorithmSettings", "such as random, grid or tpe")),
        ("experiment.spec.parameters.feasibleSpace", ("distribution", "step", "Smallest value")),
        ("experiment.spec.trialTemplate", ("trialSpec", "primaryContainerName", "${trialParameters.NAME}")),
        ("trial.status.observation.metrics", ("latest", "Last reading")),
        ("suggestion.spec", ("requests", "since the start")),
    ],
)
def test_kubectl_explains_the_fields(kubectl: Kubectl, field: str, expected: tuple[str, ...]) -> None:
    text = " ".join(kubectl("explain", field).split())

    assert [part for part in expected if part not in text] == []


@pytest.mark.parametrize("install", sorted(path.name for path in (MANIFESTS / "installs").iterdir()))
def test_an_install_is_accepted(kubectl: Kubectl, install: str) -> None:
    """Kinds of other products are left out, and rules that this API server may be too old for are not checked."""
    built = kubectl("kustomize", str(MANIFESTS / "installs" / install))
    objects = [obj for obj in yaml.safe_load_all(built) if obj["kind"] not in FOREIGN]

    answer = kubectl("apply", "--dry-run=server", "--validate=false", "-f", "-", stdin=yaml.safe_dump_all(objects))

    assert len(answer.splitlines()) == len(objects)


@pytest.mark.parametrize("install", sorted(path.name for path in (MANIFESTS / "installs").iterdir()))
def test_a_server_side_apply_takes_over_what_a_client_side_one_installed(kubectl: Kubectl, install: str) -> None:
    """A field that the server fills in inside a map or list that is owned as a whole would be a conflict."""
    built = kubectl("kustomize", str(MANIFESTS / "installs" / install))
    objects = [obj for obj in yaml.safe_load_all(built) if obj["kind"] not in FOREIGN]
    ours = [obj for obj in objects if obj["kind"] not in {"Namespace", "CustomResourceDefinition"}]
    try:
        kubectl("apply", "--validate=false", "-f", "-", stdin=yaml.safe_dump_all(objects))
        answer = kubectl(
            "apply", "--server-side", "--validate=false", "-f", "-", stdin=yaml.safe_dump_all(objects), check=False
        )
    finally:
        kubectl("delete", "--ignore-not-found", "-f", "-", stdin=yaml.safe_dump_all(ours))

    assert "conflict" not in answer
    assert answer.count("serverside-applied") == len(objects)


@needs_helm
def test_helm_takes_over_a_configuration_that_kubectl_changed_only_when_told_to(
    kubectl: Kubectl, api_server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig))
    where = ("configmap/katib-config", f"--namespace={NAMESPACE}")
    field = {"data": {"katib-config.yaml": "changed"}}
    values: Json = {"config": {"suggestions": [{"algorithmName": "mine", "address": "mine.team:6789"}]}}
    try:
        kubectl("apply", "-k", str(MANIFESTS / "components" / "config"))
        kubectl("patch", *where, "--type=merge", "-p", json.dumps(field))

        refused = helm("install", "--take-ownership", values=values)
        kept = kubectl("get", *where, "-o", "yaml")
        done = helm("upgrade", "--install", "--take-ownership", "--force-conflicts", values=values)
        taken = kubectl("get", *where, "-o", "yaml")
    finally:
        helm("uninstall", "--ignore-not-found", "--wait")
        kubectl("delete", *where, "--ignore-not-found")

    assert ".data.katib-config.yaml" in refused.stderr
    assert "katib-config.yaml: changed" in kept
    assert done.returncode == 0, done.stderr
    assert "mine.team:6789" in taken


@needs_helm
def test_helm_upgrades_definitions_and_keeps_them_when_it_goes(
    kubectl: Kubectl, api_server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig))
    newer = tmp_path / "newer"
    shutil.copytree(CHART, newer)
    definitions = newer / "templates" / "crds.yaml"
    definitions.write_text(definitions.read_text().replace("name: Age", "name: Since", 1))
    kept = ("pvc/katib-observations", "pvc/katib-postgres", "secret/katib-db-manager-key")

    def do(command: str, *options: str, **chart: Any) -> None:
        done = helm(command, "--timeout=3m", *options, **chart)
        assert done.returncode == 0, done.stderr

    def columns() -> str:
        return kubectl("get", "crd", "experiments.kubeflow.org", "-o", "jsonpath={..additionalPrinterColumns[*].name}")

    try:
        do("install", "--take-ownership", "--force-conflicts", values={})
        do("upgrade", "--force-conflicts", values={}, chart=newer)
        assert "Since" in columns()
        do("upgrade", values={**POSTGRES, "server": {"access": "token"}}, chart=newer)
        do("upgrade", values={"database": "sqlite"}, chart=newer)
        do("uninstall", "--wait")
        assert "Since" in columns()
        assert len(kubectl("get", *kept, f"--namespace={NAMESPACE}", "-o", "name").splitlines()) == len(kept)
        do("install", values={})
        assert "Since" not in columns()
    finally:
        helm("uninstall", "--ignore-not-found", "--wait")
        kubectl("delete", *kept, f"--namespace={NAMESPACE}", "--ignore-not-found")
