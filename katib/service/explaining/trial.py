"""Why a trial waits, or how it ended."""

from __future__ import annotations

from katib.model.failure_text import EXIT_WITHOUT_OUTPUT, OUT_OF_MEMORY, trial_failure
from katib.model.job_kinds import IN_QUEUE, is_suspended, suspend_field
from katib.model.leases import lease_of
from katib.model.metrics import ZERO_TIME
from katib.model.names import (
    METRICS_INCOMPLETE,
    METRICS_REPORT_ANNOTATION,
    REMEDY,
    RETRYING_REASON,
    WORKSPACE_ANNOTATION,
)
from katib.model.trials import is_callers, is_chosen, waiting_words
from katib.model.types import CollectorKind, Condition, Trial
from katib.model.wording import counted, format_duration
from katib.service.explaining.answer import (
    DiagnosisDraft,
    condition_words,
    finding_of_event,
    known_remedy,
    pick_warnings,
    since,
    with_age,
)
from katib.service.explaining.evidence import Evidence, JobFacts
from katib.service.explaining.replicas import failed_replica, last_words, replica_findings
from katib.service.tuning.reading import assignments_of, metric_of, seconds_run
from katib.service.tuning.replicas import named_replica, own_cause, replica_name
from katib.service.tuning.service import Diagnosis
from katib.service.tuning.states import (
    condition_of,
    early_stop_reason,
    failure_of,
    held_condition,
    is_completed,
    namespace_option,
    objective_value,
    running_condition,
    state_of,
)

_COMMAND_NOT_FOUND = 127
_COMMAND_NOT_EXECUTABLE = 126
_SIGKILLED = ("exit code 137", "killed by SIGKILL")

_DEADLINE = "its job ran longer than activeDeadlineSeconds"
_DEADLINE_OF_A_JOB = "Job was active longer than specified deadline"
"""Kubernetes' message for it."""

_MORE_MEMORY = "Raise resources.limits.memory of the container in the template, or let it need less."

PODS_REFUSED = "TrialPodsRefused"
"""Reason of a trial that failed because no pod of its job could be created."""

_UNCOLLECTED = "PodWithoutCollector"
"""Reason of a trial whose metrics are missing although its program may have printed them."""


def diagnose_trial(trial: Trial, evidence: Evidence) -> Diagnosis:
    """Explain one trial.

    Args:
        evidence: The evidence; its `jobs`, `readings` and `events` matter here.
    """
    name = trial.name
    facts = evidence.jobs.get(name, JobFacts())
    answer = _ended(trial, facts, evidence) if is_completed(trial) else _active(trial, facts, evidence)
    warnings = pick_warnings(evidence.events, "Trial", name)
    answer.findings.extend(map(finding_of_event, warnings))
    assignments = ", ".join(f"{key}={value}" for key, value in assignments_of(trial).items())
    if assignments:
        answer.findings.append(f"Its parameters are {assignments}.")
    return answer.diagnosis("Trial", name, state_of(trial))


def _active(trial: Trial, facts: JobFacts, evidence: Evidence) -> DiagnosisDraft:
    name = trial.name
    if trial.metadata.deletion_timestamp is not None:
        return DiagnosisDraft(f"{name} is being deleted; its job and its metrics go first.")
    if not evidence.controllers_running:
        return DiagnosisDraft(
            f"{name} does not progress because {evidence.place.idle}.",
            remedies=[evidence.place.start],
        )
    held = (
        _of_a_caller(trial, facts, evidence)
        or _held_up(trial, facts)
        or _retried(trial, facts, evidence)
        or _waiting(trial, facts, evidence)
    )
    if held is not None:
        return held
    if state_of(trial) == "Running":
        return _running(trial, facts, evidence)
    if facts.job is None:
        return DiagnosisDraft(f"{name} waits for its job to be created.", findings=[_age_finding(trial, evidence)])
    findings = [*replica_findings(facts.pods), _age_finding(trial, evidence)]
    return DiagnosisDraft(f"{name} has a job that has not started yet.", findings=findings)


