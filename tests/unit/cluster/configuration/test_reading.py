"""A KatibConfig is read as Katib's users write it, and all that is wrong with it is said at once."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from katib.errors import FieldError, InvalidError
from katib.model.configuration import read_configuration
from katib.places.cluster.configuration.models import KatibConfig
from tests.support.golden import Golden

KATIBS = """
apiVersion: config.kubeflow.org/v1beta1
kind: KatibConfig
init:
  certGenerator:
    enable: true
  controller:
    webhookPort: 8443
    trialResources:
      - TrainJob.v1alpha1.trainer.kubeflow.org
      - Job.v1.batch
      - PyTorchJob.v1.kubeflow.org
runtime:
  metricsCollectors:
    - kind: StdOut
      image: katib/metrics-collector:0.3.0
    - kind: TensorFlowEvent
      image: tfevent
      resources: {limits: {memory: 1Gi}}
  suggestions:
    - algorithmName: random
      image: katib/suggestion:0.3.0
      args: ["--algorithm", "random", "--address", "0.0.0.0:6789"]
      securityContext: {runAsNonRoot: true}
    - algorithmName: pbt
      image: pbt
      persistentVolumeClaimSpec:
        accessModes: [ReadWriteMany]
        resources: {requests: {storage: 5Gi}}
  earlyStoppings:
    - algorithmName: medianstop
      image: katib/early-stopping:0.3.0
      imagePullPolicy: Sometimes
"""


def runtime(**parts: Any) -> KatibConfig:
    return read_configuration(KatibConfig, yaml.safe_dump({"runtime": parts}), "katib-config.yaml")


def errors_of(text: str) -> tuple[FieldError, ...]:
    with pytest.raises(InvalidError) as caught:
        read_configuration(KatibConfig, text, "katib-config.yaml")
    return caught.value.errors


def test_a_file_of_katib_is_read() -> None:
    config = read_configuration(KatibConfig, KATIBS, "katib-config.yaml")

    assert config.init.cert_generator.webhook_secret_name == "katib-webhook-cert"
    collector, stopping = config.collector("TensorFlowEvent"), config.early_stopping("medianstop")
    assert collector is not None
    assert collector.resources.complete()["limits"]["memory"] == "1Gi"
    assert stopping is not None
    assert stopping.container()["imagePullPolicy"] == "IfNotPresent"  # as an invalid one


def test_an_empty_file_is_the_default() -> None:
    config = read_configuration(KatibConfig, "", "katib-config.yaml")

    controller = config.init.controller
    assert config == KatibConfig()
    assert (controller.experiment_suggestion_name, controller.metrics_addr, controller.healthz_addr) == (
        "default",
        ":8080",
        ":18080",
    )
    assert (controller.enable_grpc_probe_in_suggestion, controller.webhook_port) == (True, 8443)
    assert (controller.enable_leader_election, controller.leader_election_id) == (False, "3fbc96e9.katib.kubeflow.org")
    assert config.init.cert_generator.enable is None
    assert config.init.cert_generator.webhook_service_name == ""


def test_a_name_alone_enables_the_certificate_generator() -> None:
    config = read_configuration(KatibConfig, "init: {certGenerator: {enable: false, webhookSecretName: mine}}", "f")

    generator = config.init.cert_generator
    assert (generator.enable, generator.webhook_service_name, generator.webhook_secret_name) == (
        True,
        "katib-controller",
        "mine",
    )


def test_a_suggestion_entry_is_a_container() -> None:
    entry = read_configuration(KatibConfig, KATIBS, "katib-config.yaml").suggestion("random")

    assert entry is not None
    assert entry.container() == {
        "name": "suggestion",
        "image": "katib/suggestion:0.3.0",
        "imagePullPolicy": "IfNotPresent",
        "args": ["--algorithm", "random", "--address", "0.0.0.0:6789"],
        "securityContext": {"runAsNonRoot": True},
        "resources": {
            "requests": {"cpu": "50m", "memory": "10Mi", "ephemeral-storage": "500Mi"},
            "limits": {"cpu": "500m", "memory": "100Mi", "ephemeral-storage": "5Gi"},
        },
    }


def test_the_last_entry_of_a_name_wins() -> None:
    two = [{"algorithmName": "tpe", "image": "old"}, {"algorithmName": "tpe", "image": "new"}]
    config = runtime(suggestions=two, metricsCollectors=[{"kind": "File", "image": i} for i in ("old", "new")])

    suggestion, collector = config.suggestion("tpe"), config.collector("File")
    assert suggestion is not None
    assert collector is not None
    assert (suggestion.image, collector.image) == ("new", "new")
    assert config.suggestion("grid") is None
    assert config.early_stopping("tpe") is None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ("50m", "500m")),
        ({"limits": {"cpu": 2}}, ("50m", "2")),
        ({"limits": {"cpu": "-1"}}, ("50m", None)),
        ({"requests": {"cpu": -1}, "limits": {"cpu": -1}}, (None, None)),
        ({"limits": {"cpu": "20m"}}, ("20m", "20m")),
        ({"requests": {"cpu": "1"}}, ("1", "1")),
    ],
    ids=["defaults", "a-number", "no-limit", "nothing", "limit-below-the-default", "request-above-the-default"],
)
def test_resources_are_completed_without_contradiction(
    given: dict[str, Any], expected: tuple[str | None, str | None]
) -> None:
    entry = runtime(suggestions=[{"algorithmName": "a", "image": "i", "resources": given}]).suggestion("a")

    assert entry is not None
    resources = entry.resources.complete()
    assert (resources["requests"].get("cpu"), resources["limits"].get("cpu")) == expected


def test_the_claim_of_a_volume_has_katibs_defaults() -> None:
    config = read_configuration(KatibConfig, KATIBS, "katib-config.yaml")
    plain, own = config.suggestion("random"), config.suggestion("pbt")

    assert plain is not None
    assert own is not None
    assert plain.claim_spec() == {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    assert own.claim_spec() == {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "5Gi"}}}
    assert plain.volume_mount_path == "/opt/katib/data"


def test_all_errors_come_at_once() -> None:
    text = """
