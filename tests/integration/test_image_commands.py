"""The commands of images, from a real registry with and without a password."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from katib.engine.controllers.kinds import EXPERIMENT, TRIAL
from katib.engine.runtime.objects import Kind
from katib.errors import ForbiddenError, InvalidError, UnavailableError
from katib.model.defaults import with_defaults
from katib.places.cluster.admission.reviews import AdmissionReview
from katib.places.cluster.images import ImageCommands
from katib.places.cluster.images.commands import credentials_in
from katib.places.cluster.images.registry import ImageReference, ImageRegistry, RegistryCredentials
from katib.places.cluster.template_warnings import containers_without_command
from katib.places.cluster.webhooks.experiments import INJECTION_LABEL, ExperimentAdmission
from katib.places.cluster.webhooks.pods import PodAdmission
from tests.support.experiments import an_experiment, load_experiment
from tests.support.faulty_store import Call, FaultyStore
from tests.support.gate import CATALOG
from tests.support.memory_store import MemoryStore
from tests.support.pods import TRIAL as TRIAL_NAME
from tests.support.pods import injected_trial, injection_settings, pod
from tests.support.ports import free_port
from tests.support.refusals import refused
from tests.support.registry import RunningRegistry, asking_for_tokens, pull_secret, running_registry


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[RunningRegistry]:
    with running_registry(tmp_path) as registry:
        yield registry


@pytest.fixture
def private(tmp_path: Path) -> Iterator[RunningRegistry]:
    with running_registry(tmp_path, password=True) as registry:
        registry.push("team/train", "1", amd64=["/train"])
        yield registry


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore({EXPERIMENT, TRIAL})


def command(images: ImageCommands, image: str, pod: Mapping[str, Any] | None = None, **container: Any) -> Any:
    return images.complete(pod or {}, {"name": "main", "image": image, **container}, "team")["command"]


def test_a_container_runs_the_entrypoint_of_its_image_and_without_args_its_cmd(
    registry: RunningRegistry, store: MemoryStore
) -> None:
    digest = registry.push("train", "1", amd64=["/train", "--lr", "$(lr)"])
    images = ImageCommands(store)

    assert command(images, f"{registry.host}/train:1") == ["/train", "--lr", "$$(lr)"]
    assert command(images, f"{registry.host}/train:1", args=["x"]) == ["/train"]
    assert command(images, f"{registry.host}/train@{digest}") == ["/train", "--lr", "$$(lr)"]
    assert command(images, f"{registry.host}/train:other@{digest}", args=["x"]) == ["/train"]


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        ({"nodeSelector": {"kubernetes.io/arch": "arm64"}}, "/of-arm"),
        ({"nodeSelector": {"kubernetes.io/arch": "riscv64"}}, "/of-amd"),
        (
            {
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {
                                    "matchExpressions": [
                                        {"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}
                                    ]
                                }
                            ]
                        }
                    }
                }
            },
            "/of-arm",
        ),
    ],
    ids=["selected", "missing", "affinity"],
)
def test_the_platform_is_that_of_the_pod_s_nodes(
    registry: RunningRegistry, store: MemoryStore, pod: Mapping[str, Any], expected: str
) -> None:
    registry.push("train", "1", amd64=["/of-amd"], arm64=["/of-arm"])

    assert command(ImageCommands(store), f"{registry.host}/train:1", pod) == [expected]


def test_a_tag_that_moves_is_noticed_and_a_digest_is_asked_for_once(
    registry: RunningRegistry, store: MemoryStore
) -> None:
    images, image = ImageCommands(store), f"{registry.host}/train:1"
    registry.push("train", "1", amd64=["/old"])
    assert command(images, image) == ["/old"]
    digest = registry.push("train", "1", amd64=["/new"])
    assert command(images, image) == ["/new"]

    registry.stop()

    assert command(images, f"{registry.host}/train@{digest}") == ["/new"]
    with pytest.raises(UnavailableError):
        command(images, image)


@pytest.mark.parametrize("where", ["pod", "service account", "default account"])
def test_a_private_image_is_read_with_the_pull_secret(private: RunningRegistry, store: MemoryStore, where: str) -> None:
    store.create(pull_secret("wrong", private.host, password="wrong"))
    store.create(pull_secret("right", private.host))
    secrets = [{"name": "gone"}, {"name": "wrong"}, {"name": "right"}]
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "imagePullSecrets": secrets}
    for name in ("default", "mine") if where != "pod" else ():
        store.create({**account, "metadata": {"name": name, "namespace": "team"}})
    pod = {"pod": {"imagePullSecrets": secrets}, "service account": {"serviceAccountName": "mine"}}.get(where, {})

    assert command(ImageCommands(store), f"{private.host}/team/train:1", pod) == ["/train"]


@pytest.mark.parametrize("of_anybody", [True, False], ids=["public", "private"])
def test_a_registry_that_asks_for_tokens_is_brought_one(
    registry: RunningRegistry, store: MemoryStore, *, of_anybody: bool
) -> None:
    registry.push("train", "1", amd64=["/train"])
    with asking_for_tokens(registry, of_anybody=of_anybody) as host:
        store.create(pull_secret("mine", host))
        image, secrets = f"{host}/train:1", [{"name": "mine"}]

        assert command(ImageCommands(store), image, {"imagePullSecrets": secrets}) == ["/train"]
        if not of_anybody:
            with pytest.raises(UnavailableError):
                command(ImageCommands(store), image)


def test_no_token_is_asked_for_in_the_clear() -> None:
    with ImageRegistry(ImageReference.of("registry.example.com/a"), RegistryCredentials("u", "p"), 4.0) as registry:
        for realm in ("http://169.254.169.254/token", "file:///etc/passwd", ""):
            with pytest.raises(UnavailableError, match="which is not HTTPS"):
                registry._authorize(f'Bearer realm="{realm}",service="s"')


def test_an_image_that_may_not_be_read_is_told_of_with_the_right_that_is_missing(
    private: RunningRegistry, store: MemoryStore
) -> None:
    store.create(pull_secret("mine", private.host))

    def fault(call: Call) -> BaseException | None:
        return ForbiddenError("no") if call.kind == Kind("v1", "Secret") and call.before else None

    image, pod = f"{private.host}/team/train:1", {"imagePullSecrets": [{"name": "mine"}]}
    with pytest.raises(UnavailableError) as caught:
        command(ImageCommands(FaultyStore(store, fault)), image, pod)

    assert str(caught.value) == (
        f"the entrypoint of {image} is not known: {private.host} gives no access to team/train (401); "
        "the controller may not read Secret team/mine: bind ClusterRole katib-pull-secrets in its namespace"
    )


def test_what_is_not_there_is_named(registry: RunningRegistry, store: MemoryStore) -> None:
    registry.push("empty", "1", amd64=[])
    images, silent = ImageCommands(store), f"localhost:{free_port()}"

    with pytest.raises(UnavailableError, match="has no image none:latest"):
        command(images, f"{registry.host}/none")
    with pytest.raises(UnavailableError, match="empty:1 has no entrypoint"):
        command(images, f"{registry.host}/empty:1")
    with pytest.raises(UnavailableError, match=f"{silent} cannot be reached"):
        command(images, f"{silent}/train:1")
    with refused("image-reference"):
        command(images, "Some Thing")


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("python", ("docker.io", "library/python", "latest", "")),
        ("kubeflow/katib:v1", ("docker.io", "kubeflow/katib", "v1", "")),
        ("ghcr.io/a/b/c:x", ("ghcr.io", "a/b/c", "x", "")),
        ("localhost/a", ("localhost", "a", "latest", "")),
        ("host:5000/a@sha256:" + "0" * 64, ("host:5000", "a", "latest", "sha256:" + "0" * 64)),
    ],
)
def test_references_are_read_as_container_runtimes_read_them(image: str, expected: tuple[str, ...]) -> None:
    assert ImageReference.of(image) == expected


@pytest.mark.parametrize(
    ("entry", "image", "fits"),
    [
        ("https://index.docker.io/v1/", "python", True),
        ("ghcr.io", "ghcr.io/a/b", True),
        ("ghcr.io/a", "ghcr.io/a/b", True),
        ("ghcr.io/other", "ghcr.io/a/b", False),
        ("*.example.com", "eu.example.com/a", True),
        ("https://quay.io", "ghcr.io/a/b", False),
    ],
)
def test_an_entry_of_a_pull_secret_is_for_its_registry(entry: str, image: str, *, fits: bool) -> None:
    secret = pull_secret("s", entry, "u", "p:q")

    assert credentials_in(secret, ImageReference.of(image)) == ([RegistryCredentials("u", "p:q")] if fits else [])


@pytest.mark.parametrize(
    "data", [{}, {".dockerconfigjson": "?"}, {".dockercfg": "W10="}, {".dockerconfigjson": "bnVsbA=="}]
)
def test_a_malformed_pull_secret_has_nothing(data: dict[str, str]) -> None:
    assert credentials_in({"data": data}, ImageReference.of("a/b")) == []


# --- webhooks ---------------------------------------------------------------------------------------------------------


def admitted(images: ImageCommands, store: MemoryStore, image: str) -> Mapping[str, Any]:
    """Return the program's container of a trial's pod behind the webhook."""
    trial = store.create(injected_trial().encode())
    owner = {"apiVersion": trial["apiVersion"], "kind": "Trial", "name": TRIAL_NAME, "uid": trial["metadata"]["uid"]}
    bare = pod()
    bare["spec"]["containers"][0] |= {"image": image, "args": ["--lr", "1"]}
    bare["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    admission = PodAdmission(store, lambda _trial: injection_settings(), images=images)
    verdict = admission.mutate(AdmissionReview("u", "CREATE", "team", resource="pods", object=bare))
    assert verdict.patched is not None
    return dict(verdict.patched["spec"]["containers"][0])


def test_a_pod_of_a_trial_runs_the_entrypoint_below_ours(registry: RunningRegistry, store: MemoryStore) -> None:
    registry.push("train", "1", amd64=["/train", "unused"])

    assert admitted(ImageCommands(store), store, f"{registry.host}/train:1")["args"] == ["/train", "--lr", "1"]


def test_a_pod_waits_while_its_registry_is_away(store: MemoryStore) -> None:
    host = f"127.0.0.1:{free_port()}"

    with pytest.raises(UnavailableError) as caught:
        admitted(ImageCommands(store), store, f"{host}/train:1")

    assert str(caught.value).startswith(
        f"spec.containers[0].command: it is missing; the entrypoint of {host}/train:1 is not known: {host} cannot be"
    )
    assert str(caught.value).endswith("; write the image's entrypoint as command")


def submitted(store: MemoryStore, image: str, **job: Any) -> Sequence[str]:
    """Submit an experiment of a Job without command; return warnings."""
    namespace = {"name": "team", "labels": {INJECTION_LABEL: "enabled"}}
    store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": namespace})
    raw = an_experiment()
    (container,) = raw["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]["containers"]
    container |= {"image": image, "args": container.pop("command")}
    raw["spec"]["trialTemplate"]["trialSpec"] |= job
    raw["spec"]["trialTemplate"] |= {"successCondition": "status.ok", "failureCondition": "status.bad"}
    admission = ExperimentAdmission(
        store, catalog=lambda: CATALOG, collectors=lambda: ["StdOut"], images=ImageCommands(store)
    )
    return admission.validate(AdmissionReview("u", "CREATE", "team", object=raw)).warnings


def test_a_job_without_command_is_submitted_if_its_image_says_it(registry: RunningRegistry, store: MemoryStore) -> None:
    registry.push("train", "1", amd64=["/train"])

    assert submitted(store, f"{registry.host}/train:1") == ()


def test_a_registry_that_is_away_is_named_in_one_line_at_submission(store: MemoryStore) -> None:
    host = f"127.0.0.1:{free_port()}"

    with pytest.raises(InvalidError) as caught:
        submitted(store, f"{host}/train:1")

    (error,) = caught.value.errors
    assert error.path == "spec.trialTemplate.trialSpec.spec.template.spec.containers[0].command"
    assert error.origin == "command-missing"
    assert f"{host} cannot be reached" in error.cause
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("collector", "is_asked"),
    [("File", True), ("PrometheusMetric", True), ("Push", False), ("Custom", False), ("None", False)],
)
def test_only_collectors_that_launch_the_program_need_its_command(collector: str, *, is_asked: bool) -> None:
    bare = {"kind": "Job", "spec": {"containers": [{"name": "main", "image": "x"}]}}
    raw = an_experiment(metricsCollectorSpec={"collector": {"kind": collector}})
    raw["spec"]["trialTemplate"]["primaryContainerName"] = "main"
    spec = with_defaults(load_experiment(json.dumps(raw), "x", "team").experiment).spec

    found, total = containers_without_command(bare, "p", spec)

    assert ([where for where, *_ in found], total) == (["p.spec.containers[0]"] if is_asked else [], 1)


def test_a_training_job_is_refused_if_no_role_has_a_known_command(store: MemoryStore) -> None:
    silent = {"containers": [{"name": "training", "image": f"127.0.0.1:{free_port()}/train:1"}]}
    known = {"containers": [{"name": "training", "image": "x", "command": ["${trialParameters.learningRate}"]}]}
    roles = {"Master": {"template": {"spec": known}}, "Worker": {"template": {"spec": silent}}}
    torch = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": roles}}

    (warning,) = [line for line in submitted(store, "", **torch) if "command" in line]

    assert "pytorchReplicaSpecs.Worker.template.spec.containers[0].command: it is missing" in warning


def test_a_kind_whose_operator_may_give_a_command_is_warned_of(store: MemoryStore) -> None:
    (warning,) = submitted(store, f"127.0.0.1:{free_port()}/train:1", kind="Gizmo", apiVersion="example.com/v1")

    assert ".command: " in warning


def test_an_image_that_a_placeholder_names_is_left_to_its_trials(store: MemoryStore) -> None:
    assert submitted(store, "127.0.0.1:1/train:${trialParameters.learningRate}") == ()