def _of_a_caller(trial: Trial, facts: JobFacts, evidence: Evidence) -> DiagnosisDraft | None:
    """Return the caller that evaluates a trial without a job, or that it waits for one; None for one with a job."""
    if not is_callers(trial):
        return None
    name, lease = trial.name, lease_of(trial)
    if state_of(trial) == "Running" and lease is not None:
        answer = _running(trial, facts, evidence)
        until = "" if is_chosen(trial) else f"; without a sign of life for {lease.seconds:g} s it is lost"
        answer.findings.append(f"{lease.client} evaluates it{until}.")
        return answer
    words = (waiting_words(trial) or "waits to be asked for").rstrip(".")
    return DiagnosisDraft(
        f"{name} {words}.",
        findings=[_age_finding(trial, evidence)],
        remedies=["A program gets it by `katib ask`, `experiment.ask()` in Python, or the route `ask`."],
    )


def _held_up(trial: Trial, facts: JobFacts) -> DiagnosisDraft | None:
    """Return why the job cannot be created or read, None if that is not the obstacle."""
    running = running_condition(trial)
    if running.status != "False" or running.reason not in _HELD_UP_REMEDIES or facts.job is not None:
        return None
    cause = running.message.removeprefix("Trial cannot run: ").rstrip(".")
    remedy = _QUOTA_OF_JOBS if "exceeded quota" in cause else _HELD_UP_REMEDIES[running.reason]
    return DiagnosisDraft(f"{trial.name} cannot run: {cause}.", remedies=[remedy])


_QUOTA_OF_JOBS = "Wait for other jobs to go, or ask for a larger quota; the trial continues by itself."

_HELD_UP_REMEDIES = {
    "JobForbidden": "Give the controller the right that the message names; the trial continues by itself.",
    "JobKindNotInstalled": "Install the operator that serves this kind of job; the trial continues by itself.",
}


def _waiting(trial: Trial, facts: JobFacts, evidence: Evidence) -> DiagnosisDraft | None:
    name, job, words = trial.name, facts.job or {}, waiting_words(trial).rstrip(".")
    if is_suspended(job) and words.startswith(IN_QUEUE):
        return DiagnosisDraft(f"{name} {words}.", remedies=[_WORKLOADS.format(trial.namespace)])
    if is_suspended(job):
        field = ".".join(suspend_field(job))
        option = namespace_option(trial, evidence.place.default_namespace)
        return DiagnosisDraft(
            f"{name} waits because its job is suspended{f' ({field} is true)' if field else ''}.",
            remedies=[f"`katib resume {name}{option}` lets it start."] if field else [],
        )
    if facts.waiting:
        return DiagnosisDraft(
            f"{name} has to wait: {facts.waiting.rstrip('.')}.",
            findings=replica_findings(facts.pods),
            remedies=[facts.remedy or evidence.place.capacity],
            log_tail=facts.log_tail,
        )
    if words:
        return DiagnosisDraft(f"{name} {with_age(words, evidence.now)}.", findings=replica_findings(facts.pods))
    return None


_WORKLOADS = "It continues by itself once Kueue admits its Workload: kubectl -n {} get workloads"


def _retried(trial: Trial, facts: JobFacts, evidence: Evidence) -> DiagnosisDraft | None:
    """Return that an attempt of the job failed; None if the trial does not report it."""
    fact = running_condition(trial)
    if fact.reason != RETRYING_REASON:
        return None
    news = fact.message.removeprefix("Trial is running: ").removeprefix("Trial waits: ")
    begin = "Read the output below, and set" if facts.log_tail else "Set"
    remedies = [
        _memory_remedy(news, facts) or _known_remedy(news, facts, evidence),
        f"{begin} backoffLimit to 0 in the template if a retry cannot help.",
    ]
    verdict = f"{trial.name} failed and is tried again: {news}."
    return DiagnosisDraft(verdict, remedies=list(filter(None, remedies)), log_tail=facts.log_tail)


