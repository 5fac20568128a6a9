"""How an experiment ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from katib.api.names import METRICS_INCOMPLETE
from katib.api.types import Condition, Experiment, Trial
from katib.explaining.answer import Answer, best_sentences, condition_words, progress_sentence
from katib.explaining.evidence import Evidence, JobFacts
from katib.explaining.trial import diagnose_trial, failure_cause, metrics_loss
from katib.tuning.reading import (
    algorithm_of,
    condition_of,
    has_several_objectives,
    held_condition,
    lost_count,
    metric_of,
    objective_value,
    objective_words,
    state_of,
)

_SHOWN_TRIALS = 3


def explain_ended(experiment: Experiment, evidence: Evidence) -> Answer:
    """Return by which rule an experiment ended, and what of its trials explains it."""
    condition = condition_of(experiment, "Failed")
    if condition is not None:
        answer = _failed(experiment, condition, evidence)
    else:
        answer = _succeeded(experiment, held_condition(experiment, "Succeeded"), evidence)
    answer.findings.insert(0, progress_sentence(experiment))
    answer.findings.extend(best_sentences(experiment, evidence))
    return answer


def _succeeded(experiment: Experiment, condition: Condition, evidence: Evidence) -> Answer:
    name, reason = experiment.name, condition.reason
    if "GoalReached" in reason:
        return Answer(f"{name} succeeded: {_goal_sentence(experiment, evidence)}")
    if "MaxTrials" in reason:
        return Answer(
            f"{name} succeeded: all {experiment.spec.max_trial_count} trials of its budget are done.",
            remedies=_resume_remedies(experiment),
        )
    if "Exhausted" in reason or "EndReached" in reason:
        return _search_is_complete(experiment, evidence)
    return Answer(f"{name} succeeded: {condition_words(condition)}.")


def _search_is_complete(experiment: Experiment, evidence: Evidence) -> Answer:
    explanation = "" if evidence.suggestion is None else evidence.suggestion.status.explanation.rstrip(".")
    if not explanation:
        return Answer(
            f"{experiment.name} succeeded: every point of its search space was tried.",
            remedies=["Widen the search space under a new name if you want more trials."],
        )
    return Answer(
        f"{experiment.name} succeeded: {algorithm_of(experiment)} has nothing more to try.",
        findings=[f"What it said last: {explanation}."],
        remedies=["Change its settings or the search space under a new name if you want more trials."],
    )


def _goal_sentence(experiment: Experiment, evidence: Evidence) -> str:
    if has_several_objectives(experiment):
        return f"one trial reached all goals ({objective_words(experiment)})."
    metric, best = metric_of(experiment), evidence.best
    goal = None if experiment.spec.objective is None else experiment.spec.objective.goal
    if best is None:
        return f"the goal {metric}={goal} was reached."
    return f"{best.name} reached the goal with {metric}={objective_value(best)} (goal {goal})."


def _resume_remedies(experiment: Experiment) -> list[str]:
    if experiment.spec.resume_policy in ("LongRunning", "FromVolume"):
        return ["Raise maxTrialCount and run the file again for more trials."]
    return ["For more trials, submit it under a new name, or with resumePolicy: LongRunning to be able to go on."]


def _failed(experiment: Experiment, condition: Condition, evidence: Evidence) -> Answer:
    name = experiment.name
    suggestion = condition_of(evidence.suggestion, "Failed")
    if suggestion is not None:
        return Answer(
            f"{name} failed because its suggestion failed: {condition_words(suggestion)}.",
            remedies=["Fix spec.algorithm or the search space as the message says, and submit it again."],
        )
    lost, budget = lost_count(experiment), experiment.spec.max_failed_trial_count
    if budget is None or lost < max(1, budget):
        return Answer(f"{name} failed: {condition_words(condition)}.")
    return _failure_budget(experiment, lost, budget, evidence)


def _failure_budget(experiment: Experiment, lost: int, budget: int, evidence: Evidence) -> Answer:
    failed = [t for t in evidence.trials if state_of(t) in ("Failed", "MetricsUnavailable")]
    answer = Answer(
        f"{experiment.name} failed: {lost} trial{'s' * (lost != 1)} failed or had no metrics, "
        f"and maxFailedTrialCount is {budget}."
    )
    if not failed:
        return answer
    cause, _ = _commonest(failed, evidence)
    names = [trial.name for trial in failed]
    shown = ", ".join(names[:_SHOWN_TRIALS]) + (", ..." if len(names) > _SHOWN_TRIALS else "")
    answer.findings.append(common_cause(failed, evidence))
    answer.findings.append(f"These trials were lost: {shown}.")
    example = next(trial for trial in failed if _cause(trial, evidence) == cause)
    details = diagnose_trial(example, evidence)
    if state_of(example) == "MetricsUnavailable":
        answer.findings.extend(f"{example.name}: {finding}" for finding in details.findings[:1])
    answer.remedies.extend(details.remedies)
    answer.log_tail = details.log_tail
    return answer


def common_cause(lost: Sequence[Trial], evidence: Evidence) -> str:
    """Return why most of some lost trials were lost, a sentence.

    Args:
        lost: One trial at least.
        evidence: What is known of their jobs.
    """
    cause, count = _commonest(lost, evidence)
    return f"Most common cause, {count} of {len(lost)} looked at: {cause}."


def _commonest(lost: Sequence[Trial], evidence: Evidence) -> tuple[str, int]:
    return Counter(_cause(trial, evidence) for trial in lost).most_common(1)[0]


def _cause(trial: Trial, evidence: Evidence) -> str:
    if state_of(trial) == "MetricsUnavailable":
        condition = held_condition(trial, "MetricsUnavailable")
        if condition.reason == METRICS_INCOMPLETE:
            return "not all metrics could be stored"
        return metrics_loss(condition) or f"{metric_of(trial) or 'the objective metric'} was not found in the output"
    return failure_cause(trial, evidence.jobs.get(trial.name, JobFacts()))
