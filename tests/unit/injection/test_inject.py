from __future__ import annotations

import copy
from typing import Any

import pytest

from katib.api.types import CollectorSpec, FileSystemPath, MetricsCollectorSpec, SourceSpec, Trial
from katib.errors import InvalidError
from katib.injection import CollectorEntry, InjectionSettings, VolumeClaim, inject, missing_primary_container
from tests.support.pods import (
    DB_MANAGER,
    RULES,
    TRIAL,
    collector_spec,
    command_of,
    injected_trial,
    injection_settings,
    pod,
)

HEAD = ["-t", TRIAL, "-m", "accuracy", "-o-type", "maximize", "-s-db", DB_MANAGER]
EARLY_STOPPING = ["-s-earlystop", "test-medianstop.team:6788"]


def collector_of(injected: dict[str, Any]) -> dict[str, Any]:
    everyone = [*injected["spec"]["containers"], *injected["spec"].get("initContainers", ())]
    return next(container for container in everyone if container["name"] != "training")


def entry(kind: str, **fields: Any) -> InjectionSettings:
    return injection_settings(collectors={kind: CollectorEntry("collector:1", **fields)})


VECTORS = [
    pytest.param(
        injected_trial(),
        entry("StdOut", wait_all_processes=False),
        ["-path", "/var/log/katib/metrics.log", "-format", "TEXT", "-w", "false"],
        id="StdOut",
    ),
    pytest.param(
        injected_trial(),
        entry("StdOut", wait_all_processes=True),
        ["-path", "/var/log/katib/metrics.log", "-format", "TEXT", "-w", "true"],
        id="StdOut-wait",
    ),
    pytest.param(
        injected_trial(collector_spec("File", path="/test/path", file_format="TEXT", filters=["f1", "f2"])),
        injection_settings(),
        ["-path", "/test/path", "-f", "f1;f2", "-format", "TEXT"],
        id="File-TEXT",
    ),
    pytest.param(
        injected_trial(collector_spec("File", path="/test/path", file_format="JSON")),
        injection_settings(),
        ["-path", "/test/path", "-format", "JSON"],
        id="File-JSON",
    ),
    pytest.param(
        injected_trial(collector_spec("TensorFlowEvent", path="/test/path", path_kind="Directory")),
        injection_settings(),
        ["-path", "/test/path"],
        id="TensorFlowEvent",
    ),
    pytest.param(injected_trial(collector_spec("PrometheusMetric")), injection_settings(), [], id="Prometheus"),
    pytest.param(
        injected_trial(early_stopping_rules=RULES),
        injection_settings(),
        [
            *("-path", "/var/log/katib/metrics.log", "-format", "TEXT"),
            *("-stop-rule", "accuracy;0.6;less;5", "-stop-rule", "loss;2;greater;0", *EARLY_STOPPING),
        ],
        id="StdOut-rules",
    ),
]


@pytest.mark.parametrize(("trial", "settings", "tail"), VECTORS)
def test_the_collector_has_the_arguments_of_katibs_collectors(
    trial: Trial, settings: InjectionSettings, tail: list[str]
) -> None:
    injected = inject(pod("python", "main.py"), trial, settings)

    assert collector_of(injected)["args"] == [*HEAD, *tail]


def test_additional_metrics_follow_the_objective() -> None:
    objective = injected_trial().spec.objective
    assert objective is not None
    trial = injected_trial(objective=objective.model_copy(update={"additional_metric_names": ("loss", "f1")}))

    arguments = collector_of(inject(pod("x"), trial, injection_settings()))["args"]

    assert arguments[3] == "accuracy;loss;f1"


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("StdOut", "metrics-logger-and-collector"),
        ("File", "metrics-logger-and-collector"),
        ("TensorFlowEvent", "metrics-collector"),
        ("PrometheusMetric", "metrics-collector"),
    ],
)
def test_the_collector_is_named_as_katibs(kind: str, name: str) -> None:
    trial = injected_trial(collector_spec(kind, path="/a/b", path_kind="Directory"))

    assert collector_of(inject(pod("x"), trial, injection_settings()))["name"] == name


