"""Searches whose trials are told more than values: the checkpoint of another trial, or a space of architectures."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.support.pod_cluster import GONE_SECONDS, IMAGE, Json, PodCluster, Room, experiment, python_job, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

LABELS = "pbt.suggestion.katib.kubeflow.org"

STEP = """
import json, os, pathlib, sys, tempfile

directory = pathlib.Path(os.environ["KATIB_CHECKPOINT_DIR"])
file, parent, name = directory / "deep" / "model.json", sys.argv[1], os.environ["KATIB_TRIAL_NAME"]
steps = json.loads(file.read_text()) if file.exists() else []
assert str(directory) == "/checkpoints", directory
assert steps[-1:] == ([parent] if parent else []), (steps, parent)
assert len(list(directory.iterdir())) == (1 if parent else 0), list(directory.iterdir())
file.parent.mkdir(exist_ok=True)
number, part = tempfile.mkstemp(dir=file.parent)  # for nobody but this user, as many libraries store a model
os.write(number, json.dumps([*steps, name]).encode())
os.rename(part, file)
print(f"steps={len(steps) + 1}")
print(f"loss={os.environ['lr']}")
"""
"""One step of a training whose checkpoint says which trials led to it."""

RESTRICTED: Json = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""What the Pod Security level of this name asks of a container."""


@pytest.fixture
def volume(cluster: PodCluster, room: Room) -> Iterator[str]:
    """A volume for the checkpoints of the experiment `population`, on the node that the test's first pod is given."""
    path = f"/tmp/{room.namespace}-volume"
    mount = {"name": "volume", "mountPath": "/volume"}
    host_path = {"name": "volume", "hostPath": {"path": path, "type": "DirectoryOrCreate"}}
    container = {"name": "make", "image": IMAGE, "command": ["true"], "volumeMounts": [mount]}
    pod = {"restartPolicy": "Never", "containers": [container], "volumes": [host_path]}
    room.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "make-volume"}, "spec": pod})
    made = wait_for(lambda: succeeded(room, "make-volume"), "the directory of the volume", 90, room.picture)
    classes = json.loads(cluster.run("get", "storageclasses", "-o", "json"))["items"]
    default = "storageclass.kubernetes.io/is-default-class"
    usual = [c["metadata"]["name"] for c in classes if c["metadata"].get("annotations", {}).get(default) == "true"]
    node = cluster.find("node", made["spec"]["nodeName"]) or {}
    hostname = "kubernetes.io/hostname"
    here = {"key": hostname, "operator": "In", "values": [node["metadata"]["labels"][hostname]]}
    spec = {
        "capacity": {"storage": "5Gi"},
        "accessModes": ["ReadWriteMany"],
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": next(iter(usual), ""),
        "claimRef": {"namespace": room.namespace, "name": "population-pbt"},
        "local": {"path": path},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
    }
    name = f"population-{room.namespace}"
    cluster.apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec})
    yield name
    cluster.run("delete", "persistentvolume", name, "--ignore-not-found", "--wait=false")


def succeeded(room: Room, name: str) -> Json | None:
    pod = room.cluster.find("pod", name, room.namespace)
    return pod if pod is not None and pod["status"].get("phase") == "Succeeded" else None


def metric(trial: Json, name: str) -> str:
    return next(m["latest"] for m in trial["status"]["observation"]["metrics"] if m["name"] == name)


def test_a_population_trains_on_from_checkpoints_of_others_where_no_pod_may_be_root(room: Room, volume: str) -> None:
    """The service and the trials are different users, neither of them root."""
    job = python_job(STEP)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    container["command"].append("${trialParameters.parent}")
    container["securityContext"] = {**RESTRICTED, "runAsUser": 3000, "runAsGroup": 3000}
    names = ("suggestion_trial_dir", "n_population", "truncation_threshold", "random_state")
    settings = [{"name": n, "value": v} for n, v in zip(names, ("/checkpoints", "5", "0.4", "1"), strict=True)]
    parent = {"name": "parent", "reference": f"${{trialSpec.Labels[{LABELS}/parent]}}"}
    wanted = experiment(
        "population",
        job,
        trials=8,
        parallel=5,
        algorithm={"algorithmName": "pbt", "algorithmSettings": settings},
        objective={"type": "minimize", "objectiveMetricName": "loss", "additionalMetricNames": ["steps"]},
        resumePolicy="FromVolume",
        template={"trialParameters": [{"name": "lr", "reference": "lr"}, parent]},
    )
    room.apply(wanted)
    service = wait_for(lambda: services_of(room, "population-pbt"), "the service", 90, room.picture)[0]

    assert room.ended("population", 240)["status"]["trialsSucceeded"] == 8, room.picture()
    trials = {trial["metadata"]["name"]: trial for trial in room.trials("population")}
    generations = {name: int(trial["metadata"]["labels"][f"{LABELS}/generation"]) for name, trial in trials.items()}
    for name, trial in trials.items():
        above = trial["metadata"]["labels"].get(f"{LABELS}/parent")
        assert generations[name] == (generations[above] + 1 if above else 0)
        assert float(metric(trial, "steps")) == generations[name] + 1
    assert max(generations.values()) > 0
    (container,) = service["spec"]["containers"]
    assert {key: container["securityContext"].get(key) for key in RESTRICTED} == RESTRICTED
    room.delete("population")
    claim = ("persistentvolumeclaim", "population-pbt", room.namespace)
    wait_for(lambda: room.cluster.find(*claim) is None, "the claim to go with it", GONE_SECONDS, room.picture)


