"""What is sent to Slurm and what it prints: options, scripts of pods run by a real shell, lists of jobs, complaints."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from katib.engine.runtime.objects import Kind
from katib.errors import Backoff, InvalidError
from katib.model.types import ExperimentSpec
from katib.places.machine.pods.environment import ContainerCommand
from katib.places.machine.pods.plans import ContainerPlan, ContainerRole, PodPlan
from katib.places.machine.pods.records import Delays
from katib.places.machine.pods.requests import Request
from katib.places.machine.slurm.admission import SlurmGate
from katib.places.machine.slurm.commands import JobState, Slurm, clean_environment, error_text, is_passing, parse_jobs
from katib.places.machine.slurm.script import (
    GeneralOptions,
    annotated_options,
    checked_options,
    environment_of,
    inherits_environment,
    job_options,
    parse_progress,
    pod_script,
    requested_options,
)
from tests.support.experiments import an_experiment, load_experiment

FOLLOWED = "state"
DELAYS = Delays(restart=Backoff(0.01, 0.02))


def container(
    name: str, script: str, role: ContainerRole = ContainerRole.MAIN, env: Mapping[str, str] = {}, **fields: Any
) -> Any:
    command = ContainerCommand(name, ("sh", "-c", script), {"PATH": "/usr/bin:/bin", **env}, "")
    return command, role, fields


def plan(directory: Path, *containers: Any, request: Request = Request(), **fields: Any) -> PodPlan:  # noqa: B008
    plans = tuple(
        ContainerPlan(role, command, directory, **{"restart_on_failure": False, "restart_always": False, **more})
        for command, role, more in containers
    )
    return PodPlan("p-1", None, "u1", {}, directory, plans, 30.0, request, **fields)


def run(wanted: PodPlan) -> tuple[str, list[str]]:
    """Run the script of a pod; return what its first main container printed, and the lines of its state."""
    environment = dict(environment_of(wanted))
    script = pod_script(wanted, wanted.directory / FOLLOWED, DELAYS, environment)
    done = subprocess.run(
        ["/bin/sh", "-s"],
        check=False,
        input=script,
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=20,
    )
    return done.stdout + done.stderr, (wanted.directory / FOLLOWED).read_text().splitlines()


def test_a_program_gets_its_words_its_variables_and_its_directory(tmp_path: Path) -> None:
    odd = 'it\'s a "$HOME" `x` \\ \n é'
    directory = tmp_path / "a dir"
    directory.mkdir()
    printed, state = run(plan(directory, container("main", 'printf "%s" "$A"; pwd; exit 3', env={"A": odd})))

    assert (printed, state) == (f"{odd}{directory}\n", ["0 3", "end"])


def test_init_containers_go_first_and_the_first_that_fails_ends_the_pod(tmp_path: Path) -> None:
    first = container("a", "echo $A > made", ContainerRole.INIT, env={"A": "x y"})
    printed, state = run(plan(tmp_path, first, container("main", "cat made; echo $A", env={"B": "1"})))
    (tmp_path / FOLLOWED).unlink()
    _, failed = run(plan(tmp_path, container("a", "exit 2", ContainerRole.INIT), container("main", "true")))

    assert (printed, state, failed) == ("x y\n\n", ["0 0", "1 0", "end"], ["0 2", "end"])


def test_several_containers_run_together_and_sidecars_end_after_them(tmp_path: Path) -> None:
    sidecar = container(
        "side", "trap 'echo bye; exit' TERM; touch up; while :; do sleep 0.02; done", ContainerRole.SIDECAR
    )
    sidecar[2]["restart_always"] = True
    first = "while ! test -e up -a -e b; do sleep 0.02; done; echo A"
    mains = [container("a", first), container("b", "touch b; exit 4")]
    printed, state = run(plan(tmp_path, sidecar, *mains))

    assert (printed, sorted(state)) == ("A\n", ["1 0", "2 4", "end"])
    assert (tmp_path / "side.log").read_text() == "bye\n"


def test_a_container_that_fails_is_started_again(tmp_path: Path) -> None:
    script = "test -e tried && exit 0; touch tried; exit 1"
    _, state = run(plan(tmp_path, container("main", script, restart_on_failure=True)))

    assert state == ["0 1", "0 0", "end"]


def test_the_second_job_of_a_pod_does_nothing(tmp_path: Path) -> None:
    wanted = plan(tmp_path, container("main", "echo ran >> runs"))
    run(wanted)
    run(wanted)

    assert (tmp_path / "runs").read_text() == "ran\n"


def test_a_state_that_is_being_written_is_read_up_to_its_last_complete_line() -> None:
    found = parse_progress("0 1\n0 0\n2 13\nen")

    assert (found.exits, found.is_over) == ({0: [1, 0], 2: [13]}, False)
    assert parse_progress("0 0\nend\n").is_over


def test_requests_become_options_rounded_up() -> None:
    request = Request(Decimal("1.5"), Decimal(64 * 2**20 + 1), 2)

    assert requested_options(request) == ("--cpus-per-task=2", "--mem=65M", "--gres=gpu:2")
    assert requested_options(Request(), is_one_task=True) == ("--nodes=1", "--ntasks=1")


@pytest.mark.parametrize("win", [False, True])
def test_the_last_of_an_option_given_twice_counts(tmp_path: Path, win: bool) -> None:
    annotations = {"katib.kubeflow.org/slurm-options": "gres=gpu:a100:1 --reservation='a b'"}
    wanted = plan(tmp_path, container("main", "true"), request=Request(gpus=1), annotations=annotations)
    general = GeneralOptions(checked_options(["--partition=gpu", "exclusive"], "x"), win)
    words, own = ["--partition=gpu", "--exclusive"], ["--gres=gpu:a100:1", "--reservation=a b"]
    options = job_options(wanted, "katib:g:u", requested_options(wanted.request), general, [tmp_path / "a%.log"])

    assert options[-5:] == ("--gres=gpu:1", *(own + words if win else words + own))
    assert {"--comment=katib:g:u", "--job-name=p-1", "--no-requeue", f"--output={tmp_path}/a%%.log"} <= set(options)


@pytest.mark.parametrize("text", ["", "-p", "--", "=x", "a b", "--output=x", "array=1-3", "clusters=b"])
def test_what_is_no_option_or_ours_or_not_closed_is_refused(text: str) -> None:
    with pytest.raises(InvalidError, match=r"^--slurm-option: .*; (write|remove|set)"):
        checked_options([text], "--slurm-option")
    with pytest.raises(InvalidError, match=r"metadata.annotations\[katib.kubeflow.org/slurm-options\]"):
        annotated_options({"katib.kubeflow.org/slurm-options": "a='b"}, "metadata")


@pytest.mark.parametrize(
    ("options", "inherits"),
    [("time=5", True), ("export=ALL,A=1", True), ("--export=NONE", False), ("export=A='b c',D", False)],
)
def test_a_pod_starts_from_our_environment_unless_its_options_export_another(options: str, inherits: bool) -> None:
    assert inherits_environment({"katib.kubeflow.org/slurm-options": options}) is inherits


def test_jobs_are_read_whatever_their_comment() -> None:
    jobs = parse_jobs("7|PENDING|Priority||N/A|katib:a:b\n8|OUT_OF_MEMORY|None|n[1-2]|17|a|b\nslurm: odd\n")

    assert jobs == {
        "7": JobState("PENDING", "Priority", "", "katib:a:b"),
        "8": JobState("OUT_OF_MEMORY", "None", "n[1-2]", "a|b", 17),
    }
    assert [state.is_over for state in jobs.values()] == [False, True]


AWAY = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"


@pytest.mark.parametrize(
    ("stderr", "text", "passes"),
    [
        ("sbatch: error: bad: x\nsbatch: error: Batch job submission failed: Invalid\n", "bad: x; Invalid", False),
        (f"{AWAY}\n", AWAY, True),
        ("sbatch: error: Batch job submission failed: Connection reset by peer\n", "Connection reset by peer", True),
        ("", "no reason given", False),
    ],
)
def test_complaints_are_one_line_and_some_pass(stderr: str, text: str, passes: bool) -> None:
    assert (error_text(stderr), is_passing(text)) == (text, passes)


def test_a_job_does_not_inherit_what_slurm_says_of_another() -> None:
    environ = {"SLURM_JOB_ID": "1", "SLURM_CONF": "/c", "SLURM_CLUSTERS": "c", "SBATCH_ACCOUNT": "a", "PATH": "/bin"}

    assert clean_environment(environ) == {
        "SLURM_CONF": "/c",
        "SLURM_CLUSTERS": "c",
        "SBATCH_ACCOUNT": "a",
        "PATH": "/bin",
    }


# --- What is refused before Slurm is asked ----------------------------------------------------------------------------


JOB, TORCH, MPI = (
    Kind("batch/v1", "Job"),
    Kind("kubeflow.org/v1", "PyTorchJob"),
    Kind("kubeflow.org/v2beta1", "MPIJob"),
)


def spec(collector: str) -> ExperimentSpec:
    raw = an_experiment(metricsCollectorSpec={"collector": {"kind": collector}})
    return load_experiment(json.dumps(raw), "x", "default").experiment.spec


@pytest.mark.parametrize(
    ("kind", "collector", "allocation", "origins"),
    [
        (JOB, "StdOut", "7", []),
        (JOB, "Push", "", ["slurm-collector"]),
        (JOB, "Custom", "7", ["slurm-collector"]),
        (MPI, "StdOut", "7", []),
        (TORCH, "StdOut", "7", []),
    ],
)
def test_what_cannot_run_in_slurm_is_refused(
    kind: Kind, collector: str, allocation: str, origins: list[str], tmp_path: Path
) -> None:
    gate = SlurmGate(Slurm({"PATH": str(tmp_path)}), GeneralOptions(), allocation)
    (program := tmp_path / "srun").write_text("#!/bin/sh\n")
    program.chmod(0o755)
    errors, _ = gate.check(kind, [({"spec": {}}, 1)], "spec.trialTemplate.trialSpec", spec(collector))

    assert [error.origin for error in errors] == origins
