"""OptimizationJobs on one machine, by kubectl and by `katib run`: the program posts the status of a TrainJob."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cli import katib, katib_json
from tests.support.golden import Golden
from tests.support.kube import NO_KUBECTL, Kubectl, World, kube_world, kubectls
from tests.support.waiting import eventually, never

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "jobs" / "optimizationjob"
JOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/optimizationjobs"
EXPERIMENT = "/apis/kubeflow.org/v1beta1/namespaces/default/experiments/optimizationjob"

Json = dict[str, Any]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with kube_world(tmp_path, starts=True) as made:
        yield made


def a_job(**spec: Any) -> Json:
    """Return the example; its program is found wherever this runs."""
    job: Json = yaml.safe_load((EXAMPLE / "job.yaml").read_text())
    job["metadata"]["annotations"]["katib.kubeflow.org/workspace"] = str(EXAMPLE)
    job["spec"] |= spec
    return job


def ended_with(world: World, *types: str) -> Json | None:
    found: Json = world.http.get(f"{JOBS}/optimizationjob").json()
    return found if any(one["type"] in types for one in found.get("status", {}).get("conditions", ())) else None


def ended(world: World) -> Json | None:
    return ended_with(world, "Complete", "Failed")


@pytest.mark.slow
@pytest.mark.skipif(not kubectls(), reason=NO_KUBECTL)
def test_kubectl_runs_one_to_its_result(world: World, tmp_path: Path) -> None:
    kubectl = Kubectl(kubectls()[0], world.server.kubeconfig, tmp_path)
    text = yaml.safe_dump(a_job(objectives=[{"metric": "loss", "direction": "minimize"}]))
    applied = [kubectl("apply", "-f", "-", text=text).split()[-1] for _ in range(2)]
    kubectl("wait", "--for=condition=Complete", "optimizationjob/optimizationjob", "--timeout=60s")
    job = world.http.get(f"{JOBS}/optimizationjob").json()
    best = world.http.get(EXPERIMENT).json()["status"]["currentOptimalTrial"]
    refused = kubectl.run(
        "patch", "optimizationjob", "optimizationjob", "--type=merge", "-p", '{"spec":{"numTrials":7}}'
    )
    explained = kubectl("explain", "optimizationjob.spec.parameters.searchSpace")
    described = kubectl("describe", "optimizationjob", "optimizationjob")

    assert applied[0] == "created"
    assert job["status"]["conditions"][-1]["reason"] == "MaxTrialsReached"
    assert set(job["status"]["conditions"][-1]) == {"type", "status", "reason", "message", "lastTransitionTime"}
    assert job["status"]["result"] == {
        "trainJobName": best["bestTrialName"],
        "parameters": best["parameterAssignments"],
    }
    assert "it cannot be changed" in refused.stderr
    assert all(word in explained for word in ("uniform", "logUniform", "categorical"))
    assert "MaxTrialsReached" in described
    kubectl("delete", "optimizationjob", "optimizationjob")
    eventually(lambda: kubectl("get", "experiments,trials,trainjobs", "-o", "name") == "")


def test_the_value_of_a_trial_is_the_last_one(world: World) -> None:
    world.http.post(JOBS, json=a_job(numTrials=1, parallelTrials=1)).raise_for_status()
    job = eventually(lambda: ended(world))
    best = world.http.get(EXPERIMENT).json()["status"]["currentOptimalTrial"]
    (metric,) = best["observation"]["metrics"]

    assert job["status"]["conditions"][-1]["type"] == "Complete"
    assert metric["latest"] == metric["min"] != metric["max"]


def test_a_deleted_experiment_ends_its_job(world: World) -> None:
    world.http.post(JOBS, json=a_job()).raise_for_status()
    eventually(lambda: world.http.get(f"{JOBS}/optimizationjob").json().get("status"))
    world.http.delete(EXPERIMENT).raise_for_status()
    job = eventually(lambda: ended(world))

    assert job["status"]["conditions"][-1]["reason"] in {"ExperimentDeleted", "MaxTrialsReached"}


WAITING = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.02)\nprint('loss=1')"


def test_a_job_starts_nothing_while_it_is_suspended(world: World, tmp_path: Path) -> None:
    def patch(suspend: bool) -> None:
        world.http.patch(
            f"{JOBS}/optimizationjob",
            json={"spec": {"suspend": suspend}},
            headers={"Content-Type": "application/merge-patch+json"},
        ).raise_for_status()

    def suspended() -> str:
        found = world.http.get(f"{JOBS}/optimizationjob").json().get("status", {}).get("conditions", ())
        return next((one["status"] for one in found if one["type"] == "Suspended"), "")

    def pods() -> list[str]:
        found = world.http.get("/api/v1/namespaces/default/pods").json()["items"]
        return [one["metadata"]["name"] for one in found if one["status"].get("phase") == "Running"]

    job = a_job(numTrials=2, parallelTrials=1, suspend=True)
    job["metadata"]["annotations"]["katib.kubeflow.org/workspace"] = str(tmp_path)
    job["spec"]["trainJobTemplate"]["spec"]["trainer"]["command"] = ["python", "-c", WAITING]
    world.http.post(JOBS, json=job).raise_for_status()
    eventually(lambda: suspended() == "True")
    assert world.http.get(EXPERIMENT).status_code == 404
    patch(suspend=False)
    eventually(pods, "the program of a trial")
    assert suspended() == "False"
    patch(suspend=True)
    eventually(lambda: suspended() == "True" and not pods(), "the program to end")
    (tmp_path / "go").touch()
    never(pods)
    patch(suspend=False)

    done = eventually(lambda: ended_with(world, "Complete"))
    assert {one["type"]: one["status"] for one in done["status"]["conditions"]} == {
        "Suspended": "False",
        "Created": "True",
        "Complete": "True",
    }


def test_a_job_of_another_controller_is_left_alone(world: World, tmp_path: Path, golden: Golden) -> None:
    world.http.post(JOBS, json=a_job(managedBy="example.com/tuner")).raise_for_status()
    events = "/api/v1/namespaces/default/events"
    found = eventually(lambda: [one for one in world.http.get(events).json()["items"] if one["reason"] == "LeftAlone"])
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(a_job(managedBy="example.com/tuner", suspend=True)))
    refused = katib("validate", "job.yaml", cwd=tmp_path)

    golden(found[0]["message"])
    assert world.http.get(EXPERIMENT).status_code == 404
    assert "status" not in world.http.get(f"{JOBS}/optimizationjob").json()
    assert 'spec.managedBy: "example.com/tuner" ' in refused.stderr
    assert "spec.suspend: " in refused.stderr


def test_an_experiment_of_another_is_left_alone(world: World) -> None:
    experiment = {"apiVersion": "kubeflow.org/v1beta1", "kind": "Experiment", "metadata": {"name": "optimizationjob"}}
    spec: Json = {
        "objective": {"type": "minimize", "objectiveMetricName": "loss"},
        "parameters": [{"name": "x", "parameterType": "double", "feasibleSpace": {"min": "0", "max": "1"}}],
    }
    world.http.post(EXPERIMENT.rpartition("/")[0], json={**experiment, "spec": spec}).raise_for_status()
    world.http.post(JOBS, json=a_job()).raise_for_status()
    eventually(lambda: "not of this job" in str(world.http.get(f"{JOBS}/optimizationjob").json().get("status")))
    world.http.delete(f"{JOBS}/optimizationjob").raise_for_status()

    assert world.http.get(EXPERIMENT).status_code == 200


def test_what_is_wrong_is_said_with_the_paths_of_the_job(world: World) -> None:
    job = a_job(parallelTrials=9)
    job["spec"]["trainJobTemplate"]["spec"]["trainer"]["numNodes"] = 0
    counted = world.http.post(JOBS, json=job)
    job["spec"]["parallelTrials"] = 1
    checked = world.http.post(JOBS, json=job)
    fields = [cause["field"] for one in (counted, checked) for cause in one.json()["details"]["causes"]]

    assert (counted.status_code, checked.status_code) == (422, 422)
    assert fields == ["spec.parallelTrials", "spec.trainJobTemplate.spec.trainer.numNodes"]


def test_katib_run_runs_a_file_and_keeps_the_object(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "here")
    done = katib("run", "here/job.yaml", "-q", cwd=tmp_path)
    again = katib("run", "here/job.yaml", "-q", "--more", "1", cwd=tmp_path)
    best = katib_json("best", "optimizationjob", cwd=tmp_path)
    with kube_world(tmp_path / ".katib", starts=False) as world:
        job = world.http.get(f"{JOBS}/optimizationjob").json()

    assert (done.returncode, again.returncode) == (0, 0), done.stderr + again.stderr
    assert best["metadata"]["name"].startswith("optimizationjob-")
    assert [one["type"] for one in job["status"]["conditions"]] == ["Created", "Complete"]
    assert job["spec"]["searchAlgorithm"] == {"random": {}}


def test_a_warm_start_of_one_is_refused(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "here")
    (tmp_path / "earlier.csv").write_text("x,kernel,loss\n1,linear,0.5\n")
    done = katib("run", "here/job.yaml", "--warm-start", "earlier.csv", cwd=tmp_path)

    assert done.returncode == 2
    assert "OptimizationJob" in done.stderr
