"""The installs for kustomize: that they build, and what they promise."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from katib.configuration.reading import read_katib_config
from suggestion_services.algorithms import ENTRIES

ROOT = Path(__file__).resolve().parents[3]
COMPONENTS = ROOT / "manifests" / "components"
INSTALLS = sorted(path.parent.name for path in (ROOT / "manifests" / "installs").glob("*/kustomization.yaml"))

Json = dict[str, Any]

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl, which has kustomize, is missing")


@functools.cache
def build(install: str) -> tuple[Json, ...]:
    folder = ROOT / "manifests" / "installs" / install
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=True)
    return tuple(yaml.safe_load_all(done.stdout))


def of_kind(install: str, kind: str) -> list[Json]:
    return [obj for obj in build(install) if obj["kind"] == kind]


def named(install: str, kind: str, name: str) -> Json:
    (found,) = [obj for obj in of_kind(install, kind) if obj["metadata"]["name"] == name]
    return found


def webhooks(install: str) -> dict[str, Json]:
    kinds = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    return {hook["name"]: hook for kind in kinds for obj in of_kind(install, kind) for hook in obj["webhooks"]}


def test_all_flavours_are_there() -> None:
    assert (
        sorted(["cert-manager", "external-db", "leader-election", "mysql", "postgres", "standalone", "with-kubeflow"])
        == INSTALLS
    )


@pytest.mark.parametrize("install", INSTALLS)
def test_everything_lives_in_one_namespace_that_may_hold_experiments(install: str) -> None:
    homeless = {
        "Namespace",
        "ClusterRole",
        "ClusterRoleBinding",
        "CustomResourceDefinition",
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
    }
    namespaces = {obj["metadata"].get("namespace") for obj in build(install) if obj["kind"] not in homeless}

    assert namespaces == {"kubeflow"}
    labels = named(install, "Namespace", "kubeflow")["metadata"]["labels"]
    assert labels["katib.kubeflow.org/metrics-collector-injection"] == "enabled"


@pytest.mark.parametrize("install", INSTALLS)
def test_our_pods_fit_the_restricted_level_of_pod_security(install: str) -> None:
    for deployment in of_kind(install, "Deployment"):
        pod = deployment["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        allowed = {"configMap", "emptyDir", "persistentVolumeClaim", "projected", "secret"}
        assert all(set(volume) - {"name"} <= allowed for volume in pod.get("volumes", ()))
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert context["readOnlyRootFilesystem"] is True
            assert {"cpu", "memory"} <= set(container["resources"]["requests"])
            assert "memory" in container["resources"]["limits"]


@pytest.mark.parametrize("install", INSTALLS)
def test_a_dead_controller_cannot_keep_pods_from_starting(install: str) -> None:
    found = webhooks(install)

    assert {name: hook["failurePolicy"] for name, hook in found.items()} == {
        "defaulter.experiment.katib.kubeflow.org": "Fail",
        "mutator.pod.katib.kubeflow.org": "Ignore",
        "validator.experiment.katib.kubeflow.org": "Fail",
    }
    pods = found["mutator.pod.katib.kubeflow.org"]
    assert pods["namespaceSelector"]["matchLabels"] == {"katib.kubeflow.org/metrics-collector-injection": "enabled"}
    assert pods["timeoutSeconds"] <= 10


@pytest.mark.parametrize("install", INSTALLS)
def test_webhooks_and_services_lead_to_ports_that_pods_have(install: str) -> None:
    pods = [d["spec"]["template"] for d in of_kind(install, "Deployment")]
    for service in of_kind(install, "Service"):
        selector = service["spec"]["selector"].items()
        (pod,) = [pod for pod in pods if selector <= pod["metadata"]["labels"].items()]
        ports = {port["name"] for container in pod["spec"]["containers"] for port in container["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    for hook in webhooks(install).values():
        target = hook["clientConfig"]["service"]
        assert 443 in {port["port"] for port in named(install, "Service", target["name"])["spec"]["ports"]}


@pytest.mark.parametrize("install", INSTALLS)
def test_what_pods_refer_to_is_part_of_the_install(install: str) -> None:
    given = {"katib-server-token", *(["katib-webhook-cert"] if "cert-manager.io" in str(build(install)) else [])}
    there = {(obj["kind"], obj["metadata"]["name"]) for obj in build(install)}
    text = "\n".join(yaml.safe_dump(d["spec"]["template"]["spec"]) for d in of_kind(install, "Deployment"))
    accounts = set(re.findall(r"serviceAccountName: (\S+)", text))
    claims = set(re.findall(r"claimName: (\S+)", text))
    secrets = set(re.findall(r"secretName: (\S+)", text)) | set(
        re.findall(r"secret(?:KeyRef|Ref):\n(?: +key: \S+\n)? +name: (\S+)", text)
    )

    assert {("ServiceAccount", name) for name in accounts} <= there
    assert {("PersistentVolumeClaim", name) for name in claims} <= there
    assert {("Secret", name) for name in secrets - given} <= there


@pytest.mark.parametrize("install", INSTALLS)
def test_the_configuration_offers_all_our_algorithms(install: str) -> None:
    text = named(install, "ConfigMap", "katib-config")["data"]["katib-config.yaml"]
    config = read_katib_config(text, "katib-config.yaml")

    ours = [entry.info for entry in ENTRIES]
    assert {e.algorithm_name for e in config.runtime.suggestions} == {i.name for i in ours if not i.early_stopping}
    assert {e.algorithm_name for e in config.runtime.early_stoppings} == {i.name for i in ours if i.early_stopping}
    assert {e.kind for e in config.runtime.metrics_collectors} == {"StdOut", "File"}
    assert config.init.controller.enable_leader_election is (install == "leader-election")


@pytest.mark.parametrize("install", INSTALLS)
def test_one_controller_works_at_a_time(install: str) -> None:
    spec = named(install, "Deployment", "katib-controller")["spec"]

    assert install == "leader-election" or (spec["replicas"], spec["strategy"]["type"]) == (1, "Recreate")


def test_leader_election_differs_from_the_common_configuration_in_nothing_else() -> None:
    common, ours = ((COMPONENTS / room / "katib-config.yaml").read_text() for room in ("config", "leader-election"))

    assert ours == common.replace("enableLeaderElection: false", "enableLeaderElection: true") != common


@pytest.mark.parametrize("install", ["cert-manager", "with-kubeflow"])
def test_with_cert_manager_the_controller_reads_its_certificate_and_may_write_none(install: str) -> None:
    pod = named(install, "Deployment", "katib-controller")["spec"]["template"]["spec"]

    (mount,) = [m for m in pod["containers"][0]["volumeMounts"] if m["name"] == "certificate"]
    assert f"--cert-dir={mount['mountPath']}" in pod["containers"][0]["args"]
    assert not [obj for obj in build(install) if obj["metadata"]["name"] == "katib-controller-certificate"]
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        annotations = named(install, kind, "katib.kubeflow.org")["metadata"]["annotations"]
        assert annotations["cert-manager.io/inject-ca-from"] == "kubeflow/katib-webhook-cert"


def test_no_role_of_ours_allows_everything() -> None:
    for install in INSTALLS:
        for role in (*of_kind(install, "ClusterRole"), *of_kind(install, "Role")):
            for rule in role.get("rules") or ():
                assert "*" not in {*rule["verbs"], *rule["resources"], *rule["apiGroups"]}


def test_the_controller_holds_every_right_that_it_gives_away() -> None:
    """Else the API server refuses the Role of an early stopping service."""
    given = {"trials": {"get", "list", "watch"}, "trials/status": {"get", "patch", "update"}}
    held: dict[str, set[str]] = {}
    for rule in named("standalone", "ClusterRole", "katib-controller")["rules"]:
        for resource in rule["resources"]:
            held.setdefault(resource, set()).update(rule["verbs"])

    assert all(verbs <= held[resource] for resource, verbs in given.items())


def test_network_policies_select_our_own_pods_only() -> None:
    for policy in of_kind("standalone", "NetworkPolicy"):
        assert "katib.kubeflow.org/component" in str(policy["spec"]["podSelector"])
        assert policy["spec"]["policyTypes"] == ["Ingress"]


def test_rules_of_the_api_server_are_only_where_the_cluster_knows_them() -> None:
    """An older kubectl or API server refuses definitions that hold them."""
    having = {install for install in INSTALLS if "x-kubernetes-validations" in str(build(install))}

    assert having == {"cert-manager", "with-kubeflow"}
