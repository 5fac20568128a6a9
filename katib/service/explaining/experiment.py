"""Why an experiment does not progress, or how it ended.

Checks of an unfinished experiment are in the order in which causes hide each other: no engine or controller, then the
store, then the suggestion service, then the trials.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from katib.model.job_kinds import is_suspended
from katib.model.names import EXPERIMENT_INTERRUPTED, EXPERIMENT_STOPPED, SERVICE_UNAVAILABLE, TEMPLATE_MISSING
from katib.model.trials import asked_count, is_asked, is_chosen
from katib.model.types import Condition, Experiment, Trial
from katib.model.wording import counted
from katib.service.explaining.answer import (
    DiagnosisDraft,
    best_sentences,
    condition_words,
    finding_of_event,
    pick_warnings,
    progress_sentence,
    since,
)
from katib.service.explaining.ended import explain_ended, run_again
from katib.service.explaining.evidence import Evidence, JobFacts, ServiceFacts
from katib.service.explaining.trial import diagnose_trial
from katib.service.tuning.reading import algorithm_of
from katib.service.tuning.service import Confirmation, Diagnosis
from katib.service.tuning.states import (
    condition_of,
    is_completed,
    is_interrupted,
    namespace_option,
    running_condition,
    state_of,
)

_SHOWN_TRIALS = 3
_STORAGE_REASONS = frozenset({"DiskFull", "DatabaseUnavailable", "StoreUnavailable", "ObservationLogUnavailable"})
"""Reasons of warning events for a store that accepts no writes."""

_MEMORY = "What is killed by SIGKILL mostly lacked memory: free some, or set spec.parallelTrialCount lower."

_DISK_FULL = ("disk is full", "disk full", "no space left")

_SAID_BY_THE_END = frozenset(
    {
        "ExperimentFailed",
        "ExperimentFirstTrialsFailed",
        "ExperimentNoUsableTrial",
        "MetricsUnavailable",
        "SuggestionFailed",
    }
)
"""Reasons of warnings that add nothing to the verdict of an ended experiment."""

_SAID_BY_CONDITIONS = frozenset(
    {TEMPLATE_MISSING, EXPERIMENT_STOPPED, EXPERIMENT_INTERRUPTED, SERVICE_UNAVAILABLE, "SuggestionServiceWaiting"}
)
"""Reasons of warnings that a condition repeats while they hold."""


def diagnose_experiment(experiment: Experiment, evidence: Evidence) -> Diagnosis:
    """Explain one experiment.

    Args:
        evidence: The evidence; the more complete, the more precise the answer.
    """
    ended = is_completed(experiment)
    experiment = experiment if ended else _counted(experiment, evidence)
    answer = explain_ended(experiment, evidence) if ended else _explain_unfinished(experiment, evidence)
    if experiment.spec.parameter_constraints:
        answer.findings.append(f"All trials satisfy {' and '.join(experiment.spec.parameter_constraints)}.")
    if (confirmation := evidence.confirmation) is not None:
        _add_confirmation(answer, experiment, confirmation)
    is_confirming = confirmation is not None and confirmation.confirmed_by not in ("", confirmation.experiment)
    if not is_confirming and evidence.suggestion is not None and evidence.suggestion.status.explanation:
        answer.findings.append(evidence.suggestion.status.explanation)
    said = _SAID_BY_CONDITIONS | (_SAID_BY_THE_END if ended else frozenset())
    events = [event for event in evidence.events if event.reason not in said]
    answer.findings.extend(map(finding_of_event, pick_warnings(events)))
    return answer.diagnosis("Experiment", experiment.name, state_of(experiment))


def _add_confirmation(answer: DiagnosisDraft, experiment: Experiment, found: Confirmation) -> None:
    """Add the findings about configurations that were run again; of that run itself they are the answer."""
    answer.findings += [found.verdict, *found.notes]
    if experiment.name == found.confirmed_by != found.experiment and state_of(experiment) == "Succeeded":
        answer.verdict = f"{experiment.name} succeeded: {found.verdict}"
        answer.findings[:] = [one for one in answer.findings if one != found.verdict]
        answer.remedies[:] = [f"`katib confirm {found.experiment} --repeats N` with a larger N runs each more often."]


def _counted(experiment: Experiment, evidence: Evidence) -> Experiment:
    """Return an experiment whose status counts the trials that run now; the stored one may lag."""
    status = experiment.status
    programs = sum(facts.runs for facts in evidence.jobs.values())
    begun = max(programs, sum(not is_completed(trial) and _is_at_work(trial, evidence) for trial in evidence.trials))
    if (more := begun - status.trials_running) <= 0:
        return experiment
    waiting = max(0, status.trials_pending - more)
    return structs.replace(experiment, status=structs.replace(status, trials_running=begun, trials_pending=waiting))


def _explain_unfinished(experiment: Experiment, evidence: Evidence) -> DiagnosisDraft:
    """Return what delays an experiment, or that it progresses."""
    checks: tuple[Callable[[Experiment, Evidence], DiagnosisDraft | None], ...] = (
        _deleting,
        _no_controller_works,
        _storage_fails,
        _is_stopped,
        _is_interrupted,
        _template_is_missing,
        _validation_refused,
        _service_is_away,
        _service_fails,
        _all_trials_wait,
        _trials_run,
        _service_starts,
        _waits_for_suggestions,
        _waits_for_callers,
    )
    answer = next((answer for check in checks if (answer := check(experiment, evidence)) is not None), None)
    if answer is None:
        answer = DiagnosisDraft(
            f"{experiment.name} was accepted and has no trial yet; nothing that would hold it back is known.",
            remedies=[evidence.place.silence],
        )
    answer.findings.insert(0, progress_sentence(experiment))
    if condition_of(experiment, "Restarting") is not None:
        answer.findings.append("It was finished, and runs again because its budget was raised.")
    _add_failures(answer, evidence)
    answer.findings.extend(_restarts(evidence))
    return answer


def _add_failures(answer: DiagnosisDraft, evidence: Evidence) -> None:
    """Add why the newest failed trial failed, whatever the state of the experiment."""
    failed = [trial for trial in evidence.trials if condition_of(trial, "Failed") is not None]
    if not failed:
        return
    newest = diagnose_trial(failed[-1], evidence)
    answer.findings.append(f"The newest trial that failed says why: {newest.verdict}")
    answer.remedies.extend(newest.remedies)
    answer.log_tail = answer.log_tail or newest.log_tail


def _deleting(experiment: Experiment, evidence: Evidence) -> DiagnosisDraft | None:
    if experiment.metadata.deletion_timestamp is None:
        return None
    if not evidence.controllers_running:
        sentence = f"{experiment.name} is being deleted, and {evidence.place.idle}."
        return DiagnosisDraft(sentence, remedies=list(filter(None, (evidence.place.start, evidence.place.release))))
    return DiagnosisDraft(f"{experiment.name} is being deleted; its trials go first.")


def _no_controller_works(experiment: Experiment, evidence: Evidence) -> DiagnosisDraft | None:
    if evidence.controllers_running:
        return None
    command = run_again(experiment)
    return DiagnosisDraft(
        f"{experiment.name} is unfinished, and {evidence.place.idle}.",
        remedies=[f"`{command}` resumes it."] if command else [evidence.place.start],
    )


def _storage_fails(experiment: Experiment, evidence: Evidence) -> DiagnosisDraft | None:
    """A storage warning counts while it is the newest event."""
    latest, full = evidence.events[-1] if evidence.events else None, evidence.disk_is_full
    if not full:
        if latest is None or not latest.warning:
            return None
        message = latest.message.lower()
        full = latest.reason == "DiskFull" or any(words in message for words in _DISK_FULL)
        if not full and latest.reason not in _STORAGE_REASONS and "database" not in message:
            return None
    what = "the disk is full" if full else "the database does not answer"
    return DiagnosisDraft(
        f"{experiment.name} cannot progress because {what}.",
        remedies=[evidence.place.disk if full else evidence.place.database],
    )


def _is_stopped(experiment: Experiment, evidence: Evidence) -> DiagnosisDraft | None:
    if running_condition(experiment).reason != EXPERIMENT_STOPPED:
        return None
    option = namespace_option(experiment, evidence.place.default_namespace)
    return DiagnosisDraft(
        f"{experiment.name} makes no further trials because it was stopped.",
        findings=_still_running(experiment),
        remedies=[f"`katib resume {experiment.name}{option}` resumes it."],
    )


def _is_interrupted(experiment: Experiment, evidence: Evidence) -> DiagnosisDraft | None:
    if not is_interrupted(experiment):
        return None
    option, command = namespace_option(experiment, evidence.place.default_namespace), run_again(experiment)
    ways = [f"`{command}` resumes it, once nothing else works on its data directory."] if command else []
    return DiagnosisDraft(
        f"{experiment.name} was interrupted, and none of its trials runs.",
        remedies=[f"`katib resume {experiment.name}{option}` resumes it now.", *ways],
    )


def _still_running(experiment: Experiment) -> list[str]:
    runs = experiment.status.trials_running
    return [f"{counted(runs, 'trial')} that were made before continue."] if runs else []


def _template_is_missing(experiment: Experiment, _evidence: Evidence) -> DiagnosisDraft | None:
    condition = next((c for c in experiment.status.conditions if c.reason == TEMPLATE_MISSING), None)
    if condition is None:
        return None
    return DiagnosisDraft(
        f"{experiment.name} cannot make trials: {_cause_of(condition)}.",
        findings=_still_running(experiment),
        remedies=["As soon as the template is there, the experiment continues by itself."],
    )


def _cause_of(condition: Condition) -> str:
    """Return the message of a condition after its first words, which repeat the answer."""
    return (condition.message.partition(": ")[2] or condition.message).rstrip(".")


def _validation_refused(experiment: Experiment, evidence: Evidence) -> DiagnosisDraft | None:
    condition = condition_of(evidence.suggestion, "Failed")
    if condition is None:
        return None
    return DiagnosisDraft(
        f"{experiment.name} has no assignments because its suggestion failed: {condition_words(condition)}.",
        remedies=["Fix spec.algorithm or the search space as the message says, and run it again."],
    )


def _service_is_away(experiment: Experiment, evidence: Evidence) -> DiagnosisDraft | None:
    """The cause may pass, so nothing has failed."""
    condition = next((c for c in experiment.status.conditions if c.reason == SERVICE_UNAVAILABLE), None)
    if condition is None:
        return None
    cause = _cause_of(condition)
    failing = next((s for s in evidence.services if s.state == "failing"), None)
    again = "It is tried again, with pauses of some seconds, until it answers; then the experiment continues."
    answer = DiagnosisDraft(
        f"{experiment.name} waits for its algorithm: {cause}.",
        findings=_still_running(experiment),
        remedies=[(failing and failing.remedy) or again],
    )
    if failing is not None and failing.last_error.rstrip(".") not in ("", cause):
        answer.findings.append(f"This is try {failing.attempts}; the last one: {failing.last_error.rstrip('.')}.")
    if "SIGKILL" in cause or "OOMKilled" in cause:
        answer.remedies.append(_MEMORY)
    return answer


def _service_fails(experiment: Experiment, evidence: Evidence) -> DiagnosisDraft | None:
    failing = next((s for s in evidence.services if s.state == "failing"), None)
    if failing is None:
        return None
    return DiagnosisDraft(
        f"{experiment.name} waits for the suggestion service {failing.algorithm}, which does not start: "
        f"{(failing.last_error or 'no reason was given').rstrip('.')}.",
        findings=[f"It was tried {counted(failing.attempts, 'time')}."],
        remedies=[_service_remedy(failing)],
    )


def _service_remedy(service: ServiceFacts) -> str:
    if service.remedy:
        return service.remedy
    if "No module named" in service.last_error:
        return "Install what the service needs (`pip install 'katib[all]'`)."
    if service.address:
        return f"Try it by hand: {service.address}"
    return f"Fix the cause, or choose another algorithm than {service.algorithm} (`katib algorithms` lists them)."


def _all_trials_wait(experiment: Experiment, evidence: Evidence) -> DiagnosisDraft | None:
    """If no trial runs, the obstacle of the waiting trials is that of the experiment."""
    waiting = [trial for trial in evidence.trials if not is_completed(trial)]
    if not waiting or any(_is_at_work(trial, evidence) for trial in waiting):
        return None
    first = diagnose_trial(waiting[0], evidence)
    others = len(waiting) - 1
    more = f" {others} more wait too." if others else ""
    return DiagnosisDraft(
        f"{experiment.name} waits for its trials: {first.verdict}{more}",
        findings=[*first.findings],
        remedies=[*first.remedies],
        log_tail=first.log_tail,
    )


def _is_at_work(trial: Trial, evidence: Evidence) -> bool:
    facts = evidence.jobs.get(trial.name, JobFacts())
    return state_of(trial) == "Running" and not facts.waiting and not is_suspended(facts.job or {})


def _trials_run(experiment: Experiment, evidence: Evidence) -> DiagnosisDraft | None:
    running = [trial for trial in evidence.trials if not is_completed(trial) and _is_at_work(trial, evidence)]
    if not running:
        return None
    count, waits = experiment.status.trials_running, experiment.status.trials_pending
    others = f", {waits} waiting" if waits else ""
    answer = DiagnosisDraft(f"{experiment.name} is progressing: {counted(count, 'trial')} running{others}.")
    for trial in running[:_SHOWN_TRIALS]:
        details = diagnose_trial(trial, evidence)
        answer.findings.append(" ".join((details.verdict, *details.findings[:1])))
        answer.remedies = answer.remedies or [*details.remedies[:1]]
    if waiting := _waiting_message(evidence):
        answer.findings.append(f"No further trial starts until one of them has ended: {waiting}.")
    answer.findings.extend(best_sentences(experiment, evidence))
    return answer


def _waiting_message(evidence: Evidence) -> str:
    """Return what delays the suggestion service; empty if it has assignments."""
    condition = condition_of(evidence.suggestion, "WaitingForTrials")
    return condition.message.rstrip(".") if condition is not None else ""


def _service_starts(experiment: Experiment, evidence: Evidence) -> DiagnosisDraft | None:
    starting = next((s for s in evidence.services if s.state == "starting"), None)
    if starting is None:
        return None
    answer = DiagnosisDraft(f"{experiment.name} waits for the suggestion service {starting.algorithm} to start.")
    if starting.attempts > 1:
        last = f"; the last one failed: {starting.last_error.rstrip('.')}" if starting.last_error else ""
        answer.findings.append(f"This is try {starting.attempts}{last}.")
    return answer


def _waits_for_suggestions(experiment: Experiment, evidence: Evidence) -> DiagnosisDraft | None:
    suggestion = evidence.suggestion
    if suggestion is None:
        return None
    algorithm = algorithm_of(suggestion)
    if condition_of(suggestion, "DeploymentReady") is None and condition_of(suggestion, "Running") is None:
        return DiagnosisDraft(f"{experiment.name} waits for the suggestion service {algorithm} to start.")
    lacking = suggestion.spec.requests - suggestion.status.suggestion_count
    if lacking <= 0:
        return None
    if waiting := _waiting_message(evidence):
        return DiagnosisDraft(f"{experiment.name} waits for a trial to end: {waiting}.")
    return DiagnosisDraft(
        f"{experiment.name} waits for {counted(lacking, 'assignment')} from the suggestion service {algorithm}."
    )


def _waits_for_callers(experiment: Experiment, evidence: Evidence) -> DiagnosisDraft | None:
    """Callers evaluate its trials, and have all the trials that they asked for."""
    if is_chosen(experiment):
        return DiagnosisDraft(
            f"{experiment.name} waits for a program that makes its next trial: its callers do so themselves."
        )
    has_all = asked_count(experiment) <= experiment.status.trials
    if not is_asked(experiment) or evidence.suggestion is None or not has_all:
        return None
    return DiagnosisDraft(
        f"{experiment.name} waits for a program that asks for its next trial: it has no spec.trialTemplate.",
        remedies=[f"`katib ask {experiment.name}` gives you one, as `experiment.ask()` does in Python."],
    )


def _restarts(evidence: Evidence) -> list[str]:
    restarts = [event for event in evidence.events if event.reason in ("EngineRestarted", "Resumed")]
    if not restarts:
        return []
    return [f"The engine was restarted {since(restarts[-1].time, evidence.now)} ago; unfinished trials were restarted."]