def services_of(room: Room, deployment: str) -> list[Json]:
    return room.cluster.items("pods", room.namespace, f"katib.kubeflow.org/deployment={deployment}")


SEARCH = """
import json, os, sys

told, expected = sys.argv[1:], json.loads(os.environ["EXPECTED"])
assert told == expected, (told, expected)
print(os.environ["SAYS"])
"""

GENOTYPE = "Genotype(normal=[[('skip_connection', 0)]], normal_concat=range(2, 4))"


@pytest.mark.parametrize(
    ("algorithm", "layers", "settings", "told", "objective", "value"),
    [
        pytest.param(
            "darts",
            2,
            {"num_epochs": "1", "batch_size": "None"},
            {
                "algorithm-settings": (
                    "{'num_epochs': '1', 'w_lr': 0.025, 'w_lr_min': 0.001, 'w_momentum': 0.9, "
                    "'w_weight_decay': 0.0003, 'w_grad_clip': 5.0, 'alpha_lr': 0.0003, 'alpha_weight_decay': 0.001, "
                    "'batch_size': null, 'num_workers': 4, 'init_channels': 16, 'print_step': 50, 'num_nodes': 4, "
                    "'stem_multiplier': 3}"
                ),
                "search-space": "['separable_convolution_3x3']",
                "num-layers": "2",
            },
            "Best-Genotype",
            GENOTYPE,
            id="darts",
        ),
        pytest.param(
            "enas",
            1,
            {},
            {
                "architecture": "[[0]]",
                "nn_config": (
                    "{'num_layers': 1, 'input_sizes': [8, 8, 1], 'output_sizes': [2], 'embedding': {'0': {'opt_id': 0, "
                    "'opt_type': 'separable_convolution', 'opt_params': {'filter_size': '3'}}}}"
                ),
            },
            "Validation-Accuracy",
            "0.5",
            id="enas",
        ),
    ],
)
def test_an_architecture_search_tells_the_program_byte_for_byte_what_katibs_training_images_read(
    room: Room, algorithm: str, layers: int, settings: dict[str, str], told: dict[str, str], objective: str, value: str
) -> None:
    sizes = {"name": "filter_size", "parameterType": "categorical", "feasibleSpace": {"list": ["3"]}}
    job = python_job(SEARCH)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    names = {reference: re.sub(r"\W", "", reference) for reference in told}
    container["command"] += [f'--{reference}="${{trialParameters.{name}}}"' for reference, name in names.items()]
    expected = json.dumps([f'--{reference}="{text}"' for reference, text in told.items()])
    container["env"] = [{"name": "EXPECTED", "value": expected}, {"name": "SAYS", "value": f"{objective}={value}"}]
    parameters = [{"name": name, "reference": reference} for reference, name in names.items()]
    filters = {"filter": {"metricsFormat": [r"([\w-]+)=(.*)"]}}
    room.apply(
        experiment(
            algorithm,
            job,
            trials=1,
            parallel=1,
            algorithm={
                "algorithmName": algorithm,
                "algorithmSettings": [{"name": name, "value": text} for name, text in settings.items()],
            },
            objective={"type": "maximize", "objectiveMetricName": objective},
            metricsCollectorSpec={"collector": {"kind": "StdOut"}, "source": filters},
            parameters=[],
            nasConfig={
                "graphConfig": {"numLayers": layers, "inputSizes": [8, 8, 1], "outputSizes": [2]},
                "operations": [{"operationType": "separable_convolution", "parameters": [sizes]}],
            },
            template={"trialParameters": parameters},
        )
    )
    room.ended(algorithm)

    (trial,) = room.trials(algorithm)
    assert metric(trial, objective) == value