def test_a_pod_is_labelled_and_its_program_told_its_trial() -> None:
    injected = inject(pod("x", labels={"job-name": "j"}), injected_trial(), injection_settings())

    assert injected["metadata"]["labels"] == {
        "job-name": "j",
        "katib.kubeflow.org/experiment": "test",
        "katib.kubeflow.org/trial": TRIAL,
    }
    field = {"fieldRef": {"fieldPath": "metadata.labels['katib.kubeflow.org/trial']"}}
    assert injected["spec"]["containers"][0]["env"] == [{"name": "KATIB_TRIAL_NAME", "valueFrom": field}]


def test_the_metrics_directory_is_shared() -> None:
    injected = inject(pod("x"), injected_trial(), injection_settings())

    mount = {"name": "metrics-volume", "mountPath": "/var/log/katib"}
    assert injected["spec"]["volumes"] == [{"name": "metrics-volume", "emptyDir": {}}]
    assert [container["volumeMounts"] for container in injected["spec"]["containers"]] == [[mount], [mount]]
    assert injected["spec"]["shareProcessNamespace"] is True


def test_a_volume_that_the_template_has_there_is_used() -> None:
    trial = injected_trial(collector_spec("File", path="/data/metrics.log", file_format="TEXT"))
    original = pod("x", volumes=[{"name": "data", "emptyDir": {}}])
    mount = {"name": "data", "mountPath": "/data/", "subPath": "a"}
    original["spec"]["containers"][0]["volumeMounts"] = [mount]

    injected = inject(original, trial, injection_settings())

    assert injected["spec"]["volumes"] == [{"name": "data", "emptyDir": {}}]
    assert collector_of(injected)["volumeMounts"] == [mount]


