"""Programs in pods whose images have nothing but them, with what reaches them and what becomes of their output."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from tests.support.images import archive
from tests.support.launcher import compile_static
from tests.support.pod_cluster import PodCluster, Room, condition_of, experiment, python_job, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

IMAGE = "docker.io/katib-tests/static:1"
PROGRAM = r"""
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int count, char **words) {
    printf("a.b=%s, c-d=%s\n", getenv("a.b"), getenv("c-d"));
    printf("loss=%s\n", count > 1 ? words[1] : "none");
    fflush(stdout);
    fprintf(stderr, "to the other stream\n");
    if (count > 2 && strcmp(words[2], "kill") == 0)
        raise(9);
    return count > 2 ? atoi(words[2]) : 0;
}
"""


@pytest.fixture(scope="module")
def image(cluster: PodCluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Bring an image of one static program to the node; only that of the toolkit can be given one."""
    socket = cluster.kubeconfig.parent / "run" / "containerd.sock"
    if not socket.exists():
        pytest.skip(f"images can be given to the toolkit's node only: {socket} is not there")
    place = tmp_path_factory.mktemp("image")
    (place / "program.c").write_text(PROGRAM)
    compile_static(place / "program.c", place / "program")
    content = archive(IMAGE, {"program": place / "program"}, entrypoint=["/program"])
    importing = ["ctr", "--address", str(socket), "--namespace", "k8s.io", "images", "import", "-"]
    subprocess.run(importing, input=content, capture_output=True, check=True)
    return IMAGE


def static_job(image: str, *words: str, **container: Any) -> dict[str, Any]:
    variables = [{"name": "a.b", "value": "1"}, {"name": "c-d", "value": "2"}]
    only = {"name": "training-container", "image": image, "imagePullPolicy": "Never", "env": variables, **container}
    pod = {"restartPolicy": "Never", "containers": [{**only, "command": ["/program", *words]}]}
    return {"apiVersion": "batch/v1", "kind": "Job", "spec": {"backoffLimit": 0, "template": {"spec": pod}}}


def pods_of(room: Room) -> list[dict[str, Any]]:
    return [pod for pod in room.pods() if "job-name" in pod["metadata"].get("labels", {})]


def logs(room: Room) -> str:
    (pod,) = pods_of(room)
    return room.cluster.run("logs", pod["metadata"]["name"], "-n", room.namespace)


def test_an_image_of_one_static_program_is_tuned_and_its_log_has_its_output(room: Room, image: str) -> None:
    job = static_job(image, "${trialParameters.lr}")
    room.apply(experiment("static", job, trials=1, parallel=1, template={"retain": True}))

    best, other = room.ended("static")["status"]["currentOptimalTrial"], "to the other stream"
    value = best["parameterAssignments"][0]["value"]
    assert [metric["latest"] for metric in best["observation"]["metrics"]] == [value]
    found = logs(room).splitlines()
    assert [line for line in found if line != other][:2] == ["a.b=1, c-d=2", f"loss={value}"]
    assert other in found  # the order of two streams is chance


@pytest.mark.parametrize(
    ("end", "code"),
    [("3", "exit code 3"), ("137", "exit code 137"), ("kill", "exit code 137")],
    ids=["3", "137", "kill"],
)
def test_the_exit_code_of_a_program_is_the_container_s(room: Room, image: str, end: str, code: str) -> None:
    job = static_job(image, "0.5", end)
    job["spec"]["template"]["spec"]["containers"][0]["env"].append({"name": "lr", "value": "${trialParameters.lr}"})
    room.apply(experiment("fails", job, trials=1, parallel=1, template={"retain": True}))

    room.ended("fails", state="Failed")

    (trial,) = room.trials("fails")
    assert code in condition_of(trial, "Failed")["message"]


def test_a_pod_that_is_deleted_has_its_program_asked_to_end(room: Room) -> None:
    script = (
        "import signal, sys, time\n"
        "def end(*_):\n    print('loss=0.1', flush=True); time.sleep(1); sys.exit(3)\n"
        "signal.signal(signal.SIGTERM, end)\nprint('loss=0.5', flush=True)\ntime.sleep(600)"
    )
    job = python_job(script)
    job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 20
    room.apply(experiment("asked", job, trials=1, parallel=1))
    pod = wait_for(lambda: next((p for p in pods_of(room) if p["status"].get("phase") == "Running"), None), "its pod")
    log = ("logs", "-f", pod["metadata"]["name"], "-n", room.namespace)
    wait_for(lambda: "loss=0.5" in room.cluster.run(*log[:1], *log[2:], check=False), "its first line")
    following = subprocess.Popen(
        ["kubectl", f"--kubeconfig={room.cluster.kubeconfig}", *log], stdout=subprocess.PIPE, text=True
    )
    room.cluster.run("delete", "pod", pod["metadata"]["name"], "-n", room.namespace, "--wait=false")

    assert following.communicate(timeout=120)[0].splitlines() == ["loss=0.5", "loss=0.1"]
