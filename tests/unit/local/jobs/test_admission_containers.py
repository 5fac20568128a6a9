from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest

from katib.places.machine.admission import HostCapacity, check_job
from tests.support.admission import (
    HOST,
    PATH,
    a_job,
    a_job_with_volume,
    check,
    errors_of,
    notices_of,
    places_of,
    with_volume,
)
from tests.support.golden import Golden

ROOT = dataclasses.replace(HOST, user_id=0, group_id=0)

# --- containers -----------------------------------------------------------------------------------------

CONTAINER = "spec.template.spec.containers[0]"


def test_a_container_without_command_is_refused(golden: Golden) -> None:
    golden(errors_of(a_job(command=None, args=["--lr=1"])))


@pytest.mark.parametrize("program", ["no-such-program", "/opt/no/such/program"])
def test_a_command_that_this_machine_lacks_is_refused(program: str, golden: Golden) -> None:
    golden(errors_of(a_job(command=[program])))


@pytest.mark.parametrize("program", ["train.sh", "./runs", "~/train.sh", "\u201c./train.sh"])
def test_a_program_that_is_meant_otherwise_than_it_is_written_says_how_to_write_it(
    tmp_path: Path, program: str, golden: Golden
) -> None:
    (tmp_path / "train.sh").touch(0o755)
    (tmp_path / "runs").mkdir()
    errors, _ = check_job(a_job(command=[program]), PATH, host=HOST, workspace=tmp_path)

    golden(errors)


@pytest.mark.parametrize(
    "container",
    [
        {"command": [sys.executable]},
        {"command": ["sh"]},
        {"command": ["${trialParameters.program}"]},
        {"command": ["$(PROGRAM)"]},
        {"command": ["./train.sh"]},
        {"command": ["python", "-c", "/no/such"]},
        {"command": ["python", "-m", "no.such"]},
        {"command": ["python", "-u", "train.py"]},
        {"command": ["sh", "-ec", "/no/such"]},
        {"command": ["python"], "args": ["${trialParameters.script}"]},
        {"command": ["python", "-W", "/no/such"]},
        {"command": ["python", "-", "/no/such"]},
        {"command": ["bash", "-o", "/no/such"]},
        {"command": ["sh", "-s", "/no/such"]},
        {"command": ["env", "/no/such"]},
    ],
)
def test_only_what_is_known_before_a_trial_is_looked_for(container: dict[str, Any]) -> None:
    assert check(a_job(**container)) == ([], [])


def test_the_path_of_the_container_counts(tmp_path: Path) -> None:
    program = tmp_path / "train"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)

    assert check(a_job(command=["train"], env=[{"name": "PATH", "value": str(tmp_path)}])) == ([], [])
    assert places_of(a_job(command=["train"])) == [(f"{CONTAINER}.command[0]", "command-not-found")]


def test_a_file_that_is_not_executable_is_refused(tmp_path: Path, golden: Golden) -> None:
    (tmp_path / "train it.sh").write_text("echo\n")
    (tmp_path / "train it.sh").chmod(0o644)

    golden(errors_of(a_job(command=["./train it.sh"], workingDir=str(tmp_path))))


def test_a_line_in_place_of_words_is_refused(golden: Golden) -> None:
    golden(errors_of(a_job(command=["python train.py"])))


@pytest.mark.parametrize(
    ("command", "args"),
    [
        (["python3", "/opt/mnist/mnist.py"], []),
        (["python3", "-u"], ["/opt/mnist/mnist.py", "--lr=1"]),
        (["python"], ["mnist.py"]),
    ],
    ids=["command", "args", "relative"],
)
def test_a_script_that_only_the_image_has_is_refused(
    command: list[str], args: list[str], tmp_path: Path, golden: Golden
) -> None:
    golden(errors_of(a_job(command=command, args=args, workingDir=str(tmp_path))))


@pytest.mark.parametrize(("folder", "remedy"), [("", "write ../train.py"), ("work/src", "write src/train.py")])
def test_a_script_in_a_folder_nearby_is_named(tmp_path: Path, folder: str, remedy: str) -> None:
    (tmp_path / "work" / "src").mkdir(parents=True)
    (tmp_path / folder / "train.py").write_text("")
    [error] = errors_of(a_job(command=["python", "train.py"], workingDir=str(tmp_path / "work")))

    assert error.endswith(f"; {remedy}")