def test_a_collector_knows_the_variables_that_the_common_path_is_made_of() -> None:
    trial = injected_trial(collector_spec("File", path="/data/metrics.log", file_format="TEXT"))
    original = pod("x", volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])
    mount = {"name": "data", "mountPath": "/data", "subPathExpr": "runs/$(POD)"}
    variable = {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    original["spec"]["containers"][0]["volumeMounts"] = [mount]
    original["spec"]["containers"][0]["env"] = [{"name": "TOKEN", "value": "secret"}, variable]

    collector = collector_of(inject(original, trial, injection_settings()))

    assert collector["volumeMounts"] == [mount]
    assert variable in collector["env"]
    assert "TOKEN" not in [entry["name"] for entry in collector["env"]]


def test_the_program_is_wrapped_for_kinds_that_read_files() -> None:
    original = pod("python", "main.py")
    original["spec"]["containers"][0]["args"] = ["--lr", "$(LR)"]

    primary = inject(original, injected_trial(), injection_settings())["spec"]["containers"][0]

    command = command_of(primary, {"LR": "0.1"})
    assert command[:2] == ["sh", "-c"]
    assert command[3:] == ["python", "main.py", "--lr", "0.1"]
    assert "1>>/var/log/katib/metrics.log 2>&1" in command[2]
    assert "echo completed > /var/log/katib/$$.pid" in command[2]


@pytest.mark.parametrize("kind", ["PrometheusMetric", "Push", "Custom"])
def test_other_programs_run_as_their_image_says(kind: str) -> None:
    collector = CollectorSpec(kind=kind, custom_collector={"name": "mine", "image": "mine:1"})
    trial = injected_trial(MetricsCollectorSpec(collector=collector))

    primary = inject(pod(), trial, injection_settings())["spec"]["containers"][0]

    assert "command" not in primary
    assert "args" not in primary


def test_a_trial_that_pushes_gets_an_address_and_no_collector() -> None:
    injected = inject(pod(), injected_trial(collector_spec("Push")), injection_settings())

    assert [container["name"] for container in injected["spec"]["containers"]] == ["training"]
    environment = {e["name"]: e.get("value") for e in injected["spec"]["containers"][0]["env"]}
    assert environment == {"KATIB_TRIAL_NAME": None, "KATIB_DB_MANAGER_ADDRESS": DB_MANAGER}
    assert "shareProcessNamespace" not in injected["spec"]


def test_a_custom_collector_is_the_users_container_and_sees_the_directory() -> None:
    custom = {"name": "mine", "image": "mine:1", "args": ["a"], "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    path = FileSystemPath(path="/out/metrics.log", kind="File")
    spec = MetricsCollectorSpec(
        collector=CollectorSpec(kind="Custom", custom_collector=custom), source=SourceSpec(file_system_path=path)
    )

    injected = inject(pod("x"), injected_trial(spec), injection_settings(collectors={}))

    shared = {"name": "metrics-volume", "mountPath": "/out"}
    expected = {**custom, "volumeMounts": [{"name": "v", "mountPath": "/v"}, shared]}
    assert injected["spec"]["containers"][1] == expected
    assert injected["spec"]["shareProcessNamespace"] is True


def test_a_native_sidecar_is_an_init_container_that_stays() -> None:
    original = pod("x", initContainers=[{"name": "first", "image": "i"}])

    injected = inject(original, injected_trial(), injection_settings(cluster_has_native_sidecars=True))

    assert [c["name"] for c in injected["spec"]["containers"]] == ["training"]
    assert [c["name"] for c in injected["spec"]["initContainers"]] == ["first", "metrics-logger-and-collector"]
    assert injected["spec"]["initContainers"][1]["restartPolicy"] == "Always"
    assert injected["spec"]["shareProcessNamespace"] is True


def test_a_collector_may_stay_an_ordinary_container_where_the_cluster_has_native_ones() -> None:
    collectors = {"StdOut": CollectorEntry("c", native_sidecar=False)}
    settings = injection_settings(cluster_has_native_sidecars=True, collectors=collectors)

    injected = inject(pod("x"), injected_trial(), settings)

    assert [c["name"] for c in injected["spec"]["containers"]] == ["training", "metrics-logger-and-collector"]


def test_the_collector_knows_its_pod() -> None:
    original = pod("x", restartPolicy="OnFailure", terminationGracePeriodSeconds=90)

    environment = collector_of(inject(original, injected_trial(), injection_settings()))["env"]

    assert {e["name"]: e["value"] for e in environment} == {
        "KATIB_POD_RESTART_POLICY": "OnFailure",
        "KATIB_POD_GRACE_SECONDS": "90",
        "KATIB_NATIVE_SIDECAR": "false",
    }


# --- which pods -------------------------------------------------------------------------------------------------------


def test_a_worker_only_gets_labels() -> None:
    trial = injected_trial(primary_pod_labels={"mpi-job-role": "launcher"}, primary_container_name="mpi-launcher")
    worker = pod("sleep", "365d", container="mpi-worker", labels={"mpi-job-role": "worker"})

    injected = inject(worker, trial, injection_settings())

    assert injected["spec"] == worker["spec"]
    assert injected["metadata"]["labels"]["katib.kubeflow.org/trial"] == TRIAL
    assert missing_primary_container(worker, trial) == ""


def test_a_side_step_only_gets_labels_and_the_user_a_sentence() -> None:
    trial = injected_trial(primary_container_name="step-model-training")
    step = pod("cp", container="step-copy")

    injected = inject(step, trial, injection_settings())

    assert injected["spec"] == step["spec"]
    sentence = missing_primary_container(step, trial)
    assert "'step-model-training'" in sentence
    assert "step-copy" in sentence


@pytest.mark.parametrize(
    ("labels", "primary"),
    [({"a": "1", "b": "2", "c": "3"}, True), ({"a": "1"}, False), ({"a": "1", "b": "3"}, False)],
    ids=["more", "fewer", "different"],
)
def test_a_primary_pod_has_all_primary_labels(labels: dict[str, str], *, primary: bool) -> None:
    trial = injected_trial(primary_pod_labels={"a": "1", "b": "2"})

    injected = inject(pod("x", labels=labels), trial, injection_settings())

    assert (len(injected["spec"]["containers"]) == 2) is primary


# --- applied again ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("native", [False, True], ids=["ordinary", "native"])
@pytest.mark.parametrize("kind", ["StdOut", "File", "Push", "Custom", "PrometheusMetric"])
def test_an_injected_pod_stays_as_it_is(kind: str, *, native: bool) -> None:
    spec = collector_spec(kind, path="/d/metrics.log")
    custom = CollectorSpec(kind=kind, custom_collector={"name": "mine", "image": "m"})
    trial = injected_trial(spec.model_copy(update={"collector": custom}))
    claim = VolumeClaim("/opt/pbt", "claim", "e/t")
    settings = injection_settings(cluster_has_native_sidecars=native, suggestion_volume=claim)
    original = pod("python", "main.py")
    untouched = copy.deepcopy(original)

    once = inject(original, trial, settings)
    twice = inject(once, trial, settings)

    assert once != original
    assert twice == once
    assert original == untouched


# --- rights -----------------------------------------------------------------------------------------------------------


def test_the_collector_may_run_where_pods_are_restricted() -> None:
    context = collector_of(inject(pod("x"), injected_trial(), injection_settings()))["securityContext"]

    assert context == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def test_the_collector_runs_as_the_program_does() -> None:
    original = pod("x", securityContext={"runAsUser": 2000, "seccompProfile": {"type": "Unconfined"}})
    original["spec"]["containers"][0]["securityContext"] = {"runAsUser": 1000, "runAsGroup": 100, "privileged": True}

    context = collector_of(inject(original, injected_trial(early_stopping_rules=RULES), injection_settings()))

    assert context["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsUser": 1000,
        "runAsGroup": 100,
    }


@pytest.mark.parametrize(
    ("of_pod", "user"),
    [({}, 0), ({"runAsNonRoot": True}, None), ({"runAsUser": 7}, None)],
    ids=["nobody-named", "root-refused", "named-for-the-pod"],
)
def test_a_collector_with_rules_can_end_whatever_user_the_image_names(of_pod: dict[str, Any], user: int | None) -> None:
    original = pod("x", securityContext=of_pod)

    injected = inject(original, injected_trial(early_stopping_rules=RULES), injection_settings())

    assert collector_of(injected)["securityContext"].get("runAsUser") == user


def test_the_security_context_is_copied_when_that_is_configured() -> None:
    original = pod("x")
    original["spec"]["containers"][0]["securityContext"] = {"privileged": True}

    injected = inject(original, injected_trial(), injection_settings(inject_security_context=True))

    assert collector_of(injected)["securityContext"] == {"privileged": True}


# --- the volume of population based training --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["StdOut", "Push"])
def test_a_claim_of_the_algorithm_is_mounted(kind: str) -> None:
    claim = VolumeClaim("/opt/katib/data", "test-pbt", "test/test-trial")

    injected = inject(pod("x"), injected_trial(collector_spec(kind)), injection_settings(suggestion_volume=claim))

    volume = {"name": "suggestion-volume", "persistentVolumeClaim": {"claimName": "test-pbt"}}
    mount = {"name": "suggestion-volume", "mountPath": "/opt/katib/data", "subPath": "test/test-trial"}
    assert volume in injected["spec"]["volumes"]
    assert mount in injected["spec"]["containers"][0]["volumeMounts"]


# --- refusals ---------------------------------------------------------------------------------------------------------


def origins(*arguments: Any) -> list[str]:
    with pytest.raises(InvalidError) as caught:
        inject(*arguments)
    return [error.origin for error in caught.value.errors]


def test_an_image_that_runs_its_entrypoint_is_refused_with_the_remedy() -> None:
    with pytest.raises(InvalidError) as caught:
        inject(pod(), injected_trial(), injection_settings())

    assert str(caught.value) == (
        "spec.containers[0].command: it is missing, and what 'training:1' runs by itself is not known here; "
        "write the image's entrypoint as command in the trial template"
    )


def test_what_cannot_work_is_refused() -> None:
    settings, trial = injection_settings(), injected_trial()
    in_root = injected_trial(collector_spec("File", path="/metrics.log", file_format="TEXT"))
    taken = pod("x", volumes=[{"name": "metrics-volume", "emptyDir": {}}])
    namesake = pod("x")
    namesake["spec"]["containers"].append({"name": "metrics-logger-and-collector", "image": "i"})
    rules = injected_trial(early_stopping_rules=RULES)

    assert origins(pod("x"), in_root, settings) == ["metrics-directory"]
    assert origins(taken, trial, settings) == ["volume-name-taken"]
    assert origins(namesake, trial, settings) == ["container-name-taken"]
    assert origins(pod("x", hostPID=True), trial, settings) == ["pod-host-pid"]
    assert origins(pod("x", nodeSelector={"kubernetes.io/os": "windows"}), trial, settings) == ["pod-windows"]
    assert origins(pod("x", os={"name": "windows"}), trial, settings) == ["pod-windows"]
    assert origins(pod("x"), trial, injection_settings(collectors={})) == ["collector-not-configured"]
    assert origins(pod("x"), rules, injection_settings(early_stopping_address="")) == ["early-stopping-service"]
    assert origins(pod("x"), injected_trial(objective=None), settings) == ["objective-missing"]
