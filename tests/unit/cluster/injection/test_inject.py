from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from katib.errors import InvalidError
from katib.model.names import trial_seed
from katib.model.quantities import add_quantities
from katib.model.types import CollectorSpec, FileSystemPath, MetricsCollectorSpec, SourceSpec, Trial
from katib.places.cluster.configuration.models import MetricsCollectorConfig
from katib.places.cluster.injection import InjectionSettings, VolumeClaim, inject, missing_primary_container
from katib.wire.rpc.credentials import DbManagerCredentials
from metrics_collector.pod_settings import PodSettings
from tests.support.golden import Golden
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

LABEL = "katib.kubeflow.org/trial"
HEAD = ["-t", TRIAL, "-m", "accuracy", "-o-type", "maximize", "-s-db", DB_MANAGER]
EARLY_STOPPING = ["-s-earlystop", "test-medianstop.team:6788"]


def collector_of(injected: dict[str, Any]) -> dict[str, Any]:
    everyone = [*injected["spec"]["containers"], *injected["spec"].get("initContainers", ())]
    return next(container for container in everyone if container["name"] != "training")


def program_of(injected: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = injected["spec"]["containers"][0]
    return found


def a_pod(*command: str, **container: Any) -> dict[str, Any]:
    """Return a pod whose container has these fields, too."""
    made: dict[str, Any] = pod(*(command or ("x",)))
    program_of(made).update(container)
    return made


def injected_pod(
    original: dict[str, Any] | None = None,
    trial: Trial | None = None,
    settings: InjectionSettings | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """Return the pod `x` of a trial, with what is injected by default, apart from what is given."""
    found = inject(original or pod("x"), trial or injected_trial(), settings or injection_settings(**changes))
    return dict(found)


def an_entry(kind: str = "StdOut", **fields: Any) -> MetricsCollectorConfig:
    return MetricsCollectorConfig(kind=kind, image=f"collector/{kind}", **fields)


def entry(kind: str, **fields: Any) -> InjectionSettings:
    return injection_settings(collectors={kind: an_entry(kind, **fields)})


STDOUT = ["-path", "/var/log/katib/metrics.log", "-format", "TEXT"]
FILE = {"kind": "File", "path": "/test/path"}
EVENTS = {"kind": "TensorFlowEvent", "path": "/test/path", "path_kind": "Directory"}
STOP_RULES = ["-stop-rule", "accuracy;0.6;less;5", "-stop-rule", "loss;2;greater;0", *EARLY_STOPPING]


@pytest.mark.parametrize(
    ("collector", "settings", "tail"),
    [
        pytest.param({}, {"wait_all_processes": False}, [*STDOUT, "-w", "false"], id="StdOut"),
        pytest.param({}, {"wait_all_processes": True}, [*STDOUT, "-w", "true"], id="StdOut-wait"),
        pytest.param(
            {**FILE, "file_format": "TEXT", "filters": ["f1", "f2"]},
            {},
            ["-path", "/test/path", "-f", "f1;f2", "-format", "TEXT"],
            id="File-TEXT",
        ),
        pytest.param({**FILE, "file_format": "JSON"}, {}, ["-path", "/test/path", "-format", "JSON"], id="File-JSON"),
        pytest.param(EVENTS, {}, ["-path", "/test/path"], id="TensorFlowEvent"),
        pytest.param({"kind": "PrometheusMetric"}, {}, [], id="Prometheus"),
        pytest.param({"rules": RULES}, {}, [*STDOUT, *STOP_RULES], id="StdOut-rules"),
    ],
)
def test_the_collector_has_the_arguments_of_katibs_collectors(
    collector: dict[str, Any], settings: dict[str, Any], tail: list[str]
) -> None:
    rules = {"early_stopping_rules": collector["rules"]} if "rules" in collector else {}
    spec = collector_spec(**{name: value for name, value in collector.items() if name != "rules"})

    injected = inject(
        pod("python", "main.py"),
        injected_trial(spec, **rules),
        entry("StdOut", **settings) if settings else injection_settings(),
    )

    reads_text = spec.kind in ("StdOut", "File")
    assert collector_of(injected)["name"] == ("metrics-logger-and-collector" if reads_text else "metrics-collector")
    assert collector_of(injected)["args"] == [*HEAD, *tail]


def test_additional_metrics_follow_the_objective() -> None:
    objective = injected_trial().spec.objective
    assert objective is not None
    trial = injected_trial(objective=structs.replace(objective, additional_metric_names=("loss", "f1")))

    assert collector_of(injected_pod(trial=trial))["args"][3] == "accuracy;loss;f1"


def test_a_pod_is_labelled_and_its_program_knows_its_trial() -> None:
    injected = inject(pod("x", labels={"job-name": "j"}), injected_trial(), injection_settings())

    assert injected["metadata"]["labels"] == {
        "job-name": "j",
        "katib.kubeflow.org/experiment": "test",
        "katib.kubeflow.org/trial": TRIAL,
    }
    field = {"fieldRef": {"fieldPath": "metadata.labels['katib.kubeflow.org/trial']"}}
    assert program_of(injected)["env"] == [SEED, {"name": "KATIB_TRIAL_NAME", "valueFrom": field}]


def test_the_metrics_directory_is_shared() -> None:
    injected = injected_pod()

    mount = {"name": "metrics-volume", "mountPath": "/var/log/katib"}
    assert injected["spec"]["volumes"] == [{"name": "metrics-volume", "emptyDir": {}}]
    assert [container["volumeMounts"] for container in injected["spec"]["containers"]] == [[mount], [mount]]
    assert injected["spec"]["shareProcessNamespace"] is True


def test_a_volume_of_the_template_is_used_and_the_collector_knows_the_variables_that_its_path_is_made_of() -> None:
    trial = injected_trial(collector_spec("File", path="/data/metrics.log", file_format="TEXT"))
    mount = {"name": "data", "mountPath": "/data/", "subPathExpr": "runs/$(POD)"}
    variable = {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    original = a_pod(volumeMounts=[mount], env=[{"name": "TOKEN", "value": "secret"}, variable])
    original["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]

    injected = inject(original, trial, injection_settings())
    collector = collector_of(injected)

    assert injected["spec"]["volumes"] == original["spec"]["volumes"]
    assert collector["volumeMounts"] == [mount]
    assert variable in collector["env"]
    assert "TOKEN" not in [entry["name"] for entry in collector["env"]]


def test_katibs_collectors_find_katibs_shell_around_programs_that_write_files() -> None:
    original = a_pod("python", "main.py", args=["--lr", "$(LR)"])

    command = command_of(injected_pod(original)["spec"]["containers"][0], {"LR": "0.1"})
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
    environment = {e["name"]: e.get("value") for e in program_of(injected)["env"]}
    assert environment == {
        "KATIB_SEED": SEED["value"],
        "KATIB_TRIAL_NAME": None,
        "KATIB_DB_MANAGER_ADDRESS": DB_MANAGER,
    }
    assert "shareProcessNamespace" not in injected["spec"]


def test_a_custom_collector_is_the_users_container_and_sees_the_directory() -> None:
    custom = {"name": "mine", "image": "mine:1", "args": ["a"], "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    path = FileSystemPath(path="/out/metrics.log", kind="File")
    spec = MetricsCollectorSpec(
        collector=CollectorSpec(kind="Custom", custom_collector=custom), source=SourceSpec(file_system_path=path)
    )

    injected = inject(pod("x"), injected_trial(spec), injection_settings(collectors={}))

    shared = {"name": "metrics-volume", "mountPath": "/out"}
    env = [
        {"name": "KATIB_TRIAL_NAME", "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{LABEL}']"}}},
        {"name": "KATIB_DB_MANAGER_ADDRESS", "value": DB_MANAGER},
    ]
    expected = {**custom, "env": env, "volumeMounts": [{"name": "v", "mountPath": "/v"}, shared]}
    assert injected["spec"]["containers"][1] == expected
    assert injected["spec"]["shareProcessNamespace"] is True


def native(**fields: Any) -> InjectionSettings:
    entries = {kind: an_entry(kind, native_sidecar=True, **fields) for kind in ("StdOut", "File")}
    return injection_settings(collectors=entries)


def test_a_native_sidecar_is_an_init_container_that_stays() -> None:
    original = pod("x", initContainers=[{"name": "first", "image": "i"}])

    injected = inject(original, injected_trial(), native())

    assert [c["name"] for c in injected["spec"]["containers"]] == ["training"]
    assert [c["name"] for c in injected["spec"]["initContainers"]] == ["first", "metrics-logger-and-collector"]
    collector, program = injected["spec"]["initContainers"][1], program_of(injected)
    volume = {"name": "katib-launcher", "mountPath": "/var/run/katib"}
    launcher = "/var/run/katib/launch -d /var/run/katib -g 30 -o /var/log/katib/metrics.log -w 3660 --"
    assert collector["restartPolicy"] == "Always"
    assert collector["lifecycle"]["postStart"]["exec"]["command"][-2:] == ["-i", "/var/run/katib/launch"]
    assert (program["command"], program["args"]) == (launcher.split(), ["x"])
    assert volume in program["volumeMounts"]
    assert volume in collector["volumeMounts"]
    assert {"name": "katib-launcher", "emptyDir": {}} in injected["spec"]["volumes"]
    assert "shareProcessNamespace" not in injected["spec"]


@pytest.mark.parametrize("others", [0, 1])
def test_the_collector_knows_whether_other_containers_may_run_on(others: int) -> None:
    original = pod("x")
    original["spec"]["containers"] += [{"name": "other", "image": "i"}] * others

    told = variables(inject(original, injected_trial(), native())["spec"]["initContainers"][0])

    assert told["KATIB_PROGRAM_ALONE"] == ("false" if others else "true")
    assert told["KATIB_LAUNCHER_DIRECTORY"] == "/var/run/katib"


def test_a_file_that_a_program_writes_is_not_written_by_the_launcher() -> None:
    trial = injected_trial(collector_spec("File", path="/my $(dir)/metrics.log", file_format="TEXT"))

    assert "-o" not in program_of(inject(pod("x"), trial, native()))["command"]


def test_a_collector_is_an_ordinary_container_by_default() -> None:
    """Katib's own collectors, which an existing configuration names, find no process as native sidecars."""
    injected = inject(pod("x"), injected_trial(), injection_settings())

    assert [c["name"] for c in injected["spec"]["containers"]] == ["training", "metrics-logger-and-collector"]
    assert program_of(injected)["command"][:2] == ["sh", "-c"]


def test_the_collector_knows_its_pod() -> None:
    original = pod("x", restartPolicy="OnFailure", terminationGracePeriodSeconds=90)

    environment = collector_of(injected_pod(original))["env"]

    assert {e["name"]: e.get("value") for e in environment} == {
        "KATIB_POD_RESTART_POLICY": "OnFailure",
        "KATIB_POD_GRACE_SECONDS": "90",
        "KATIB_COLLECTOR_KIND": "StdOut",
        "KATIB_GIVE_UP_SECONDS": "3600",
        "KATIB_POD_UID": None,
    }
    assert environment[-1]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.uid"}}


RULES_OF_ITS_OWN = {
    "restartPolicy": "Never",
    "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [3]}}],
}


@pytest.mark.parametrize("is_native", [False, True], ids=["ordinary", "native"])
def test_the_collector_knows_when_the_programs_container_runs_again(*, is_native: bool) -> None:
    original = pod("x", restartPolicy="Never")
    program_of(original).update(RULES_OF_ITS_OWN)

    injected = inject(original, injected_trial(), native() if is_native else injection_settings())

    known = PodSettings.of({k: v or "" for k, v in variables(collector_of(injected)).items()})
    assert (known.restart_policy, known.program_restart) == ("Never", RULES_OF_ITS_OWN)
    assert {name: program_of(injected)[name] for name in RULES_OF_ITS_OWN} == RULES_OF_ITS_OWN


@pytest.mark.parametrize(
    ("policy", "own", "waits"),
    [
        ("Never", {}, True),
        ("OnFailure", {}, True),
        ("Always", {}, False),
        ("Never", RULES_OF_ITS_OWN, True),
        ("Never", {"restartPolicy": "Always"}, False),
        ("Always", {"restartPolicy": "Never"}, True),
        (
            "Never",
            {
                "restartPolicy": "Never",
                "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "NotIn", "values": [9]}}],
            },
            False,
        ),
    ],
)
def test_the_program_of_a_native_sidecar_waits_as_long_as_the_collector_tries_unless_it_runs_again(
    policy: str, own: dict[str, Any], *, waits: bool
) -> None:
    original = pod("x", restartPolicy=policy, terminationGracePeriodSeconds=8)
    program_of(original).update(own)

    injected = inject(original, injected_trial(), native(patience_seconds=600))

    command = " ".join(program_of(injected)["command"])
    assert variables(collector_of(injected))["KATIB_GIVE_UP_SECONDS"] == "600"
    assert ("-w 660" in command) is waits  # a minute more than the collector
    assert "-g 8" in command


@pytest.mark.parametrize(
    ("part", "place", "action", "refused"),
    [
        ("containers", 0, "Reboot", True),
        ("containers", 1, "Reboot", True),
        ("initContainers", 0, "Reboot", True),
        ("initContainers", 0, "RestartAllContainers", False),
    ],
)
def test_a_pod_with_unknown_rules_is_refused(part: str, place: int, action: str, *, refused: bool) -> None:
    original = pod("x", initContainers=[{"name": "first", "image": "i"}])
    original["spec"]["containers"].append({"name": "other", "image": "i"})
    rule = {"action": action, "exitCodes": {"operator": "In", "values": [3]}}
    original["spec"][part][place]["restartPolicyRules"] = [rule]

    try:
        injected_pod(original)
        found = []
    except InvalidError as error:
        found = [one.path for one in error.errors]

    assert found == ([f"spec.{part}[{place}].restartPolicyRules[0].action"] if refused else [])


@pytest.mark.parametrize(
    ("one", "other", "total"),
    [
        ("1", "10m", "1010m"),
        ("1Gi", "48Mi", "1072Mi"),
        ("1.5Gi", "512Mi", "2Gi"),
        ("1G", "1Gi", "2073741824"),
        (2, "2", "4"),
        ("100u", "1n", "100001n"),
        ("1e3", "1k", "2k"),
    ],
)
def test_quantities_are_added_exactly_and_stay_readable(one: object, other: str, total: str) -> None:
    assert add_quantities(one, other) == total


@pytest.mark.parametrize("is_native", [False, True], ids=["ordinary", "native"])
def test_what_the_pod_asks_for_as_a_whole_is_raised_by_its_collector(*, is_native: bool) -> None:
    own = {"requests": {"cpu": "10m", "memory": "48Mi"}, "limits": {"cpu": "500m", "memory": "128Mi"}}
    entry = an_entry(native_sidecar=is_native, resources=own)
    settings = injection_settings(collectors={"StdOut": entry})
    whole = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi", "hugepages-2Mi": "2Mi"}}

    injected = inject(pod("x", resources=whole), injected_trial(), settings)
    without = inject(pod("x"), injected_trial(), settings)

    assert injected["spec"]["resources"] == {
        "requests": {"cpu": "1010m", "memory": "1072Mi"},
        "limits": {"memory": "1152Mi", "hugepages-2Mi": "2Mi"},
    }
    assert "resources" not in without["spec"]


# --- which pods -------------------------------------------------------------------------------------------------------


SEED = {"name": "KATIB_SEED", "value": str(trial_seed(injected_trial().namespace, TRIAL))}


def as_every_pod(given: dict[str, Any]) -> dict[str, Any]:
    """Return a pod of one container with a seed, whose end leaves its last lines."""
    (container,) = given["spec"]["containers"]
    left = {**container, "terminationMessagePolicy": "FallbackToLogsOnError", "env": [SEED]}
    return {**given, "spec": {**given["spec"], "containers": [left]}}


def test_a_worker_only_gets_labels_and_a_seed_and_leaves_its_last_words() -> None:
    trial = injected_trial(primary_pod_labels={"mpi-job-role": "launcher"}, primary_container_name="mpi-launcher")
    worker = pod("sleep", "365d", container="mpi-worker", labels={"mpi-job-role": "worker"})

    injected = inject(worker, trial, injection_settings())

    assert injected["spec"] == as_every_pod(worker)["spec"]
    assert injected["metadata"]["labels"]["katib.kubeflow.org/trial"] == TRIAL
    assert missing_primary_container(worker, trial) == ""


def test_a_side_step_is_changed_as_little_and_the_user_gets_a_sentence() -> None:
    trial = injected_trial(primary_container_name="step-model-training")
    step = pod("cp", container="step-copy")

    assert inject(step, trial, injection_settings())["spec"] == as_every_pod(step)["spec"]
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

    assert (len(inject(pod("x", labels=labels), trial, injection_settings())["spec"]["containers"]) == 2) is primary


# --- applied again ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_native", [False, True], ids=["ordinary", "native"])
@pytest.mark.parametrize("kind", ["StdOut", "File", "Push", "Custom", "PrometheusMetric"])
def test_an_injected_pod_stays_as_it_is(kind: str, *, is_native: bool) -> None:
    spec = collector_spec(kind, path="/d/metrics.log")
    custom = CollectorSpec(kind=kind, custom_collector={"name": "mine", "image": "m"})
    trial = injected_trial(structs.replace(spec, collector=custom))
    claim = VolumeClaim("/opt/pbt", "claim", "e/t")
    entries = {kind: an_entry(kind, native_sidecar=is_native)}
    settings = injection_settings(suggestion_volume=claim, collectors=entries)
    original = pod("python", "main.py")
    untouched = copy.deepcopy(original)

    once = inject(original, trial, settings)
    twice = inject(once, trial, settings)

    assert once != original
    assert twice == once
    assert original == untouched


# --- rights -----------------------------------------------------------------------------------------------------------


RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
ENDS_ANY_USER = {"runAsUser": 0, "capabilities": {"drop": ["ALL"], "add": ["DAC_OVERRIDE", "KILL"]}}
UNCONFINED = {"runAsUser": 2000, "seccompProfile": {"type": "Unconfined"}}
USER = {"runAsUser": 1000, "runAsGroup": 100}


@pytest.mark.parametrize(
    ("of_pod", "own", "rules", "expected"),
    [
        pytest.param({}, {}, (), RESTRICTED, id="as restricted as can be"),
        pytest.param({}, {}, RULES, RESTRICTED | ENDS_ANY_USER, id="whatever user the image names"),
        pytest.param({"runAsNonRoot": True}, {}, RULES, RESTRICTED, id="root refused"),
        pytest.param({"runAsUser": 7}, {}, RULES, RESTRICTED, id="named for the pod"),
        pytest.param({}, {"runAsNonRoot": True}, (), RESTRICTED | {"runAsNonRoot": True}, id="as Pod Security demands"),
        pytest.param({}, USER | {"privileged": True}, RULES, RESTRICTED | USER, id="named for the program"),
    ],
)
def test_the_collector_may_do_no_more_than_it_needs(
    of_pod: dict[str, Any], own: dict[str, Any], rules: Any, expected: dict[str, Any]
) -> None:
    original = a_pod(securityContext=own)
    original["spec"]["securityContext"] = of_pod
    trial = injected_trial(early_stopping_rules=rules)

    found = collector_of(inject(original, trial, injection_settings()))["securityContext"]
    original["spec"]["securityContext"] = of_pod | UNCONFINED
    unconfined = collector_of(inject(original, trial, injection_settings()))["securityContext"]
    copied = collector_of(inject(original, trial, injection_settings(inject_security_context=True)))["securityContext"]

    launched = collector_of(inject(original, trial, native()))["securityContext"]

    assert found == expected
    assert launched.get("runAsUser", -1) != 0
    assert "seccompProfile" not in unconfined  # what is said for the pod holds for both
    assert copied == (own or unconfined)


# --- the volume of population based training --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["StdOut", "Push"])
def test_a_claim_of_the_algorithm_is_mounted(kind: str) -> None:
    claim = VolumeClaim("/opt/katib/data", "test-pbt", "test/test-trial")

    injected = inject(pod("x"), injected_trial(collector_spec(kind)), injection_settings(suggestion_volume=claim))

    volume = {"name": "suggestion-volume", "persistentVolumeClaim": {"claimName": "test-pbt"}}
    mount = {"name": "suggestion-volume", "mountPath": "/opt/katib/data", "subPath": "test/test-trial"}
    assert volume in injected["spec"]["volumes"]
    assert mount in program_of(injected)["volumeMounts"]
    assert {"name": "KATIB_CHECKPOINT_DIR", "value": "/opt/katib/data"} in program_of(injected)["env"]


def test_a_template_that_has_a_volume_at_the_place_of_checkpoints_keeps_it() -> None:
    claim = VolumeClaim("/checkpoints/", "test-pbt", "test/test-trial")
    own = {"name": "mine", "mountPath": "/checkpoints"}
    template = a_pod(volumeMounts=[own])

    injected = inject(template, injected_trial(collector_spec("Push")), injection_settings(suggestion_volume=claim))

    assert program_of(injected)["volumeMounts"] == [own]
    assert not injected["spec"].get("volumes")


@pytest.mark.parametrize("own", [False, True], ids=["ours", "the-templates"])
def test_all_users_may_read_a_checkpoint_on_our_volume_when_its_program_has_ended(*, own: bool) -> None:
    """The service that copies it is another user."""
    claim = VolumeClaim("/checkpoints", "test-pbt", "test/test-trial")
    template = pod("x")
    if own:
        program_of(template)["volumeMounts"] = [{"name": "mine", "mountPath": "/checkpoints"}]

    settings = replace(native(), suggestion_volume=claim)
    command = " ".join(program_of(inject(template, injected_trial(), settings))["command"])

    assert ("-r /checkpoints" in command) is not own


# --- refusals ---------------------------------------------------------------------------------------------------------


def origins(*arguments: Any) -> list[str]:
    with pytest.raises(InvalidError) as caught:
        inject(*arguments)
    return [error.origin for error in caught.value.errors]


def test_an_image_that_runs_its_entrypoint_is_refused_with_the_remedy(golden: Golden) -> None:
    with pytest.raises(InvalidError) as caught:
        inject(pod(), injected_trial(), injection_settings())

    golden(caught.value)


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
    inject(pod("x", hostPID=True), trial, native())  # it shares no processes
    assert origins(pod("x", nodeSelector={"kubernetes.io/os": "windows"}), trial, settings) == ["pod-windows"]
    assert origins(pod("x", os={"name": "windows"}), trial, settings) == ["pod-windows"]
    assert origins(pod("x"), trial, injection_settings(collectors={})) == ["collector-not-configured"]
    assert origins(pod("x"), rules, injection_settings(early_stopping_address="")) == ["early-stopping-service"]
    assert origins(pod("x"), injected_trial(objective=None), settings) == ["objective-missing"]


@pytest.mark.parametrize("kind", ["StdOut", "File", "Custom", "Push"])
def test_the_container_that_reports_gets_the_token_of_the_trial(kind: str) -> None:
    spec = collector_spec(kind, path="/test/path", file_format="TEXT") if kind == "File" else collector_spec(kind)
    if kind == "Custom":
        own = {"name": "own-collector", "image": "own:1"}
        spec = MetricsCollectorSpec(collector=CollectorSpec(kind=kind, custom_collector=own))
    settings = injection_settings(credentials=DbManagerCredentials("token of the trial"))
    injected = inject(pod("train"), injected_trial(spec), settings)
    told = {"name": "KATIB_DB_MANAGER_TOKEN", "value": "token of the trial"}

    if kind != "Push":
        assert told in collector_of(injected)["env"]
    program = program_of(injected)["env"]
    assert (told in program) is (kind != "StdOut")  # what prints its metrics has nothing to push
    assert ("KATIB_DB_MANAGER_ADDRESS" in str(program)) is (kind != "StdOut")


def test_a_template_cannot_bring_another_token() -> None:
    original = a_pod(env=[{"name": "KATIB_DB_MANAGER_TOKEN", "value": "stolen"}])
    settings = injection_settings(credentials=DbManagerCredentials("token of the trial"))
    injected = inject(original, injected_trial(collector_spec("Push")), settings)

    assert "stolen" not in str(injected)
    assert inject(injected, injected_trial(collector_spec("Push")), settings) == injected


STATUS = "/var/run/secrets/katib/trainer-status"


@pytest.mark.parametrize("kind", ["StdOut", "Push"])
@pytest.mark.parametrize("authority", ["", "PEM"])
def test_a_program_learns_where_to_post_the_status_of_kubeflow_trainer(kind: str, authority: str) -> None:
    settings = injection_settings(
        credentials=DbManagerCredentials("the token", authority), status_address="db.katib:6791"
    )
    trial = injected_trial(collector_spec(kind))
    injected = inject(pod("train"), trial, settings)
    program = program_of(injected)
    files = {"token": "the token", **({"ca.crt": authority} if authority else {})}
    volume = next(one for one in injected["spec"]["volumes"] if one["name"] == "trainer-status")

    told = {name: value for name, value in variables(program).items() if name.startswith("KUBEFLOW_")}
    assert told == {
        "KUBEFLOW_TRAINER_SERVER_URL": f"http{'s' if authority else ''}://db.katib:6791"
        f"/trials/{trial.name}/status?metric=accuracy",
        "KUBEFLOW_TRAINER_SERVER_TOKEN": f"{STATUS}/token",
        **({"KUBEFLOW_TRAINER_SERVER_CA_CERT": f"{STATUS}/ca.crt"} if authority else {}),
    }
    assert {"name": "trainer-status", "mountPath": STATUS, "readOnly": True} in program["volumeMounts"]
    for item in volume["downwardAPI"]["items"]:
        annotation = item["fieldRef"]["fieldPath"].removeprefix("metadata.annotations['").removesuffix("']")
        assert injected["metadata"]["annotations"][annotation] == files.pop(item["path"])
    assert not files
    assert inject(injected, trial, settings) == injected


def test_a_program_with_a_place_for_its_status_keeps_it_and_one_without_metrics_gets_none() -> None:
    settings = injection_settings(credentials=DbManagerCredentials("the token"), status_address="db.katib:6791")
    own = a_pod(env=[{"name": "KUBEFLOW_TRAINER_SERVER_URL", "value": "https://kubeflow"}])
    for found in (
        inject(own, injected_trial(collector_spec("Push")), settings),
        inject(pod("train"), injected_trial(collector_spec("None")), settings),
        inject(pod("train"), injected_trial(collector_spec("Push")), injection_settings()),
    ):
        assert STATUS not in str(found)


# --- endpoints --------------------------------------------------------------------------------------------------------


def scraped() -> Trial:
    source = SourceSpec(http_get={"port": 9000, "path": "/metrics"})
    return injected_trial(MetricsCollectorSpec(collector=CollectorSpec(kind="PrometheusMetric"), source=source))


def variables(container: dict[str, Any]) -> dict[str, Any]:
    return {variable["name"]: variable.get("value") for variable in container["env"]}


def test_a_program_with_an_endpoint_is_launched_and_its_collector_knows_the_place() -> None:
    injected = inject(pod("python", "a"), scraped(), entry("PrometheusMetric", native_sidecar=True))

    told, program = variables(collector_of(injected)), program_of(injected)
    assert told["KATIB_COLLECTOR_KIND"] == "PrometheusMetric"
    assert told["KATIB_METRICS_HTTP_GET"] == '{"port":9000,"path":"/metrics"}'
    assert told["KATIB_LAUNCHER_DIRECTORY"] == "/var/run/katib"
    assert (variables(program)["KATIB_METRICS_PORT"], program["args"]) == ("9000", ["python", "a"])
    assert [mount["mountPath"] for mount in collector_of(injected)["volumeMounts"]] == ["/var/run/katib"]


def test_nothing_is_added_to_a_pod_that_nothing_is_collected_from() -> None:
    injected = inject(pod("x"), injected_trial(collector_spec("None")), injection_settings(collectors={}))

    assert len(injected["spec"]["containers"]) == 1
    assert program_of(injected)["command"] == ["x"]
    assert injected["metadata"]["labels"][LABEL] == TRIAL
