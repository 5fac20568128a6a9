from __future__ import annotations

from datetime import timedelta

import pytest

from katib.api.names import WORKSPACE_ANNOTATION
from katib.api.types import Trial
from katib.explaining import Evidence, JobFacts, diagnose_experiment, diagnose_trial
from katib.tuning.service import Diagnosis
from tests.support.tuning import START, condition, make_experiment, make_trial, patched

NOW = START + timedelta(minutes=2)


def failed(cause: str) -> Trial:
    return make_trial("t", condition("Failed", "TrialFailed", f"Trial has failed: {cause}"))


def diagnose(cause: str, *, program: str = "", workspace: str = "", in_image: bool = False) -> Diagnosis:
    experiment = patched(make_experiment(), metadata={"annotations": {WORKSPACE_ANNOTATION: workspace}})
    facts = JobFacts(program=program, in_image=in_image, log_tail=("oops",))
    return diagnose_trial(failed(cause), Evidence(now=NOW, experiment=experiment, jobs={"t": facts}))


def test_the_cause_of_a_failed_trial_is_its_verdict() -> None:
    assert diagnose("KeyError: 3 (exit code 1)").verdict == "t failed: KeyError: 3 (exit code 1)."


@pytest.mark.parametrize("program", ["/usr/bin/python3", "/opt/env/bin/python3.12"])
def test_a_missing_module_names_the_python_that_ran(program: str) -> None:
    remedy = diagnose("ModuleNotFoundError: No module named 'sklearn' (exit code 1)", program=program).remedies[0]

    assert remedy.startswith(f"It ran with {program}. Install the module there")
    assert "activate its environment" in remedy


def test_a_missing_module_of_a_program_that_is_no_python_names_none() -> None:
    remedy = diagnose("ModuleNotFoundError: No module named 'sklearn' (exit code 1)", program="/bin/sh").remedies[0]

    assert "/bin/sh" not in remedy
    assert remedy.startswith("Install the module")


def test_a_missing_file_tells_where_relative_paths_start() -> None:
    cause = "python: can't open file 'train.py': [Errno 2] No such file or directory (exit code 2)"

    assert diagnose(cause, workspace="/home/me").remedies[0].startswith("Relative paths start in /home/me")


def test_a_refused_right_tells_whose_rights_count() -> None:
    cause = "PermissionError: [Errno 13] Permission denied: '/data' (exit code 1)"

    assert "rights of the user who runs katib" in diagnose(cause).remedies[0]


def test_what_another_process_cannot_find_in_the_script_belongs_into_a_module() -> None:
    cause = "_pickle.PicklingError: Can't pickle <function f at 0x7f>: attribute lookup f on __main__ failed"

    assert diagnose(cause).remedies[0].startswith("Put what other processes of the trial need into a module")


@pytest.mark.parametrize(
    ("cause", "remedy"),
    [
        ("ModuleNotFoundError: No module named 'x' (exit code 1)", "Install the module in the image"),
        ("sh: a.txt: No such file or directory (exit code 1)", "Put the file into the image"),
        ("sh: /data: Permission denied (exit code 1)", "Give the container of the template the right to it"),
    ],
)
def test_in_an_image_the_remedy_is_one_for_images(cause: str, remedy: str) -> None:
    assert diagnose(cause, workspace="/home/me", in_image=True).remedies[0].startswith(remedy)


def test_a_container_that_ran_out_of_memory_needs_a_higher_limit() -> None:
    remedy = diagnose("its program was killed because it ran out of memory: its limit is 32Mi").remedies[0]

    assert remedy.startswith("Raise resources.limits.memory of the container")


def test_an_interrupted_experiment_tells_why_its_trials_failed() -> None:
    trials = (failed("KeyError: 3 (exit code 1)"),)
    evidence = Evidence(now=NOW, trials=trials, controllers_running=False)
    diagnosis = diagnose_experiment(make_experiment("demo", condition("Running"), trialsFailed=1), evidence)

    assert "no engine is running" in diagnosis.verdict
    assert any("t failed: KeyError: 3 (exit code 1)." in finding for finding in diagnosis.findings)


def test_the_same_failure_of_many_trials_is_one_cause() -> None:
    trials = tuple(failed("KeyError: 3 (exit code 1)") for _ in range(3))
    experiment = make_experiment("demo", condition("Failed", "ExperimentFailed"), trialsFailed=3)
    findings = diagnose_experiment(experiment, Evidence(now=NOW, trials=trials)).findings

    assert "Most common cause, 3 of 3 looked at: KeyError: 3 (exit code 1)." in findings