@pytest.mark.parametrize(
    ("fields", "place", "origin"),
    [
        ({"workingDir": "/no/such/directory"}, "workingDir", "working-directory-missing"),
        ({"resources": {"limits": {"nvidia.com/gpu": 2}}}, "resources", "pod-resources"),  # a limit is a request
        ({"resources": {"requests": {"cpu": "two"}}}, "resources.requests.cpu", "pod-quantity"),
        *(({"command": [word]}, "command[0]", "command-not-found")
          for word in ("a" * 5000, "/" + "a" * 5000, "/a\0b", "\0")),
    ],
    ids=["directory", "limit", "quantity", "long", "long-path", "nul", "nul-name"],
)  # fmt: skip
def test_what_no_container_can_have_is_refused_where_it_stands(fields: dict[str, Any], place: str, origin: str) -> None:
    assert places_of(a_job(**fields)) == [(f"{CONTAINER}.{place}", origin)]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"fieldRef": {"fieldPath": "metadata.name"}}, []),
        ({"fieldRef": {"fieldPath": "metadata.labels['a.io/b']"}}, []),
        ({"fieldRef": {"fieldPath": "metadata.label"}}, [("valueFrom.fieldRef.fieldPath", "env-field-path")]),
        ({"resourceFieldRef": {"resource": "limits.cpu"}}, []),
        ({"resourceFieldRef": {"resource": "limits.gpu"}}, [("valueFrom.resourceFieldRef.resource", "env-resource")]),
        ({"secretKeyRef": {"name": "s", "key": "k"}}, []),
        ({"configMapKeyRef": {"key": "k"}, "secretKeyRef": {"key": "k"}}, [("", "env-source")]),
        ({"fileKeyRef": {"key": "k"}}, [("valueFrom.fileKeyRef", "job-field-unsupported")]),
    ],
)
def test_values_of_the_environment_need_a_source_that_exists(entry: dict[str, Any], expected: list[Any]) -> None:
    place = f"{CONTAINER}.env[0]"

    assert places_of(a_job(env=[{"name": "N", "valueFrom": entry}])) == [
        (f"{place}.{path}" if path else place, origin) for path, origin in expected
    ]


@pytest.mark.parametrize(
    ("context", "host", "expected"),
    [
        ({"runAsUser": 1000, "runAsGroup": 1000, "runAsNonRoot": True}, HOST, []),
        ({"runAsUser": 0}, HOST, ["runAsUser"]),
        ({"runAsGroup": 0}, HOST, ["runAsGroup"]),
        ({"runAsUser": 0}, ROOT, []),
        ({"runAsNonRoot": True}, ROOT, ["runAsNonRoot"]),
        ({"privileged": True}, HOST, ["privileged"]),
        ({"privileged": False}, HOST, []),
        ({"capabilities": {"add": ["SYS_ADMIN"]}}, HOST, ["capabilities.add"]),
    ],
)
def test_no_process_gets_other_rights_than_the_engine(
    context: dict[str, Any], host: HostCapacity, expected: list[str]
) -> None:
    paths = [path for path, _ in places_of(a_job(securityContext=context), host)]

    assert paths == [f"{CONTAINER}.securityContext.{field}" for field in expected]


@pytest.mark.parametrize(
    ("requests", "error"),
    [
        ({"cpu": 2, "memory": "4Gi", "nvidia.com/gpu": "1"}, None),
        ({"cpu": "${trialParameters.n}"}, None),
        ({"nvidia.com/gpu": 8}, "needs 8 GPU, this machine has 1"),
        ({"cpu": "2500m"}, "needs 2.5 CPU, this machine has 2"),
        ({"memory": "8Gi"}, "needs 8.0 GiB of memory, this machine has 4.0 GiB"),
        ({"amd.com/gpu": 1, "nvidia.com/gpu": 1}, "needs 2 GPU, this machine has 1"),
        ({"example.com/fpga": 1}, "needs 1 example.com/fpga, this machine has 0"),
    ],
)
def test_more_than_the_machine_has_is_refused(requests: dict[str, Any], error: str | None) -> None:
    remedy = "request less, or submit the experiment to Kubernetes"

    errors = errors_of(a_job(resources={"requests": requests}))

    assert errors == ([f"{CONTAINER}.resources: {error}; {remedy}"] if error else [])


def test_containers_of_a_pod_run_together_and_init_containers_before_them() -> None:
    def container(name: str, cpu: str) -> dict[str, Any]:
        return {"name": name, "command": ["sh"], "resources": {"requests": {"cpu": cpu}}}

    fits = a_job(
        pod={"containers": [container("a", "1"), container("b", "1")], "initContainers": [container("c", "2")]}
    )
    exceeds = a_job(pod={"containers": [container("a", "1"), container("b", "1.5")]})

    assert errors_of(fits) == []
    assert places_of(exceeds) == [("spec.template.spec.resources", "pod-resources")]


# --- volumes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source", [{"emptyDir": {}}, {"configMap": {"name": "c"}}, {"secret": {"secretName": "s"}}],
    ids=["emptyDir", "configMap", "secret"],
)  # fmt: skip
@pytest.mark.parametrize(
    "container",
    [
        {"command": ["sh", "/data/run.sh"]},
        {"command": ["sh"], "args": ["--out=/data"]},
        {"env": [{"name": "DATA", "value": "/data"}]},
        {"workingDir": "/data"},
    ],
    ids=["command", "args", "env", "workingDir"],
)
def test_a_volume_whose_path_is_written_down_works(source: dict[str, Any], container: dict[str, Any]) -> None:
    (notice,) = notices_of(with_volume(source, "/data/", **container))

    assert notice.startswith(f"{CONTAINER}.volumeMounts[0].mountPath: ")