def _running(trial: Trial, facts: JobFacts, evidence: Evidence) -> DiagnosisDraft:
    name = trial.name
    fact = held_condition(trial, "Running")
    if fact.reason == "TrialWaiting":
        return DiagnosisDraft(
            f"{name} has to wait: {fact.message.removeprefix('Trial is running: ').rstrip('.')}.",
            remedies=[evidence.place.silence],
        )
    if fact.reason == "TrialStopping":
        why = fact.message.removeprefix("Trial is being stopped early: ").rstrip(".")
        return DiagnosisDraft(
            f"{name} is being stopped early, and its programs have their grace period to end: {why}.",
            remedies=[
                "Have the program end on SIGTERM, or lower terminationGracePeriodSeconds, to free its place sooner."
            ],
        )
    seconds = seconds_run(trial, evidence.now)
    running = f"has been running for {format_duration(seconds)}" if seconds is not None else "is running"
    place = fact.message.removeprefix("Trial is running") if fact.reason == "TrialRunning" else ""
    answer = DiagnosisDraft(f"{name} {running}{place if place.startswith(' on ') else ''}.")
    if restarting := _job_condition(facts, "Restarting"):
        answer.findings.append(f"Its job is restarting: {condition_words(restarting)}.")
    answer.findings.extend(replica_findings(facts.pods))
    metric = metric_of(trial) or "the objective metric"
    reading = evidence.readings.get(name)
    if reading is None and evidence.readings_error:
        answer.findings.append(f"Its metrics cannot be read now: {evidence.readings_error.rstrip('.')}.")
    elif reading is None:
        answer.findings.append(f"It has not reported {metric} yet.")
        answer.remedies.append(f"`{_logs_command(trial, evidence)} -f` shows its output.")
    else:
        count = evidence.reading_counts.get(name, 1)
        age = f", {since(reading.time, evidence.now)} ago" if reading.time != ZERO_TIME else ""
        answer.findings.append(f"Latest {metric} is {reading.value}, {counted(count, 'reading')} so far{age}.")
    if progress := evidence.progress.get(name):
        answer.findings.append(f"Its program says that {progress} % are done.")
    if seconds is not None:
        answer.findings.extend(_pace(evidence))
    if facts.attempt > 1:
        answer.findings.append(f"This is try {facts.attempt} of its job.")
    return answer


def _pace(evidence: Evidence) -> list[str]:
    """Return the median duration of the other trials, for comparison."""
    succeeded = (other for other in evidence.trials if condition_of(other, "Succeeded") is not None)
    seconds = sorted(took for other in succeeded if (took := seconds_run(other, evidence.now)) is not None)
    if not seconds:
        return []
    return [f"Trials that succeeded took {format_duration(seconds[len(seconds) // 2])} (median)."]


def _ended(trial: Trial, facts: JobFacts, evidence: Evidence) -> DiagnosisDraft:
    ways = {
        "Succeeded": _succeeded,
        "Failed": _failed,
        "EarlyStopped": _early_stopped,
        "MetricsUnavailable": _metrics_unavailable,
        "Killed": _killed,
    }
    for type_, explain in ways.items():
        condition = condition_of(trial, type_)
        if condition is not None:
            return explain(trial, condition, facts, evidence)
    raise AssertionError(trial)  # pragma: no cover - is_completed implies one of them


def _succeeded(trial: Trial, _condition: Condition, _facts: JobFacts, evidence: Evidence) -> DiagnosisDraft:
    name, metric = trial.name, metric_of(trial)
    answer = DiagnosisDraft(f"{name} succeeded with {metric}={objective_value(trial) or 'unavailable'}.")
    if evidence.best is not None and evidence.best.name == name:
        answer.findings.append("It is the best trial so far.")
    return answer


def _failed(trial: Trial, _condition: Condition, facts: JobFacts, evidence: Evidence) -> DiagnosisDraft:
    name, failed = trial.name, failed_replica(facts.pods, failure_of(trial))
    replica = replica_name(failed) if failed is not None else named_replica(trial)
    because = f" because its replica {replica} failed" if replica else ""
    answer = DiagnosisDraft(f"{name} failed{because}: {failure_cause(trial, facts)}.", log_tail=facts.log_tail)
    if replica and facts.log_tail:
        answer.findings.append(f"The output below is that of replica {replica}.")
    elif facts.log_container and facts.log_tail:
        answer.findings.append(f"The output below is that of container {facts.log_container}.")
    cause = own_cause(trial)
    if cause and cause not in answer.verdict and (not replica or not cause.startswith(EXIT_WITHOUT_OUTPUT)):
        answer.findings.append(f"{cause}.")
    if facts.attempt > 1:
        answer.findings.append(f"Its job was tried {facts.attempt} times.")
    answer.remedies.append(_failure_remedy(trial, facts, evidence))
    return answer