kind: KatibConfg
init:
  controller: {webhookPort: many, trialResources: Job, enableGrpcProbe: true}
runtime:
  suggestions:
    - algorithmName: random
    - {algorithmName: Tpe, image: i}
    - {algorithmName: grid, image: i, ports: [{name: metrics, containerPort: 1}, {containerPort: 6789}]}
    - {algorithmName: both, image: i, address: a:1}
    - {algorithmName: far, address: nowhere}
    - {algorithmName: big, image: i, resources: {limits: {memory: lots}}}
  metricsCollectors:
    - {kind: StdOut, nativeSidecar: "yes"}
  colectors: []
"""

    assert {(error.path.partition(": ")[2], error.origin) for error in errors_of(text)} == {
        ("kind", "config-kind"),
        ("init.controller.webhookPort", "config-type"),
        ("init.controller.trialResources", "config-type"),
        ("init.controller.enableGrpcProbe", "config-field"),
        ("runtime.suggestions[0].image", "config-image"),
        ("runtime.suggestions[1].algorithmName", "config-name"),
        ("runtime.suggestions[2].ports[1]", "config-port"),
        ("runtime.suggestions[3].address", "config-image-or-address"),
        ("runtime.suggestions[4].address", "config-address"),
        ("runtime.suggestions[5].resources.limits.memory", "config-quantity"),
        ("runtime.metricsCollectors[0].image", "config-missing"),
        ("runtime.metricsCollectors[0].nativeSidecar", "config-type"),
        ("runtime.colectors", "config-field"),
    }


def test_an_error_names_file_field_cause_and_remedy(golden: Golden) -> None:
    (no_port,) = errors_of("init: {controller: {webhookPort: many}}")
    (misspelt,) = errors_of("init: {controler: {}}")

    golden(no_port)
    golden(misspelt)


@pytest.mark.parametrize(
    ("text", "origin"),
    [("- a", "config-type"), ("a: [", "file-syntax"), ("a: 1\n---\nb: 2", "document-count")],
    ids=["a-list", "no-yaml", "two-documents"],
)
def test_what_is_no_configuration_is_refused(text: str, origin: str) -> None:
    (error,) = errors_of(text)

    assert error.origin == origin
    assert error.path.startswith("katib-config.yaml")


def test_a_null_is_as_good_as_nothing() -> None:
    assert read_configuration(KatibConfig, "init:\nruntime: {suggestions: }", "f") == KatibConfig()
