"""How an experiment ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from katib.api.names import COMMAND_ANNOTATION, METRICS_INCOMPLETE
from katib.explaining.answer import Answer, best_sentences, condition_words, progress_sentence
from katib.explaining.evidence import Evidence, JobFacts
from katib.explaining.trial import diagnose_trial, failure_cause, metrics_loss
from katib.tuning.reading import (
    condition_of,
    has_several_objectives,
    name_of,
    namespace_of,
    objective_of,
    objective_value,
    objective_words,
    state_of,
    status_of,
)
from katib.tuning.service import Json

_SHOWN_TRIALS = 3
_WITHOUT_VALUE = frozenset({"ExperimentNoUsableTrial", "ExperimentFirstTrialsFailed"})
"""Reasons of an experiment that failed because no trial brought a value."""


def explain_ended(experiment: Json, evidence: Evidence) -> Answer:
    """Return by which rule an experiment ended, and what of its trials explains it."""
    condition = condition_of(experiment, "Failed")
    if condition is not None:
        answer = _failed(experiment, condition, evidence)
    else:
        answer = _succeeded(experiment, condition_of(experiment, "Succeeded") or {}, evidence)
    answer.findings.insert(0, progress_sentence(experiment))
    answer.findings.extend(best_sentences(experiment, evidence))
    return answer


def _succeeded(experiment: Json, condition: Json, evidence: Evidence) -> Answer:
    name, reason = name_of(experiment), str(condition.get("reason", ""))
    if "GoalReached" in reason:
        return Answer(f"{name} succeeded: {_goal_sentence(experiment, evidence)}")
    if "MaxTrials" in reason:
        limit = experiment.get("spec", {}).get("maxTrialCount")
        return Answer(
            f"{name} succeeded: all {limit} trials of its budget are done.",
            remedies=[more_trials(experiment, evidence.place.default_namespace, at_work=evidence.controllers_running)],
        )
    if "Exhausted" in reason or "EndReached" in reason:
        return _search_is_complete(experiment, evidence)
    return Answer(f"{name} succeeded: {condition_words(condition)}.")


def _search_is_complete(experiment: Json, evidence: Evidence) -> Answer:
    algorithm = experiment.get("spec", {}).get("algorithm", {}).get("algorithmName", "")
    explanation = str(status_of(evidence.suggestion or {}).get("explanation") or "").rstrip(".")
    if not explanation:
        return Answer(
            f"{name_of(experiment)} succeeded: every point of its search space was tried.",
            remedies=["Widen the search space under a new name if you want more trials."],
        )
    return Answer(
        f"{name_of(experiment)} succeeded: {algorithm} has nothing more to try.",
        findings=[f"What it said last: {explanation}."],
        remedies=["Change its settings or the search space under a new name if you want more trials."],
    )


def _goal_sentence(experiment: Json, evidence: Evidence) -> str:
    objective = objective_of(experiment)
    if has_several_objectives(experiment):
        return f"one trial reached all goals ({objective_words(experiment)})."
    metric, goal = objective.get("objectiveMetricName", ""), objective.get("goal")
    best = evidence.best
    if best is None:
        return f"the goal {metric}={goal} was reached."
    return f"{name_of(best)} reached the goal with {metric}={objective_value(best)} (goal {goal})."


def more_trials(experiment: Json, default_namespace: str, *, at_work: bool) -> str:
    """Return how an experiment that has used up its budget gets more trials, a sentence.

    Args:
        experiment: As it ended.
        default_namespace: The namespace that a command means which names none.
        at_work: Whether a server or another run works on its data directory, so that no run can be started there.
    """
    name, spec = name_of(experiment), experiment.get("spec", {})
    limit = int(spec.get("maxTrialCount") or 1)
    if not at_work and (again := run_again(experiment, f"--more {limit}")):
        return f"`{again}` runs {limit} more."
    if spec.get("resumePolicy", "") in ("LongRunning", "FromVolume"):
        option = _option(experiment, default_namespace)
        return f"`katib budget {name} --max-trials {2 * limit}{option}` runs {limit} more."
    return "For more trials, submit it under a new name; its resumePolicy does not let it go on."


def run_again(experiment: Json, option: str = "") -> str:
    """Return the command that ran an experiment, with one more option; empty where it is not known."""
    command = str((experiment.get("metadata", {}).get("annotations") or {}).get(COMMAND_ANNOTATION, ""))
    head, _, rest = command.removeprefix("katib ").partition(" ")
    return f"katib {head} {option} {rest}" if command and option else command


def _option(experiment: Json, default_namespace: str) -> str:
    """Return the option that names a namespace in a command; empty where it goes without saying."""
    namespace = namespace_of(experiment)
    return f" -n {namespace}" if namespace not in ("", default_namespace) else ""


def _failed(experiment: Json, condition: Json, evidence: Evidence) -> Answer:
    name, status = name_of(experiment), status_of(experiment)
    suggestion = condition_of(evidence.suggestion or {}, "Failed")
    if suggestion is not None:
        return Answer(
            f"{name} failed because its suggestion failed: {condition_words(suggestion)}.",
            remedies=["Fix spec.algorithm or the search space as the message says, and submit it again."],
        )
    lost = int(status.get("trialsFailed") or 0) + int(status.get("trialMetricsUnavailable") or 0)
    budget = experiment.get("spec", {}).get("maxFailedTrialCount")
    if condition.get("reason") in _WITHOUT_VALUE:
        cause = condition_words(condition).removeprefix("Experiment has failed because ")
        answer = Answer(f"{name} failed: {cause}.")
        _add_example(answer, experiment, evidence)
        return answer
    if budget is None or lost < max(1, int(budget)):
        return Answer(f"{name} failed: {condition_words(condition)}.")
    return _failure_budget(experiment, lost, int(budget), evidence)


def _failure_budget(experiment: Json, lost: int, budget: int, evidence: Evidence) -> Answer:
    answer = Answer(
        f"{name_of(experiment)} failed: {lost} trial{'s' * (lost != 1)} failed or had no metrics, "
        f"and maxFailedTrialCount is {budget}."
    )
    _add_example(answer, experiment, evidence)
    return answer


def _add_example(answer: Answer, experiment: Json, evidence: Evidence) -> None:
    """Add why most trials were lost, one of them to look at, and the command that shows its whole output."""
    failed = [t for t in evidence.trials if state_of(t) in ("Failed", "MetricsUnavailable")]
    if not failed:
        return
    cause, _ = _commonest(failed, evidence)
    names = [name_of(trial) for trial in failed]
    shown = ", ".join(names[:_SHOWN_TRIALS]) + (", ..." if len(names) > _SHOWN_TRIALS else "")
    answer.findings.append(common_cause(failed, evidence))
    answer.findings.append(f"These trials were lost: {shown}.")
    example = next(trial for trial in failed if cause_of_loss(trial, evidence) == cause)
    details = diagnose_trial(example, evidence)
    if state_of(example) == "MetricsUnavailable":
        answer.findings.extend(f"{name_of(example)}: {finding}" for finding in details.findings[:1])
    if last := next((line.strip() for line in reversed(details.log_tail) if line.strip()), ""):
        answer.findings.append(f"Look at {name_of(example)}, whose output ends with: {last}")
    answer.remedies.extend(details.remedies)
    option = _option(experiment, evidence.place.default_namespace)
    answer.remedies.append(f"`katib logs {name_of(example)}{option}` shows all of its output.")
    if again := run_again(experiment):
        answer.remedies.append(f"When it is fixed, `{again}` runs the failed trials again.")
    answer.log_tail = details.log_tail


def common_cause(lost: Sequence[Json], evidence: Evidence) -> str:
    """Return why most of some lost trials were lost, a sentence.

    Args:
        lost: One trial at least.
        evidence: What is known of their jobs.
    """
    cause, count = _commonest(lost, evidence)
    return f"Most common cause, {count} of {len(lost)} looked at: {cause}."


def _commonest(lost: Sequence[Json], evidence: Evidence) -> tuple[str, int]:
    return Counter(cause_of_loss(trial, evidence) for trial in lost).most_common(1)[0]


def cause_of_loss(trial: Json, evidence: Evidence) -> str:
    """Return in a few words why a trial brought no value, with the last line that it printed where that says it."""
    if state_of(trial) == "MetricsUnavailable":
        if (condition_of(trial, "MetricsUnavailable") or {}).get("reason") == METRICS_INCOMPLETE:
            return "not all metrics could be stored"
        metric = objective_of(trial).get("objectiveMetricName", "the objective metric")
        lost = metrics_loss(condition_of(trial, "MetricsUnavailable") or {})
        return lost or f"{metric} was not found in the output"
    return failure_cause(trial, evidence.jobs.get(name_of(trial), JobFacts()))
