"""What is created for a suggestion: Katib's names, labels, ports and owners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import yaml

from katib.model.configuration import read_configuration
from katib.model.types import Suggestion
from katib.places.cluster.configuration.models import KatibConfig
from katib.places.cluster.services.manifests import manifests
from katib.places.cluster.services.plan import ClusterCatalog, early_stopping_address, plan_for
from katib.places.cluster.services.trouble import trouble_of
from tests.support.cluster_services import CONFIG, EARLY
from tests.support.golden import Golden

UID = "1234"


def a_suggestion(algorithm: str = "tpe", settings: Sequence[dict[str, str]] = (), **spec: Any) -> Suggestion:
    metadata = {
        "name": "demo",
        "namespace": "team",
        "uid": UID,
        "labels": {"team": "blue", "kueue.x-k8s.io/queue-name": "lq"},
        "annotations": {
            "note": "mine",
            "kueue.x-k8s.io/podset": "x",
            "kubectl.kubernetes.io/last-applied-configuration": "{}",
        },
    }
    asked = {"algorithmName": algorithm, "algorithmSettings": list(settings)}
    return Suggestion.decode({"metadata": metadata, "spec": {"algorithm": asked, **spec}})


def made(suggestion: Suggestion, config: str = CONFIG, *, grpc_probes: bool = True) -> dict[str, dict[str, Any]]:
    """Return the objects by kind."""
    plan = plan_for(suggestion, read_configuration(KatibConfig, config, "f"))
    return {obj["kind"]: obj for obj in manifests(suggestion, plan, grpc_probes=grpc_probes)}


def pod_of(objects: dict[str, dict[str, Any]]) -> dict[str, Any]:
    pod: dict[str, Any] = objects["Deployment"]["spec"]["template"]["spec"]
    return pod


def a_pod(last_state: dict[str, Any]) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "a", "lastState": last_state}]}


def entry(**fields: Any) -> str:
    return yaml.safe_dump({"runtime": {"suggestions": [{"algorithmName": "tpe", "image": "i", **fields}]}})


def test_names_labels_and_owners_are_those_of_katib() -> None:
    objects = made(a_suggestion())
    labels = {
        "team": "blue",
        "katib.kubeflow.org/deployment": "demo-tpe",
        "katib.kubeflow.org/experiment": "demo",
        "katib.kubeflow.org/suggestion": "demo",
        "sidecar.istio.io/inject": "false",
    }
    deployment, service = objects["Deployment"], objects["Service"]

    assert deployment["spec"]["selector"] == {"matchLabels": labels}
    assert deployment["spec"]["template"]["metadata"] == {"labels": labels, "annotations": {"note": "mine"}}
    assert deployment["metadata"]["labels"] == {"team": "blue", "katib.kubeflow.org/suggestion": "demo"}
    assert deployment["metadata"]["annotations"] == {"note": "mine"}
    assert service["spec"]["selector"] == labels
    assert service["spec"]["ports"] == [{"name": "suggestion-api", "port": 6789, "targetPort": 6789, "protocol": "TCP"}]
    for obj in objects.values():
        assert (obj["metadata"]["name"], obj["metadata"]["namespace"]) == ("demo-tpe", "team")
        assert obj["metadata"]["ownerReferences"] == [
            {
                "apiVersion": "kubeflow.org/v1beta1",
                "kind": "Suggestion",
                "name": "demo",
                "uid": UID,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]


def test_the_container_of_the_configuration_gets_its_port() -> None:
    ports = [{"name": "metrics", "containerPort": 9090}]
    (container,) = pod_of(made(a_suggestion(), entry(args=["--x"], ports=ports, name="mine")))["containers"]

    assert (container["name"], container["args"]) == ("mine", ["--x"])
    assert container["ports"] == [*ports, {"name": "suggestion-api", "containerPort": 6789}]
    assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_probes_are_grpc_unless_the_configuration_forbids_them() -> None:
    """A failed probe is a warning in the events, so no other begins before the start is over."""
    own = {"readinessProbe": {"exec": {}}, "startupProbe": {"exec": {"command": ["x"]}}}
    plain, given, without = (
        pod_of(made(a_suggestion(), entry(**fields), grpc_probes=grpc))["containers"][0]
        for fields, grpc in (({}, True), (own, True), ({}, False))
    )
    probe = plain["startupProbe"]

    assert plain["readinessProbe"]["grpc"] == probe["grpc"] == {"port": 6789, "service": "manager.v1beta1.Suggestion"}
    assert probe["initialDelaySeconds"] > 0
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 300
    assert {name: given[name] for name in own} == own
    assert not [field for field in without if field.endswith("Probe")]


def test_the_early_stopping_container_gets_its_port_and_an_account() -> None:
    objects = made(a_suggestion(earlyStopping=EARLY))
    _, container = pod_of(objects)["containers"]

    assert container["name"] == "early-stopping"
    assert container["ports"] == [{"name": "earlystop-api", "containerPort": 6788}]
    assert pod_of(objects)["serviceAccountName"] == "demo-tpe"
    assert objects["RoleBinding"]["subjects"] == [{"kind": "ServiceAccount", "name": "demo-tpe", "namespace": "team"}]
    assert [rule["resources"] for rule in objects["Role"]["rules"]] == [["trials"], ["trials/status"]]
    assert pod_of(made(a_suggestion()))["automountServiceAccountToken"] is False


def test_from_volume_mounts_a_claim() -> None:
    objects = made(a_suggestion(resumePolicy="FromVolume"))
    pod = pod_of(objects)

    assert pod["volumes"] == [{"name": "suggestion-volume", "persistentVolumeClaim": {"claimName": "demo-tpe"}}]
    assert pod["containers"][0]["volumeMounts"] == [{"name": "suggestion-volume", "mountPath": "/opt/katib/data"}]
    assert objects["PersistentVolumeClaim"]["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    assert "PersistentVolume" not in objects


def test_a_mount_of_the_configuration_is_kept() -> None:
    mounts = [{"name": "suggestion-volume", "mountPath": "/mine"}]
    pod = pod_of(made(a_suggestion(resumePolicy="FromVolume"), entry(volumeMounts=mounts)))

    assert pod["containers"][0]["volumeMounts"] == mounts


def test_a_configured_volume_is_made_for_the_claim() -> None:
    objects = made(a_suggestion("pbt", resumePolicy="FromVolume"))
    volume = objects["PersistentVolume"]

    assert volume["metadata"] == {"name": "demo-pbt-team", "labels": {"kind": "local"}}
    assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
    assert objects["PersistentVolumeClaim"]["spec"]["volumeName"] == "demo-pbt-team"


def settings_of(place: str) -> list[dict[str, str]]:
    return [{"name": "suggestion_trial_dir", "value": place}]


@pytest.mark.parametrize("policy", ["Never", "LongRunning", "FromVolume"])
def test_checkpoints_have_a_volume_whatever_the_resume_policy(policy: str) -> None:
    objects = made(a_suggestion("pbt", settings_of("/checkpoints"), resumePolicy=policy))

    (container,) = pod_of(objects)["containers"]
    assert "PersistentVolumeClaim" in objects
    assert container["volumeMounts"] == [{"name": "suggestion-volume", "mountPath": "/opt/katib/data"}]
    assert container["env"] == [
        {"name": "KATIB_CHECKPOINT_ROOT", "value": "/opt/katib/data"},
        {"name": "KATIB_CHECKPOINT_NAMESPACE", "value": "team"},
    ]
    in_a_store = made(a_suggestion("pbt", settings_of("s3://bucket/pbt")))
    assert "PersistentVolumeClaim" not in in_a_store
    assert "env" not in pod_of(in_a_store)["containers"][0]


def test_a_pod_has_the_security_context_of_the_configuration_and_else_none() -> None:
    group = {"fsGroup": 1000, "fsGroupChangePolicy": "OnRootMismatch"}
    plain, grouped = (pod_of(made(a_suggestion(), entry(**f))) for f in ({}, {"podSecurityContext": group}))

    assert "securityContext" not in plain
    assert grouped["securityContext"] == group
    assert "podSecurityContext" not in grouped["containers"][0]


def test_a_suggestion_elsewhere_with_early_stopping_here_is_one_container() -> None:
    objects = made(a_suggestion("far", earlyStopping=EARLY, resumePolicy="FromVolume"))

    assert [container["name"] for container in pod_of(objects)["containers"]] == ["early-stopping"]
    assert [port["port"] for port in objects["Service"]["spec"]["ports"]] == [6788]
    assert "PersistentVolumeClaim" not in objects


@pytest.mark.parametrize(
    ("early", "expected"),
    [
        (None, ""),
        ("medianstop", "demo-tpe.team:6788"),
        ("farstop", "stop.example:6788"),
        ("unknown", "demo-tpe.team:6788"),
    ],
)
def test_sidecars_report_to_the_service_of_the_suggestion(early: str | None, expected: str) -> None:
    suggestion = a_suggestion(**({"earlyStopping": {"algorithmName": early}} if early else {}))

    assert early_stopping_address(suggestion, read_configuration(KatibConfig, CONFIG, "f")) == expected


def test_the_catalog_holds_what_the_configuration_serves() -> None:
    catalog = ClusterCatalog(lambda: read_configuration(KatibConfig, CONFIG, "f"))
    tpe, far, median = catalog.find("tpe"), catalog.find("far"), catalog.find("medianstop", early_stopping=True)

    assert [info.name for info in catalog.all()] == ["tpe", "random", "far", "pbt", "medianstop", "farstop"]
    assert tpe is not None
    assert tpe.settings
    assert median is not None
    assert median.early_stopping
    assert far is not None
    assert (far.settings, far.reads_history) == (None, True)
    assert catalog.find("grid") is None
    assert catalog.find("tpe", early_stopping=True) is None


@pytest.mark.parametrize(
    ("deployment", "pods", "expected"),
    [
        pytest.param([], [], "", id="nothing-yet"),
        pytest.param(
            [("Progressing", "False", "DeadlineExceeded", "late")], [], "DeadlineExceeded: late", id="deadline"
        ),
        pytest.param(
            [("Available", "False", "", ""), ("ReplicaFailure", "True", "FailedCreate", "exceeded quota")],
            [{"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}],
            "FailedCreate: exceeded quota",
            id="quota",
        ),
        pytest.param([], [{"containerStatuses": [{"name": "a", "ready": True}]}], "", id="ready"),
        pytest.param(
            [],
            [a_pod({"terminated": {"exitCode": 137, "reason": "OOMKilled"}})],
            "pod p0: container a: ended (OOMKilled, exit code 137)",
            id="out-of-memory",
        ),
        pytest.param(
            [("ReplicaFailure", "True", "FailedCreate", "quota")],
            [{"phase": "Failed", "reason": "Evicted", "message": "disk pressure"}],
            "pod p0: Evicted: disk pressure",
            id="evicted",
        ),
    ],
)
def test_trouble_is_reported_in_the_words_of_the_cluster(
    deployment: list[tuple[str, str, str, str]], pods: list[dict[str, Any]], expected: str
) -> None:
    names = ("type", "status", "reason", "message")
    conditions = [dict(zip(names, condition, strict=True)) for condition in deployment]
    found = [{"metadata": {"name": f"p{i}"}, "status": status} for i, status in enumerate(pods)]

    trouble = trouble_of({"status": {"conditions": conditions}}, found)
    assert trouble.words == expected
    assert trouble.may_pass is (expected != "" and not expected.startswith("Deadline"))


def test_a_gated_pod_names_its_queue(golden: Golden) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "non-empty gates"}
    pod = {
        "metadata": {"name": "p0", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]},
        "status": {"conditions": [condition]},
    }

    golden(trouble_of({}, [pod]).words)


def test_only_the_early_stopping_service_brings_something_to_the_db_manager() -> None:
    plan = plan_for(a_suggestion(earlyStopping=EARLY), read_configuration(KatibConfig, CONFIG, "f"))
    objects = manifests(
        a_suggestion(earlyStopping=EARLY), plan, grpc_probes=True, reader_variables={"KATIB_DB_MANAGER_TOKEN": "t"}
    )
    suggestion, stopping = pod_of({obj["kind"]: obj for obj in objects})["containers"]

    assert stopping["env"] == [{"name": "KATIB_DB_MANAGER_TOKEN", "value": "t"}]
    assert "KATIB_DB_MANAGER_TOKEN" not in str(suggestion)