@pytest.mark.parametrize(
    ("source", "path", "args"),
    [
        ({"emptyDir": {}}, "/no/such/data", []),
        ({"configMap": {"name": "c"}}, "/no/such/data", []),
        ({"emptyDir": {}}, "/no", ["/my/no", "/nothing"]),
    ],
    ids=["emptyDir", "configMap", "inside another path"],
)
def test_a_volume_that_only_the_program_knows_cannot_be_provided(
    source: dict[str, Any], path: str, args: list[str]
) -> None:
    assert places_of(with_volume(source, path, args=args)) == [
        (f"{CONTAINER}.volumeMounts[0].mountPath", "volume-unreachable")
    ]


def test_an_empty_directory_may_be_one_that_every_machine_has(tmp_path: Path, golden: Golden) -> None:
    golden(notices_of(with_volume({"emptyDir": {"medium": "Memory"}}, str(tmp_path))))


@pytest.mark.parametrize(
    "source",
    [{"persistentVolumeClaim": {"claimName": "c"}}, {"csi": {"driver": "d"}}, {"nfs": {"path": "/", "server": "s"}}],
    ids=["claim", "csi", "nfs"],
)
def test_other_volumes_are_refused(source: dict[str, Any]) -> None:
    place = f"spec.template.spec.volumes[0].{next(iter(source))}"

    assert places_of(with_volume(source, "/data", command=["sh", "/data"])) == [(place, "job-field-unsupported")]


def test_a_mount_needs_its_volume_and_a_path_without_variables_and_a_volume_its_source() -> None:
    mounts = [{"name": "w", "mountPath": "/data"}]
    job = a_job_with_volume({"emptyDir": {}}, [{"name": "v", "mountPath": "/d", "subPathExpr": "s"}], {"args": ["/d"]})

    assert places_of(a_job_with_volume({}, mounts, {})) == [
        ("spec.template.spec.volumes[0]", "volume-source-missing"),
        (f"{CONTAINER}.volumeMounts[0].name", "volume-unknown"),
    ]
    assert places_of(job) == [(f"{CONTAINER}.volumeMounts[0].subPathExpr", "job-field-unsupported")]


def test_a_path_of_this_machine_needs_no_replacement(tmp_path: Path) -> None:
    host_path = {"hostPath": {"path": str(tmp_path)}}

    assert check(with_volume(host_path, str(tmp_path))) == ([], [])
    assert places_of(with_volume(host_path, "/no/such/data")) == [
        (f"{CONTAINER}.volumeMounts[0].mountPath", "volume-unreachable")
    ]
    assert places_of(with_volume({"hostPath": {"path": "/no/such"}}, "/data", args=["/data"])) == [
        ("spec.template.spec.volumes[0].hostPath.path", "volume-host-path-missing")
    ]


def test_names_of_services_lead_nowhere(golden: Golden) -> None:
    golden(notices_of(a_job(args=["--master=job-0.job.default.svc.cluster.local"])))


@pytest.mark.parametrize("amount", ["1e999999999", "1e300", 1e300, "9" * 30, -1])
def test_an_absurd_quantity_is_refused_in_few_words(amount: object) -> None:
    errors = errors_of(a_job(resources={"requests": {"memory": amount}}))

    assert len(errors) == 1
    assert len(errors[0]) < 200


def test_relative_paths_start_at_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("")

    def check_there(**container: Any) -> list[str]:
        errors, _ = check_job(a_job(**container), PATH, host=HOST, workspace=tmp_path)
        return [e.origin for e in errors]

    assert check_there(command=["python", "src/train.py"]) == []
    assert check_there(command=["python", "train.py"]) == ["command-not-found"]
    assert check_there(command=["python", "train.py"], workingDir="src") == []
    assert check_there(command=["./train.sh"]) == ["command-not-found"]
    assert check_there(workingDir="data") == ["working-directory-missing"]


@pytest.mark.parametrize(
    ("command", "origin", "remedy"),
    [
        pytest.param(["train.py"], "command-not-found", "python train.py", id="a script alone"),
        pytest.param(["python", "trian.py"], "command-not-found", "did you mean train.py?", id="misspelt"),
        pytest.param(["python", "a.ipynb"], "command-not-executable", "jupyter nbconvert", id="a notebook"),
    ],
)
def test_the_file_of_the_workspace_that_was_meant_is_named(
    tmp_path: Path, command: list[str], origin: str, remedy: str
) -> None:
    for name in ("train.py", "a.ipynb"):
        (tmp_path / name).touch()

    (error,), _ = check_job(a_job(command=command), PATH, host=HOST, workspace=tmp_path)

    assert error.origin == origin
    assert remedy in error.remedy


def test_what_an_init_container_may_write_is_not_looked_for() -> None:
    late = {"name": "training", "command": ["python", "/no/such.py"], "workingDir": "/no/such"}
    first = {"name": "fetch", "command": ["sh", "-c", "make /no/such"]}

    assert places_of(a_job(pod={"initContainers": [first], "containers": [late]})) == []
    assert places_of(a_job(pod={"initContainers": [first], "containers": [{**late, "command": ["no-such"]}]})) == [
        (f"{CONTAINER}.command[0]", "command-not-found")
    ]
