"""What is said of a trial, and the remedies for causes that are known."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from katib.model.metrics import ZERO_TIME, MetricLog
from katib.model.names import METRICS_REPORT_ANNOTATION, REMEDY, WORKSPACE_ANNOTATION
from katib.model.types import Trial
from katib.service.explaining.evidence import Evidence, JobFacts
from katib.service.explaining.experiment import diagnose_experiment
from katib.service.explaining.trial import diagnose_trial
from katib.service.tuning.service import Diagnosis, Json
from tests.support.golden import Golden
from tests.support.tuning import START, condition, make_experiment, make_pod, make_trial, patched

NOW = START + timedelta(minutes=2)
CREATED = condition("Created")
RUNNING = condition("Running")


def diagnose(*conditions: Json, facts: JobFacts | None = None, **evidence: Any) -> Diagnosis:
    jobs = {"t": facts} if facts else {}
    return diagnose_trial(make_trial("t", *conditions), Evidence(now=NOW, jobs=jobs, **evidence))


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param(None, id="no-job"),
        pytest.param(JobFacts(job={}), id="not-started"),
        pytest.param(JobFacts(job={}, waiting="its job waits for 8000000000 bytes of memory"), id="memory"),
        pytest.param(
            JobFacts(job={"apiVersion": "batch/v1", "kind": "Job", "spec": {"suspend": True}}), id="suspended"
        ),
        pytest.param(
            JobFacts(
                job={"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": {"runPolicy": {"suspend": True}}}
            ),
            id="suspended-training-job",
        ),
    ],
)
def test_a_trial_that_waits_says_for_what(facts: JobFacts | None, golden: Golden) -> None:
    golden(diagnose(CREATED, facts=facts).verdict)


def test_what_holds_a_job_back_brings_its_own_remedy(golden: Golden) -> None:
    facts = JobFacts(job={}, waiting="its job cannot pull image nosuch", remedy="Check the name.", log_tail=("oops",))
    diagnosis = diagnose(RUNNING, facts=facts)

    golden(diagnosis.verdict)
    assert diagnosis.remedies == ("Check the name.",)
    assert diagnosis.log_tail == ("oops",)


def test_a_trial_that_took_too_much_memory_or_whose_metrics_cannot_be_read_says_so(golden: Golden) -> None:
    findings = diagnose(RUNNING, readings_error="DB manager at db:6789: no answer.").findings

    golden(findings)
    assert not any("has not reported" in finding for finding in findings)

    diagnosis = diagnose(RUNNING, condition("Failed"), facts=JobFacts(exit_code=137, out_of_memory=True))

    golden(diagnosis.verdict)
    assert diagnosis.remedies[0].startswith("Raise resources.limits.memory")


def test_a_trial_whose_last_try_failed_says_so_first(golden: Golden) -> None:
    retrying = condition("Running", "TrialRetrying", "Trial is running: it exited with 1; try 2 of 7")
    diagnosis = diagnose(retrying, facts=JobFacts(job={}, log_tail=("oops",)))

    golden(diagnosis.verdict)
    golden(diagnosis.remedies[0])
    assert diagnosis.log_tail == ("oops",)

    news = "Trial is running: ModuleNotFoundError: No module named 'torch' (exit code 1); try 2 of 7"
    assert "module" in diagnose(condition("Running", "TrialRetrying", news), facts=JobFacts(job={})).remedies[0]

    killed = condition("Running", "TrialRetrying", "Trial is running: it was killed because it ran out of memory")
    assert diagnose(killed, facts=JobFacts(job={})).remedies[0].startswith("Raise resources.limits.memory")
    unexplained = condition("Running", "TrialRetrying", "Trial is running: Container main ended with exit code 137")
    here = condition("Running", "TrialRetrying", "Trial is running: its program was killed by SIGKILL; try 2 of 7")
    by_signal = condition("Running", "TrialRetrying", "Trial is running: a pod failed")
    for told, facts in (
        (unexplained, JobFacts(job={})),
        (here, JobFacts(job={})),
        (by_signal, JobFacts(job={}, signal="SIGKILL")),
    ):
        golden(diagnose(told, facts=facts).remedies[0])


def test_a_running_trial_tells_how_long_and_how_far(golden: Golden) -> None:
    reading = MetricLog(NOW - timedelta(seconds=4), "loss", "0.3")
    peers = tuple(make_trial(f"p{i}", condition("Succeeded")) for i in range(3))
    diagnosis = diagnose(RUNNING, readings={"t": reading}, reading_counts={"t": 7}, trials=peers)

    golden(diagnosis.verdict)
    golden(diagnosis.findings)


def test_a_running_trial_tells_what_is_known_of_it(golden: Golden) -> None:
    golden(diagnose(RUNNING, readings={"t": MetricLog(ZERO_TIME, "loss", "0.3")}).findings)
    golden(diagnose(RUNNING, progress={"t": "45"}).findings)
    golden(diagnose(RUNNING, facts=JobFacts(job={}, attempt=3)).findings)
    golden(diagnose(RUNNING).remedies)


def test_without_an_engine_nothing_matters_and_commands_name_their_namespace(golden: Golden) -> None:
    trial = patched(make_trial("t", RUNNING), metadata={"namespace": "team"})
    diagnosis = diagnose_trial(trial, Evidence(now=NOW))

    golden(diagnosis.remedies)

    diagnosis = diagnose(RUNNING, controllers_running=False)

    golden(diagnosis.verdict)
    assert "katib serve" in diagnosis.remedies[0]


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        pytest.param(JobFacts(exit_code=2), "", id="exit-code"),
        pytest.param(JobFacts(exit_code=127), "", id="command-not-found"),
        pytest.param(JobFacts(signal="SIGSEGV"), "", id="signal"),
        pytest.param(
            JobFacts(job={"status": {"conditions": [condition("Failed", "DeadlineExceeded")]}}, signal="SIGTERM"),
            "",
            id="deadline",
        ),
        pytest.param(None, "Trial has failed.", id="message-only"),
        pytest.param(None, "", id="nothing-known"),
    ],
)
def test_a_failed_trial_names_the_cause(facts: JobFacts | None, message: str, golden: Golden) -> None:
    golden(diagnose(condition("Failed", message=message), facts=facts).verdict)


def test_a_failed_trial_shows_the_end_of_its_output() -> None:
    facts = JobFacts(exit_code=1, log_tail=tuple(f"line {i}" for i in range(40)))
    diagnosis = diagnose(condition("Failed"), facts=facts)

    assert diagnosis.log_tail == tuple(f"line {i}" for i in range(30, 40))
    assert "its output shows" in diagnosis.remedies[0]


def test_missing_metrics_carry_the_collectors_explanation_or_the_condition(golden: Golden) -> None:
    cause = '214 lines, none matched "loss"; nearest: "Loss: 0.21"'
    report = REMEDY.join([cause, 'name "Loss" instead of "loss"', "print lines such as `loss=0.5`"])
    job = {"metadata": {"annotations": {METRICS_REPORT_ANNOTATION: report}}}
    diagnosis = diagnose(condition("MetricsUnavailable", message="other words"), facts=JobFacts(job=job))

    golden(diagnosis.verdict)
    assert diagnosis.findings == (cause,)
    golden(diagnosis.remedies)

    diagnosis = diagnose(condition("MetricsUnavailable", message="no line matched"))

    assert diagnosis.findings == ("no line matched",)
    assert "`loss=0.5`" in diagnosis.remedies[0]

    report = '2 lines, "loss" read 2 times, only as NaN or infinity; last value: "inf"'
    diagnosis = diagnose(condition("MetricsUnavailable", message=report))

    assert diagnosis.remedies == ()


def test_a_stopped_and_a_succeeded_trial_say_how_far_they_came(golden: Golden) -> None:
    message = "Trial is early stopped: loss 0.9 is greater than 0.5"
    trial = make_trial("t", condition("EarlyStopped", message=message), loss="0.8")
    trial = patched(
        trial, spec={"earlyStoppingRules": [{"name": "loss", "value": "0.5", "comparison": "greater", "startStep": 4}]}
    )
    diagnosis = diagnose_trial(trial, Evidence(now=NOW))

    golden(diagnosis.verdict)
    golden(diagnosis.findings)

    trial = make_trial("t", condition("Succeeded"), loss="0.2", lr="0.1")
    diagnosis = diagnose_trial(trial, Evidence(now=NOW, best=trial))

    assert diagnosis.verdict == "t succeeded with loss=0.2."
    golden(diagnosis.findings)


@pytest.mark.parametrize("message", ["the goal was reached.", ""], ids=["reason", "no-reason"])
def test_a_killed_trial_says_why(message: str, golden: Golden) -> None:
    golden(diagnose(condition("Killed", message=message)).verdict)


def test_a_trial_whose_pods_or_collectors_were_refused_is_not_blamed(golden: Golden) -> None:
    refusal = "no pod of its job can be created: exceeded quota: small"
    failed = condition("Failed", "TrialPodsRefused", f"Trial has failed: {refusal}")
    diagnosis = diagnose(RUNNING, failed)

    assert diagnosis.verdict == f"t failed: {refusal}."
    golden(diagnosis.remedies)
    assert not any("Trial has failed" in finding for finding in diagnosis.findings)

    loss = "pod t-x ran without metrics collector, because the webhook that adds it did not answer"
    lost = condition("MetricsUnavailable", "PodWithoutCollector", f"Metrics are not available: {loss}")
    diagnosis = diagnose(RUNNING, lost)

    golden(diagnosis.verdict)
    assert "Print lines" not in " ".join(diagnosis.remedies)

    message = "Metrics are not complete: not all readings are stored: DB manager at db:6789: no answer"
    found = diagnose(CREATED, condition("MetricsUnavailable", reason="MetricsIncomplete", message=message))

    golden(found.verdict)
    assert found.findings[0] == message
    golden(found.remedies[0])


def test_the_replica_that_failed_is_named_with_its_last_words(golden: Golden) -> None:
    worker = make_pod("t-worker-1", "t", replica="worker-1", code=3)
    worker["status"]["containerStatuses"][0]["state"]["terminated"]["message"] = "ValueError: boom"
    pods = (make_pod("t-master-0", "t", replica="master-0", code=143, reason="Stopped"), worker)
    failed = condition("Failed", "TrialFailed", "Trial has failed: its program ended with exit code 3")

    diagnosis = diagnose(failed, facts=JobFacts(pods=pods, log_tail=("ValueError: boom",)))

    golden(diagnosis.verdict)
    golden(diagnosis.findings[0])


def test_the_replica_that_a_running_trial_waits_for_is_named(golden: Golden) -> None:
    waits = {"type": "PodScheduled", "status": "False", "message": "waits for 2 cpu; 0 of 2 cpu are free"}
    waiting = make_pod("t-worker-1", "t", replica="worker-1", phase="Pending", containerStatuses=[], conditions=[waits])
    pods = (make_pod("t-master-0", "t", replica="master-0"), waiting)

    golden(diagnose(RUNNING, facts=JobFacts(job={}, pods=pods)).findings)


def test_a_replica_between_two_restarts_is_named(golden: Golden) -> None:
    state = {"waiting": {"reason": "CrashLoopBackOff"}}
    ended = {"terminated": {"exitCode": 1, "message": "no route"}}
    status = {"name": "main", "restartCount": 2, "state": state, "lastState": ended}
    pods = (
        make_pod("t-master-0", "t", replica="master-0"),
        make_pod("t-worker-0", "t", replica="worker-0", containerStatuses=[status]),
    )
    restarting = {"status": {"conditions": [condition("Restarting", "PyTorchJobRestarting", "worker 0 restarts")]}}
    findings = diagnose(RUNNING, facts=JobFacts(job=restarting, pods=pods)).findings

    expected = "Replica worker-0 ended with exit code 1 and is started again after a pause; last output: no route."
    assert expected in findings
    golden(findings)


def test_a_job_with_one_pod_is_not_told_in_replicas() -> None:
    assert not any(
        "replica" in f for f in diagnose(RUNNING, facts=JobFacts(job={}, pods=(make_pod("p", "t"),))).findings
    )


def failed(cause: str) -> Trial:
    return make_trial("t", condition("Failed", "TrialFailed", f"Trial has failed: {cause}"))


def remedies_of(cause: str, *, program: str = "", workspace: str = "", in_image: bool = False) -> Diagnosis:
    experiment = patched(make_experiment(), metadata={"annotations": {WORKSPACE_ANNOTATION: workspace}})
    facts = JobFacts(program=program, in_image=in_image, log_tail=("oops",))
    return diagnose_trial(failed(cause), Evidence(now=NOW, experiment=experiment, jobs={"t": facts}))


def test_the_cause_of_a_failed_trial_is_its_verdict() -> None:
    assert remedies_of("KeyError: 3 (exit code 1)").verdict == "t failed: KeyError: 3 (exit code 1)."


NO_MODULE = "ModuleNotFoundError: No module named 'sklearn' (exit code 1)"
NO_FILE = "python: can't open file 'train.py': [Errno 2] No such file or directory (exit code 2)"
NO_RIGHT = "PermissionError: [Errno 13] Permission denied: '/data' (exit code 1)"
PICKLING = "_pickle.PicklingError: Can't pickle <function f at 0x7f>: attribute lookup f on __main__ failed"
NO_MEMORY = "its program was killed because it ran out of memory: its limit is 32Mi"


@pytest.mark.parametrize(
    ("cause", "facts"),
    [
        (NO_MODULE, {"program": "/usr/bin/python3"}),
        (NO_MODULE, {"program": "/opt/env/bin/python3.12"}),
        (NO_MODULE, {"program": "/bin/sh"}),  # it is no Python
        (NO_MODULE, {"in_image": True}),
        (NO_FILE, {"workspace": "/home/me"}),
        ("sh: a.txt: No such file or directory (exit code 1)", {"in_image": True}),
        (NO_RIGHT, {}),
        ("sh: /data: Permission denied (exit code 1)", {"in_image": True}),
        ("EOFError: EOF when reading a line (exit code 1)", {}),
        (PICKLING, {}),
        (NO_MEMORY, {}),
    ],
)
def test_a_cause_that_is_known_has_a_remedy(cause: str, facts: dict[str, Any], golden: Golden) -> None:
    golden(remedies_of(cause, **facts).remedies[0])


def test_an_interrupted_experiment_tells_why_its_trials_failed(golden: Golden) -> None:
    trials = (failed("KeyError: 3 (exit code 1)"),)
    evidence = Evidence(now=NOW, trials=trials, controllers_running=False)
    diagnosis = diagnose_experiment(make_experiment("demo", condition("Running"), trialsFailed=1), evidence)

    assert "no engine is running" in diagnosis.verdict
    golden(diagnosis.findings)


def test_the_same_failure_of_many_trials_is_one_cause(golden: Golden) -> None:
    trials = tuple(failed("KeyError: 3 (exit code 1)") for _ in range(3))
    experiment = make_experiment("demo", condition("Failed", "ExperimentFailed"), trialsFailed=3)

    golden(diagnose_experiment(experiment, Evidence(now=NOW, trials=trials)).findings)
