"""How an experiment ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from katib.api.names import METRICS_INCOMPLETE
from katib.explaining.answer import Answer, best_sentences, condition_words, progress_sentence
from katib.explaining.evidence import Evidence, JobFacts
from katib.explaining.trial import diagnose_trial, failure_cause, metrics_loss
from katib.tuning.reading import (
    condition_of,
    has_several_objectives,
    name_of,
    objective_of,
    objective_value,
    objective_words,
    state_of,
    status_of,
)
from katib.tuning.service import Json

_SHOWN_TRIALS = 3


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
            remedies=_resume_remedies(experiment),
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


def _resume_remedies(experiment: Json) -> list[str]:
    policy = experiment.get("spec", {}).get("resumePolicy", "")
    if policy in ("LongRunning", "FromVolume"):
        return ["Raise maxTrialCount and run the file again for more trials."]
    return ["For more trials, submit it under a new name, or with resumePolicy: LongRunning to be able to go on."]


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
    if budget is None or lost < max(1, int(budget)):
        return Answer(f"{name} failed: {condition_words(condition)}.")
    return _failure_budget(experiment, lost, int(budget), evidence)


def _failure_budget(experiment: Json, lost: int, budget: int, evidence: Evidence) -> Answer:
    failed = [t for t in evidence.trials if state_of(t) in ("Failed", "MetricsUnavailable")]
    answer = Answer(
        f"{name_of(experiment)} failed: {lost} trial{'s' * (lost != 1)} failed or had no metrics, "
        f"and maxFailedTrialCount is {budget}."
    )
    if not failed:
        return answer
    cause, _ = _commonest(failed, evidence)
    names = [name_of(trial) for trial in failed]
    shown = ", ".join(names[:_SHOWN_TRIALS]) + (", ..." if len(names) > _SHOWN_TRIALS else "")
    answer.findings.append(common_cause(failed, evidence))
    answer.findings.append(f"These trials were lost: {shown}.")
    example = next(trial for trial in failed if _cause(trial, evidence) == cause)
    details = diagnose_trial(example, evidence)
    if state_of(example) == "MetricsUnavailable":
        answer.findings.extend(f"{name_of(example)}: {finding}" for finding in details.findings[:1])
    answer.remedies.extend(details.remedies)
    answer.log_tail = details.log_tail
    return answer


def common_cause(lost: Sequence[Json], evidence: Evidence) -> str:
    """Return why most of some lost trials were lost, a sentence.

    Args:
        lost: One trial at least.
        evidence: What is known of their jobs.
    """
    cause, count = _commonest(lost, evidence)
    return f"Most common cause, {count} of {len(lost)} looked at: {cause}."


def _commonest(lost: Sequence[Json], evidence: Evidence) -> tuple[str, int]:
    return Counter(_cause(trial, evidence) for trial in lost).most_common(1)[0]


def _cause(trial: Json, evidence: Evidence) -> str:
    if state_of(trial) == "MetricsUnavailable":
        if (condition_of(trial, "MetricsUnavailable") or {}).get("reason") == METRICS_INCOMPLETE:
            return "not all metrics could be stored"
        metric = objective_of(trial).get("objectiveMetricName", "the objective metric")
        lost = metrics_loss(condition_of(trial, "MetricsUnavailable") or {})
        return lost or f"{metric} was not found in the output"
    return failure_cause(trial, evidence.jobs.get(name_of(trial), JobFacts()))
