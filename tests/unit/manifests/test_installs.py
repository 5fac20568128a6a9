"""The installs for kustomize: that they build, and what they promise."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from katib.doors.rest.visits import UI_PREFIX
from katib.model.configuration import read_configuration
from katib.places.cluster.configuration.models import KatibConfig
from katib.wire.serving.listening import DRAIN_SECONDS
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
    assert sorted(["cert-manager", "external-db", "mysql", "postgres", "standalone", "with-kubeflow"]) == INSTALLS


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

    assert {obj["metadata"].get("namespace") for obj in build(install) if obj["kind"] not in homeless} == {"kubeflow"}
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


@pytest.mark.parametrize("section", ["suggestions", "earlyStoppings"])
def test_every_service_of_an_algorithm_fits_the_restricted_level_of_pod_security(section: str) -> None:
    (found,) = [obj for obj in of_kind("standalone", "ConfigMap") if obj["metadata"]["name"] == "katib-config"]
    for entry in yaml.safe_load(found["data"]["katib-config.yaml"])["runtime"][section]:
        assert entry["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        assert set(entry.get("podSecurityContext", {})) <= {"fsGroup", "fsGroupChangePolicy"}


@pytest.mark.parametrize("install", INSTALLS)
def test_a_dead_controller_keeps_no_user_from_starting_pods_or_editing_experiments(install: str) -> None:
    found = webhooks(install)

    assert {name: hook["failurePolicy"] for name, hook in found.items()} == {
        "defaulter.experiment.katib.kubeflow.org": "Fail",
        "defaulter.update.experiment.katib.kubeflow.org": "Ignore",
        "mutator.pod.katib.kubeflow.org": "Ignore",
        "validator.experiment.katib.kubeflow.org": "Fail",
        "validator.update.experiment.katib.kubeflow.org": "Ignore",
    }
    pods = found["mutator.pod.katib.kubeflow.org"]
    assert pods["namespaceSelector"]["matchLabels"] == {"katib.kubeflow.org/metrics-collector-injection": "enabled"}
    assert pods["timeoutSeconds"] <= 10
    for name, hook in found.items():
        operations = [operation for rule in hook["rules"] for operation in rule["operations"]]
        assert operations == (["UPDATE"] if ".update." in name else ["CREATE"])


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
    given = {obj["spec"]["secretName"] for obj in of_kind(install, "Certificate")}
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
    config = read_configuration(KatibConfig, text, "katib-config.yaml")

    ours = [entry.info for entry in ENTRIES]
    assert {e.algorithm_name for e in config.runtime.suggestions} == {i.name for i in ours if not i.early_stopping}
    assert {e.algorithm_name for e in config.runtime.early_stoppings} == {i.name for i in ours if i.early_stopping}
    collectors = {entry.kind: entry.sends_token for entry in config.runtime.metrics_collectors}
    assert collectors == dict.fromkeys(("StdOut", "File", "TensorFlowEvent", "PrometheusMetric"), True)


@pytest.mark.parametrize("install", INSTALLS)
def test_two_controllers_answer_webhooks_and_one_of_them_works(install: str) -> None:
    text = named(install, "ConfigMap", "katib-config")["data"]["katib-config.yaml"]

    assert named(install, "Deployment", "katib-controller")["spec"]["replicas"] == 2
    assert read_configuration(KatibConfig, text, "katib-config.yaml").init.controller.enable_leader_election


@pytest.mark.parametrize("install", INSTALLS)
def test_an_upgrade_of_the_controller_leaves_no_gap(install: str) -> None:
    """A replica goes after another one has come, is known to the nodes, and the old one still answers for a while."""
    spec = named(install, "Deployment", "katib-controller")["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    (delay,) = [a.removeprefix("--shutdown-delay=") for a in container["args"] if a.startswith("--shutdown-delay=")]

    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    assert spec["minReadySeconds"] > 0
    assert 0 < float(delay) + DRAIN_SECONDS < spec["template"]["spec"]["terminationGracePeriodSeconds"]
    *_, url, seconds = container["startupProbe"]["exec"]["command"]
    assert url.endswith("/readyz")
    assert float(seconds) < container["startupProbe"]["timeoutSeconds"]


@pytest.mark.parametrize("install", INSTALLS)
def test_what_waits_for_something_that_is_away_is_not_started_again_for_it(install: str) -> None:
    for name in ("katib-controller", "katib-db-manager", "katib-server"):
        (container,) = named(install, "Deployment", name)["spec"]["template"]["spec"]["containers"]
        probe = container["startupProbe"]
        *_, seconds = probe["exec"]["command"]

        assert float(seconds) < probe["timeoutSeconds"]
        assert float(seconds) * probe["failureThreshold"] >= 24 * 3600


@pytest.mark.parametrize("install", INSTALLS)
def test_a_disruption_budget_selects_the_controllers(install: str) -> None:
    (budget,) = of_kind(install, "PodDisruptionBudget")
    labels = named(install, "Deployment", "katib-controller")["spec"]["template"]["metadata"]["labels"]

    assert budget["spec"]["selector"]["matchLabels"].items() <= labels.items()


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
    policies = of_kind("standalone", "NetworkPolicy")
    assert policies
    for policy in policies:
        assert "katib.kubeflow.org/component" in str(policy["spec"]["podSelector"])
        assert policy["spec"]["policyTypes"] == ["Ingress"]


@pytest.mark.parametrize("install", INSTALLS)
def test_rules_about_changes_are_in_the_definition_which_the_controller_may_not_touch(install: str) -> None:
    rules = named(install, "ClusterRole", "katib-controller")["rules"]

    assert not [rule for rule in rules if "customresourcedefinitions" in rule["resources"]]
    assert "x-kubernetes-validations" in str(build(install))


def test_the_controller_can_only_patch_what_users_wrote() -> None:
    rules = named("standalone", "ClusterRole", "katib-controller")["rules"]
    writing = {"experiments", "suggestions", "trials"}
    verbs = {verb for rule in rules if writing & set(rule["resources"]) for verb in rule["verbs"]}

    assert "update" not in verbs
    assert "patch" in verbs


def server_of(install: str) -> Json:
    """Return the container of the REST service."""
    container: Json = named(install, "Deployment", "katib-server")["spec"]["template"]["spec"]["containers"][0]
    return container


def test_the_rest_service_listens_inside_its_pod_in_every_install() -> None:
    """Behind a gateway, too: nobody but the proxy of the pod reaches it, and nothing does where there is no proxy."""
    for install in INSTALLS:
        container = server_of(install)
        assert not [argument for argument in container["args"] if argument.startswith("--host")]
        assert not [probe for name, probe in container.items() if name.endswith("Probe") and "exec" not in probe]


def test_behind_kubeflow_the_server_answers_users_and_its_proxy_lets_in_the_gateway_alone() -> None:
    install, labels = "with-kubeflow", {"katib.kubeflow.org/component": "server"}
    pod = named(install, "Deployment", "katib-server")["spec"]["template"]
    (sidecar,) = of_kind(install, "Sidecar")
    (policy,) = of_kind(install, "AuthorizationPolicy")
    (ingress,) = sidecar["spec"]["ingress"]
    (port,) = server_of(install)["ports"]

    assert "--gateway" in server_of(install)["args"]
    assert pod["metadata"]["labels"] == {**labels, "sidecar.istio.io/inject": "true"}
    assert sidecar["spec"]["workloadSelector"]["labels"] == policy["spec"]["selector"]["matchLabels"] == labels
    assert ingress["port"]["number"] == port["containerPort"]
    assert ingress["defaultEndpoint"] == f"127.0.0.1:{port['containerPort']}"
    assert policy["spec"]["action"] == "ALLOW"
    (rule,) = policy["spec"]["rules"]
    assert rule == {
        "from": [{"source": {"principals": ["cluster.local/ns/istio-system/sa/istio-ingressgateway-service-account"]}}]
    }


@pytest.mark.parametrize("install", INSTALLS)
def test_the_page_has_the_service_of_katibs_page(install: str) -> None:
    (port,) = named(install, "Service", "katib-ui")["spec"]["ports"]

    assert (port["name"], port["port"], port["targetPort"]) == ("http", 80, "http")


def test_kubeflows_gateway_leads_to_the_page_under_its_own_path() -> None:
    """Dashboards link to /katib/, and the server answers there."""
    (gate,) = of_kind("with-kubeflow", "VirtualService")
    (route,) = gate["spec"]["http"]

    assert route["match"] == [{"uri": {"prefix": f"{UI_PREFIX}/"}}]
    assert "rewrite" not in route
    assert route["route"] == [{"destination": {"host": "katib-ui.kubeflow.svc.cluster.local", "port": {"number": 80}}}]


def test_behind_kubeflow_the_network_lets_only_the_gateway_reach_the_server() -> None:
    (ingress,) = named("with-kubeflow", "NetworkPolicy", "katib-server")["spec"]["ingress"]

    (source,) = ingress["from"]
    assert source["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "istio-system"}
    assert source["podSelector"]["matchLabels"] == {"istio": "ingressgateway"}


def test_what_users_may_do_is_asked_only_where_there_are_users_and_no_account_may_act_for_them() -> None:
    asking = set()
    for install in INSTALLS:
        for role in (*of_kind(install, "ClusterRole"), *of_kind(install, "Role")):
            for rule in role.get("rules") or ():
                assert "impersonate" not in rule["verbs"]
                if "subjectaccessreviews" in rule["resources"]:
                    asking.add(install)
                    assert rule["verbs"] == ["create"]

    assert asking == {"with-kubeflow"}


def test_a_token_may_open_the_server_to_other_pods(tmp_path: Path) -> None:
    """A component that no install has: users add it to their own."""
    standalone = (ROOT / "manifests" / "installs" / "standalone" / "kustomization.yaml").read_text()
    text = standalone.replace("../../components", os.path.relpath(COMPONENTS, tmp_path))
    (tmp_path / "kustomization.yaml").write_text(
        f"{text.rstrip()}\n  - {os.path.relpath(COMPONENTS, tmp_path)}/server-token\n"
    )
    done = subprocess.run(["kubectl", "kustomize", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    built = list(yaml.safe_load_all(done.stdout))

    (deployment,) = [o for o in built if (o["kind"], o["metadata"]["name"]) == ("Deployment", "katib-server")]
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert "--host=0.0.0.0" in container["args"]
    assert "--gateway" not in container["args"]
    tokens = [env["valueFrom"]["secretKeyRef"]["name"] for env in container["env"] if env["name"] == "KATIB_TOKEN"]
    assert tokens == ["katib-server-token"]
    assert [o for o in built if (o["kind"], o["metadata"]["name"]) == ("Service", "katib-server")]


@pytest.mark.parametrize("install", INSTALLS)
def test_the_observation_log_asks_for_tokens_whose_key_is_made_by_itself(install: str) -> None:
    spec = named(install, "Deployment", "katib-db-manager")["spec"]["template"]["spec"]
    (container,), (fetches,) = spec["containers"], spec["initContainers"]
    variables = {variable["name"]: variable.get("value") for variable in container["env"]}
    target = next(argument.removeprefix("--to=") for argument in fetches["command"] if argument.startswith("--to="))

    assert variables["KATIB_DB_MANAGER_KEY_FILE"] == target
    assert "data" not in named(install, "Secret", "katib-db-manager-key")


@pytest.mark.parametrize("install", INSTALLS)
def test_of_the_db_manager_only_what_fetches_the_key_can_ask_the_api_server(install: str) -> None:
    spec = named(install, "Deployment", "katib-db-manager")["spec"]["template"]["spec"]
    tokens = {volume["name"] for volume in spec["volumes"] if "serviceAccountToken" in str(volume)}

    assert spec["automountServiceAccountToken"] is False
    assert all(mount["name"] not in tokens for mount in spec["containers"][0]["volumeMounts"])
    assert any(mount["name"] in tokens for mount in spec["initContainers"][0]["volumeMounts"])


def test_with_cert_manager_the_observation_log_has_a_certificate() -> None:
    (container,) = named("cert-manager", "Deployment", "katib-db-manager")["spec"]["template"]["spec"]["containers"]
    variables = {variable["name"]: variable.get("value") for variable in container["env"]}

    assert variables["KATIB_DB_MANAGER_TLS_DIR"] in {mount["mountPath"] for mount in container["volumeMounts"]}
    assert "katib-db-manager" in named("cert-manager", "Certificate", "katib-db-manager-cert")["spec"]["dnsNames"]
