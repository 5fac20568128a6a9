"""The Helm chart: that it gives the objects of the installs for kustomize, and names what is wrong with values."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from katib.model.configuration import read_configuration
from katib.places.cluster.configuration.models import KatibConfig
from tests.support.helm import INSTALLS, POSTGRES, helm, needs_helm

ROOT = Path(__file__).resolve().parents[3]
COMPONENTS = ROOT / "manifests" / "components"

Json = dict[str, Any]
Key = tuple[str, str, str]

needs_both = pytest.mark.skipif(
    shutil.which("helm") is None or shutil.which("kubectl") is None,
    reason="helm is missing, or kubectl, which has kustomize",
)


def template(values: Json, *options: str) -> subprocess.CompletedProcess[str]:
    return helm("template", "--skip-tests", *options, values=values)


def rendered(values: Json, *options: str, keep: bool = False) -> dict[Key, Json]:
    kept = {"crds": {"keep": keep}, "data": {"keep": keep}}
    done = template({**kept, **values}, *options)
    assert done.returncode == 0, done.stderr
    return by_key(done.stdout)


def by_key(text: str) -> dict[Key, Json]:
    objects = [obj for obj in yaml.safe_load_all(text) if obj]
    found = {(obj["apiVersion"], obj["kind"], obj["metadata"]["name"]): obj for obj in objects}
    assert len(found) == len(objects)
    return found


def kustomized(folder: Path) -> dict[Key, Json]:
    """Return the objects of an install, except for the namespace, which Helm makes."""
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {key: obj for key, obj in by_key(done.stdout).items() if key[1] != "Namespace"}


def deployment(objects: dict[Key, Json], name: str) -> Json:
    found: Json = objects["apps/v1", "Deployment", name]["spec"]
    return found


def images(objects: dict[Key, Json]) -> set[str]:
    """Return the images of all containers, and those that the KatibConfig names for others."""
    config = objects["v1", "ConfigMap", "katib-config"]["data"]["katib-config.yaml"]
    texts = [config, *(yaml.safe_dump(obj) for (_, kind, _), obj in objects.items() if kind == "Deployment")]
    return {line.partition("image: ")[2] for text in texts for line in text.splitlines() if " image: " in line}


def test_the_chart_fits_the_components() -> None:
    command = [sys.executable, "-m", "tools.generate_chart", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (0, "")


def test_every_install_has_its_values() -> None:
    assert {path.parent.name for path in (ROOT / "manifests" / "installs").glob("*/kustomization.yaml")} == set(
        INSTALLS
    )


@needs_both
@pytest.mark.parametrize("install", INSTALLS)
def test_helm_gives_the_objects_that_kustomize_gives(install: str) -> None:
    expected = kustomized(ROOT / "manifests" / "installs" / install)
    values = INSTALLS[install]
    if install == "external-db":  # the user makes the Secret, which kustomize gives a name with a hash
        (name,) = [name for _, kind, name in expected if kind == "Secret" and name.startswith("katib-db-secrets-")]
        del expected["v1", "Secret", name]
        values = {**values, "external": {"existingSecret": name}}

    assert rendered(values) == expected


@needs_both
@pytest.mark.parametrize(
    ("added", "values"),
    [
        pytest.param(["server-token"], {"server": {"access": "token"}}, id="a token"),
        pytest.param(["optimization-jobs"], {"optimizationJobs": {"enabled": True}}, id="optimization jobs"),
        pytest.param(
            ["optimization-jobs/rbac.yaml"],
            {"optimizationJobs": {"enabled": True, "crd": False}},
            id="their rights alone",
        ),
    ],
)
def test_helm_gives_what_a_further_component_gives(tmp_path: Path, added: Iterable[str], values: Json) -> None:
    standalone = yaml.safe_load((ROOT / "manifests" / "installs" / "standalone" / "kustomization.yaml").read_text())
    for kind in ("resources", "components"):
        standalone[kind] = [str(COMPONENTS / Path(path).name) for path in standalone[kind]]
    for path in added:
        kind = "components" if path == "server-token" else "resources"
        standalone[kind].append(str(COMPONENTS / path))
    for kind in ("resources", "components"):
        standalone[kind] = [os.path.relpath(path, tmp_path) for path in standalone[kind]]
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(standalone))
    command = ["kubectl", "kustomize", "--load-restrictor=LoadRestrictionsNone", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

    assert rendered(values) == {key: obj for key, obj in by_key(done.stdout).items() if key[1] != "Namespace"}


@needs_helm
@pytest.mark.parametrize("install", INSTALLS)
def test_all_of_it_is_in_the_namespace_of_the_release(install: str) -> None:
    elsewhere = json.dumps(list(rendered(INSTALLS[install], "--namespace=my-tuning").values()))
    here = json.dumps(list(rendered(INSTALLS[install]).values()))

    assert "my-tuning" in elsewhere
    assert elsewhere.replace("my-tuning", "kubeflow") == here


@needs_helm
def test_what_holds_experiments_and_readings_is_kept_by_default() -> None:
    policy = "helm.sh/resource-policy"
    kept = {
        key[1:]
        for key, obj in by_key(template({**POSTGRES, "optimizationJobs": {"enabled": True}}).stdout).items()
        if obj["metadata"].get("annotations", {}).get(policy) == "keep"
    }

    definitions = ("experiments.kubeflow.org", "suggestions.kubeflow.org", "trials.kubeflow.org")
    assert kept == {
        ("Secret", "katib-db-manager-key"),
        ("PersistentVolumeClaim", "katib-postgres"),
        *(("CustomResourceDefinition", name) for name in (*definitions, "optimizationjobs.trainer.kubeflow.org")),
    }


@needs_helm
def test_images_come_from_one_registry_with_their_tags() -> None:
    values = {
        "registry": "registry.example.com:5000/team",
        "tag": "1.0",
        "tags": {"suggestion": "2.0"},
        "pullPolicy": "Always",
        "pullSecrets": [{"name": "ours"}],
    }
    objects = rendered({"image": values})
    config = yaml.safe_load(objects["v1", "ConfigMap", "katib-config"]["data"]["katib-config.yaml"])["runtime"]

    prefix = "registry.example.com:5000/team/katib"
    ours = ("controller:1.0", "db-manager:1.0", "early-stopping:1.0", "metrics-collector:1.0", "suggestion:2.0")
    assert images(objects) == {f"{prefix}/{name}" for name in ours}
    assert {entry["imagePullPolicy"] for entries in config.values() for entry in entries} == {"Always"}
    for _, kind, name in objects:
        if kind == "Deployment":
            pod = deployment(objects, name)["template"]["spec"]
            assert pod["imagePullSecrets"] == [{"name": "ours"}]
            assert {container["imagePullPolicy"] for container in pod["containers"]} == {"Always"}


@needs_helm
def test_entries_of_the_configuration_are_added_or_stand_for_those_of_their_name() -> None:
    values: Json = {
        "suggestions": [
            {"algorithmName": "mine", "address": "mine.team:6789"},
            {"algorithmName": "tpe", "image": "example.com/tpe:1"},
        ],
        "metricsCollectors": [{"kind": "Push", "sendsToken": False}],
        "init": {"controller": {"refusedPodPatienceSeconds": 5}},
    }
    before, after = (
        yaml.safe_load(rendered(given)["v1", "ConfigMap", "katib-config"]["data"]["katib-config.yaml"])
        for given in ({}, {"config": values})
    )
    entries = {entry["algorithmName"]: entry for entry in after["runtime"]["suggestions"]}

    read_configuration(KatibConfig, yaml.safe_dump(after), "katib-config.yaml")
    assert [entries[one["algorithmName"]] for one in values["suggestions"]] == values["suggestions"]
    assert len(entries) == len(after["runtime"]["suggestions"]) == len(before["runtime"]["suggestions"]) + 1
    assert after["runtime"]["earlyStoppings"] == before["runtime"]["earlyStoppings"]
    assert after["runtime"]["metricsCollectors"][0]["kind"] == "Push"
    assert after["init"]["controller"] == {**before["init"]["controller"], "refusedPodPatienceSeconds": 5}


@needs_helm
@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("controller", "katib-controller"),
        ("dbManager", "katib-db-manager"),
        ("server", "katib-server"),
        ("postgres", "katib-postgres"),
        ("mysql", "katib-mysql"),
    ],
)
def test_pods_have_the_size_and_the_place_that_values_give(part: str, name: str) -> None:
    place: Json = {
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "system", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    }
    is_database = part in {"postgres", "mysql"}
    given = {**place, "resources": {"limits": {"memory": "3Gi"}}, **({} if is_database else {"replicas": 3})}
    database = part if is_database else "postgres"
    values: Json = {"database": database, database: {"password": "x"}}
    spec = deployment(rendered({**values, part: {**values.get(part, {}), **given}}), name)
    pod = spec["template"]["spec"]

    assert spec["replicas"] == given.get("replicas", 1)
    assert pod["nodeSelector"] == place["nodeSelector"]
    assert pod["tolerations"] == place["tolerations"]
    assert pod["affinity"].items() >= place["affinity"].items()  # the default of the controller is kept
    assert pod["containers"][0]["resources"]["limits"]["memory"] == "3Gi"
    assert pod["containers"][0]["resources"]["requests"]["memory"]  # the default: others are kept


@needs_helm
def test_a_secret_of_the_user_stands_for_the_one_of_the_chart() -> None:
    objects = rendered({"database": "postgres", "postgres": {"existingSecret": "ours", "storageClassName": "fast"}})
    text = json.dumps(deployment(objects, "katib-db-manager")) + json.dumps(deployment(objects, "katib-postgres"))

    assert [name for _, kind, name in objects if kind == "Secret"] == ["katib-db-manager-key", "katib-webhook-cert"]
    assert text.count('{"name": "ours", "key": "POSTGRES_PASSWORD"}') == 1
    assert '"secretRef": {"name": "ours"}' in text
    assert "katib-postgres-secrets" not in text
    assert objects["v1", "PersistentVolumeClaim", "katib-postgres"]["spec"]["storageClassName"] == "fast"


@needs_helm
def test_a_chart_may_have_this_one_as_a_part() -> None:
    assert template({"global": {"anything": 1}}).returncode == 0


@needs_helm
@pytest.mark.parametrize(
    ("values", "line"),
    [
        pytest.param(
            {"database": "foo"},
            "- at '/database': value must be one of 'sqlite', 'postgres', 'mysql', 'external'",
            id="a database that there is not",
        ),
        pytest.param({"controler": {}}, "- at '': additional properties 'controler' not allowed", id="unknown"),
        pytest.param(
            {"controller": {"replica": 2}},
            "- at '/controller': additional properties 'replica' not allowed",
            id="unknown in a section",
        ),
        pytest.param(
            {"controller": {"replicas": "two"}},
            "- at '/controller/replicas': got string, want integer",
            id="a count that is text",
        ),
        pytest.param(
            {"controller": {"replicas": 0}}, "- at '/controller/replicas': minimum: got 0, want 1", id="no replica"
        ),
        pytest.param(
            {"database": "postgres"},
            "postgres.password: missing; set it, or name a Secret in postgres.existingSecret",
            id="a database without a password",
        ),
        pytest.param(
            {"postgres": {"password": "x"}},
            "postgres: is set, but database is sqlite; set database to postgres, or remove it",
            id="a password of another database",
        ),
        pytest.param(
            {"database": "mysql", "mysql": {"password": "x", "existingSecret": "y"}},
            "mysql.password: is set, and so is mysql.existingSecret; remove one of them",
            id="two passwords",
        ),
        pytest.param(
            {"database": "external"},
            "external.existingSecret: missing; name a Secret with keys as in manifests/installs/external-db",
            id="a database of the user without a Secret",
        ),
        pytest.param(
            {"dbManager": {"replicas": 2}},
            "dbManager.replicas: 2 with database sqlite, whose file has one writer; set 1, or choose another database",
            id="two writers of a file",
        ),
    ],
)
def test_a_mistake_in_the_values_is_named(values: Json, line: str) -> None:
    done = template(values)

    assert done.returncode != 0
    assert [text for text in done.stderr.splitlines() if text.endswith(line)], done.stderr


@needs_helm
def test_a_cluster_that_is_too_old_is_refused() -> None:
    done = template({}, "--kube-version=1.31.0")

    assert done.returncode != 0
    assert "kubeVersion: >=1.32.0-0" in done.stderr
    assert template({}, "--kube-version=v1.32.5-gke.100").returncode == 0