def failure_cause(trial: Trial, facts: JobFacts) -> str:
    """Return in a few words why a trial failed: the end of its program, else the last line of its output.

    The replica is left out, so that equal failures compare equal.
    """
    ended = _job_condition(facts, "Failed")
    if ended is not None and ended.reason == "DeadlineExceeded":
        return _DEADLINE
    cause = failure_of(trial)
    if cause == _DEADLINE_OF_A_JOB:
        return _DEADLINE
    if facts.signal or facts.out_of_memory or (facts.exit_code is not None and not _is_explained(trial)):
        return _exit_words(facts)
    replica = failed_replica(facts.pods, cause)
    if replica is not None and not _is_explained(trial) and (words := last_words(replica)):
        return words
    return own_cause(trial) or (held_condition(trial, "Failed").reason or "no reason was recorded")


def _job_condition(facts: JobFacts, type_: str) -> Condition | None:
    """Return a condition of a trial's job by type if it holds."""
    for condition in ((facts.job or {}).get("status") or {}).get("conditions") or ():
        if condition.get("type") == type_ and condition.get("status") == "True":
            return Condition(reason=str(condition.get("reason") or ""), message=str(condition.get("message") or ""))
    return None


def _is_explained(trial: Trial) -> bool:
    """Return whether the message of a failed trial adds to its exit code."""
    message = held_condition(trial, "Failed").message
    return trial_failure(message) != message and not own_cause(trial).startswith(EXIT_WITHOUT_OUTPUT)


def _exit_words(facts: JobFacts) -> str:
    if facts.out_of_memory:
        return "its container took more memory than its limit allows (OOMKilled)"
    if facts.signal:
        return f"its process was ended by {facts.signal}"
    if facts.exit_code == _COMMAND_NOT_FOUND:
        return "its command was not found (exit code 127)"
    if facts.exit_code == _COMMAND_NOT_EXECUTABLE:
        return "its command could not be executed (exit code 126)"
    return f"its process ended with exit code {facts.exit_code}"


def _logs_command(trial: Trial, evidence: Evidence) -> str:
    return f"katib logs {trial.name}{namespace_option(trial, evidence.place.default_namespace)}"


def _failure_remedy(trial: Trial, facts: JobFacts, evidence: Evidence) -> str:
    if held_condition(trial, "Failed").reason == PODS_REFUSED:
        return facts.remedy or "Fix the pod of the template as the message says, and run it again."
    if _DEADLINE in failure_cause(trial, facts):
        return "Raise activeDeadlineSeconds in the template, or let the program do less."
    if remedy := _memory_remedy(failure_of(trial), facts):
        return remedy
    if facts.exit_code == _COMMAND_NOT_FOUND:
        return evidence.place.command
    return _remedy_of_output(trial, facts, evidence)


def _memory_remedy(failure: str, facts: JobFacts) -> str:
    """Return the remedy for a program killed for lack of memory; empty for any other end."""
    if facts.out_of_memory or OUT_OF_MEMORY in failure:
        return _MORE_MEMORY
    if facts.signal == "SIGKILL" or any(words in failure for words in _SIGKILLED):  # usually, for this reason
        return "Run fewer trials at once (parallelTrialCount), or request the memory that one needs."
    return ""


def _known_remedy(failure: str, facts: JobFacts, evidence: Evidence) -> str:
    experiment = evidence.experiment
    workspace = "" if experiment is None else experiment.metadata.annotations.get(WORKSPACE_ANNOTATION, "")
    place = evidence.place.in_images() if facts.in_image else evidence.place
    return known_remedy(failure, facts, place, workspace)


def _remedy_of_output(trial: Trial, facts: JobFacts, evidence: Evidence) -> str:
    if remedy := _known_remedy(failure_of(trial), facts, evidence):
        return remedy
    if not facts.log_tail:
        return f"`{_logs_command(trial, evidence)}` shows its output."
    return "Fix the cause that its output shows and run it again."


def _early_stopped(trial: Trial, condition: Condition, _facts: JobFacts, _evidence: Evidence) -> DiagnosisDraft:
    why = early_stop_reason(condition.message).rstrip(".")
    answer = DiagnosisDraft(f"{trial.name} was stopped early: {why or 'its message says no reason'}.")
    answer.findings.extend(
        f"Rule: stop when {rule.name} is {_COMPARISONS.get(rule.comparison, rule.comparison)} {rule.value} "
        f"from reading {rule.start_step} on."
        for rule in trial.spec.early_stopping_rules
    )
    value = objective_value(trial)
    if value is not None:
        answer.findings.append(f"It had reached {metric_of(trial)}={value}.")
    return answer


_COMPARISONS = {"less": "less than", "greater": "greater than", "equal": "equal to"}


def _metrics_unavailable(trial: Trial, condition: Condition, facts: JobFacts, _evidence: Evidence) -> DiagnosisDraft:
    if condition.reason == METRICS_INCOMPLETE:
        return _metrics_incomplete(trial, condition, facts)
    if condition.reason == _UNCOLLECTED:
        return DiagnosisDraft(f"{trial.name} has no metrics: {metrics_loss(condition)}.", remedies=[_RUN_AGAIN])
    metric = metric_of(trial) or "the objective metric"
    answer = DiagnosisDraft(
        f"{trial.name} ended, but {metric} was not found in what it wrote.", log_tail=facts.log_tail
    )
    annotations = (facts.job or {}).get("metadata", {}).get("annotations") or {}
    report = str(annotations.get(METRICS_REPORT_ANNOTATION) or condition.message)
    report, *remedies = report.split(REMEDY)
    if report:
        answer.findings.append(report)
    answer.remedies += [f"{remedy[:1].upper()}{remedy[1:]}." for remedy in remedies]
    is_text = trial.spec.metrics_collector.kind in (CollectorKind.STDOUT, CollectorKind.FILE)
    if is_text and not remedies and "NaN" not in report:  # a collector of another version
        answer.remedies.append(
            f"Print lines such as `{metric}=0.5`, or describe your format in "
            f"spec.metricsCollectorSpec.source.filter.metricsFormat; katib tune has --metrics-format for it."
        )
    return answer


def _metrics_incomplete(trial: Trial, condition: Condition, facts: JobFacts) -> DiagnosisDraft:
    answer = DiagnosisDraft(
        f"{trial.name} ended well, but not all of its metrics are stored, so its value is not known.",
        log_tail=facts.log_tail,
    )
    answer.findings.append(condition.message)
    answer.remedies.append(
        "The training program is not the cause: look at what kept the collector from storing, such as the DB manager "
        "or the collector's memory limit, and run the trial again."
    )
    return answer


_RUN_AGAIN = (
    "Run it again. If it happens again, look whether the controller is ready, and whether the namespace still has the "
    "label katib.kubeflow.org/metrics-collector-injection=enabled."
)


def metrics_loss(condition: Condition) -> str:
    """Return how a trial lost its metrics if not by its program's output; empty otherwise."""
    if condition.reason != _UNCOLLECTED:
        return ""
    return condition.message.removeprefix("Metrics are not available: ").rstrip(".")


def _killed(trial: Trial, condition: Condition, _facts: JobFacts, _evidence: Evidence) -> DiagnosisDraft:
    message = condition.message.rstrip(".")
    because = f": {message}" if message else " before it ended by itself"
    return DiagnosisDraft(f"{trial.name} was stopped{because}.")


def _age_finding(trial: Trial, evidence: Evidence) -> str:
    created = trial.metadata.creation_timestamp
    return f"It was created {since(created, evidence.now)} ago." if created else "It was created just now."
