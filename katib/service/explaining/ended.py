"""How an experiment ended."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from katib.model.failure_text import last_line
from katib.model.features.feature import Feature
from katib.model.features.listed import ENDINGS
from katib.model.names import COMMAND_ANNOTATION, METRICS_INCOMPLETE
from katib.model.types import Condition, Experiment, Trial
from katib.model.wording import counted, number_text
from katib.service.explaining.answer import DiagnosisDraft, best_sentences, condition_words, progress_sentence
from katib.service.explaining.edges import edge_sentences
from katib.service.explaining.evidence import Evidence, JobFacts
from katib.service.explaining.trial import PODS_REFUSED, diagnose_trial, failure_cause, metrics_loss
from katib.service.tuning.reading import algorithm_of, metric_of, objective_words
from katib.service.tuning.states import (
    condition_of,
    has_several_objectives,
    held_condition,
    lost_count,
    namespace_option,
    objective_value,
    state_of,
)

_SHOWN_TRIALS = 3
_WITHOUT_VALUE = frozenset({"ExperimentNoUsableTrial", "ExperimentFirstTrialsFailed"})
"""Reasons of an experiment that failed because no trial brought a value."""


def explain_ended(experiment: Experiment, evidence: Evidence) -> DiagnosisDraft:
    """Return the rule by which an experiment ended, and the trials that explain it."""
    condition = condition_of(experiment, "Failed")
    ended = condition or held_condition(experiment, "Succeeded")
    if (feature := ENDINGS.get(ended.reason)) is not None:
        answer = _ended_by(feature, experiment, has_failed=condition is not None)
    elif condition is not None:
        answer = _failed(experiment, condition, evidence)
    else:
        answer = _succeeded(experiment, ended, evidence)
        _add_lost(answer, experiment, evidence)
    answer.findings.insert(0, progress_sentence(experiment))
    answer.findings.extend(best_sentences(experiment, evidence))
    answer.findings.extend(edge_sentences(experiment))
    return answer


def _succeeded(experiment: Experiment, condition: Condition, evidence: Evidence) -> DiagnosisDraft:
    name, reason = experiment.name, condition.reason
    if "GoalReached" in reason:
        return DiagnosisDraft(f"{name} succeeded: {_goal_sentence(experiment, evidence)}")
    if "MaxTrials" in reason:
        budget = experiment.spec.max_trial_count
        done = "the one trial of its budget is done" if budget == 1 else f"all {budget} trials of its budget are done"
        return DiagnosisDraft(
            f"{name} succeeded: {done}.",
            remedies=[more_trials(experiment, evidence.place.default_namespace, at_work=evidence.controllers_running)],
        )
    if "Exhausted" in reason or "EndReached" in reason:
        return _search_is_complete(experiment, evidence)
    return DiagnosisDraft(f"{name} succeeded: {condition_words(condition)}.")


def _add_lost(answer: DiagnosisDraft, experiment: Experiment, evidence: Evidence) -> None:
    """Add the number of trials without a value of a successful experiment, and the command to retry them."""
    if lost := [t for t in evidence.trials if state_of(t) in ("Failed", "MetricsUnavailable")]:
        answer.findings.append(f"{lost_sentence(experiment)} {common_cause(lost, evidence)}")
        if again := run_again(experiment, "--retry-failed"):
            answer.remedies.append(f"When that is fixed, `{again}` runs the failed trials again.")


def lost_sentence(experiment: Experiment) -> str:
    """Return the number of trials without a value."""
    return f"{lost_count(experiment)} of {counted(experiment.status.trials, 'trial')} failed or had no metrics."


def _ended_by(feature: Feature, experiment: Experiment, *, has_failed: bool) -> DiagnosisDraft:
    again = run_again(experiment, feature.larger_option(experiment))
    larger = f"`{again}` continues with twice as much." if again else "A larger one under a new name has more trials."
    verb, rest = ("failed", ", and no trial brought a value") if has_failed else ("succeeded", "")
    return DiagnosisDraft(f"{experiment.name} {verb}: {feature.end(experiment)}{rest}.", remedies=[larger])


def _search_is_complete(experiment: Experiment, evidence: Evidence) -> DiagnosisDraft:
    explanation = "" if evidence.suggestion is None else evidence.suggestion.status.explanation.rstrip(".")
    if not explanation:
        return DiagnosisDraft(
            f"{experiment.name} succeeded: every point of its search space was tried.",
            remedies=["Widen the search space under a new name if you want more trials."],
        )
    return DiagnosisDraft(
        f"{experiment.name} succeeded: {algorithm_of(experiment)} has nothing more to try.",
        findings=[f"What it said last: {explanation}."],
        remedies=["Change its settings or the search space under a new name if you want more trials."],
    )


def _goal_sentence(experiment: Experiment, evidence: Evidence) -> str:
    if has_several_objectives(experiment):
        return f"one trial reached all goals ({objective_words(experiment)})."
    metric, best = metric_of(experiment), evidence.best
    objective = experiment.spec.objective
    goal = "" if objective is None or objective.goal is None else number_text(objective.goal)
    if best is None:
        return f"the goal {metric}={goal} was reached."
    return f"{best.name} reached the goal with {metric}={objective_value(best)} (goal {goal})."


def more_trials(experiment: Experiment, default_namespace: str, *, at_work: bool) -> str:
    """Return how an experiment with an exhausted budget gets more trials, as a sentence.

    Args:
        default_namespace: Namespace of commands that name none.
        at_work: Whether a server or another run works on its data directory, so that its budget can be changed.
    """
    name, limit = experiment.name, experiment.spec.max_trial_count or 1
    again = run_again(experiment, f"--more {limit}")
    if again and not at_work:
        return f"`{again}` runs {limit} more."
    if experiment.spec.resume_policy in ("LongRunning", "FromVolume"):
        option = namespace_option(experiment, default_namespace)
        return f"`katib budget {name} --max-trials {2 * limit}{option}` runs {limit} more."
    if again:
        return f"`{again}` runs {limit} more."
    return "For more trials, submit it under a new name; its resumePolicy does not let it resume."


def run_again(experiment: Experiment, option: str = "") -> str:
    """Return the command that ran an experiment, with one more option; empty if unknown."""
    command = experiment.metadata.annotations.get(COMMAND_ANNOTATION, "")
    head, _, rest = command.removeprefix("katib ").partition(" ")
    name = option.partition(" ")[0]
    rest = re.sub(rf"(^| ){name}[ =]('[^']*'|\S+)", "", rest).strip() if name else rest
    return f"katib {head} {option} {rest}" if command and option else command


def _failed(experiment: Experiment, condition: Condition, evidence: Evidence) -> DiagnosisDraft:
    name = experiment.name
    suggestion = condition_of(evidence.suggestion, "Failed")
    if suggestion is not None:
        return DiagnosisDraft(
            f"{name} failed because its suggestion failed: {condition_words(suggestion)}.",
            remedies=["Fix spec.algorithm or the search space as the message says, and submit it again."],
        )
    if condition.reason in _WITHOUT_VALUE:
        cause = condition_words(condition).removeprefix("Experiment has failed because ")
        answer = DiagnosisDraft(f"{name} failed: {cause}.")
        _add_example(answer, experiment, evidence)
        return answer
    lost, budget = lost_count(experiment), experiment.spec.max_failed_trial_count
    if budget is None or lost < max(1, budget):
        return DiagnosisDraft(f"{name} failed: {condition_words(condition)}.")
    return _failure_budget(experiment, lost, budget, evidence)


def _failure_budget(experiment: Experiment, lost: int, budget: int, evidence: Evidence) -> DiagnosisDraft:
    answer = DiagnosisDraft(
        f"{experiment.name} failed: {counted(lost, 'trial')} failed or had no metrics, "
        f"and maxFailedTrialCount is {budget}."
    )
    _add_example(answer, experiment, evidence)
    return answer


def _add_example(answer: DiagnosisDraft, experiment: Experiment, evidence: Evidence) -> None:
    """Add why most trials failed, an example, and the command that shows its whole output."""
    failed = [t for t in evidence.trials if state_of(t) in ("Failed", "MetricsUnavailable")]
    if not failed:
        return
    cause, _ = _commonest(failed, evidence)
    names = [trial.name for trial in failed]
    shown = ", ".join(names[:_SHOWN_TRIALS]) + (", ..." if len(names) > _SHOWN_TRIALS else "")
    answer.findings.append(common_cause(failed, evidence))
    answer.findings.append(f"These trials were lost: {shown}.")
    example = next(trial for trial in failed if cause_of_loss(trial, evidence) == cause)
    details = diagnose_trial(example, evidence)
    if state_of(example) == "MetricsUnavailable":
        answer.findings.extend(f"{example.name}: {finding}" for finding in details.findings[:1])
    if last := last_line("\n".join(details.log_tail).encode()):
        answer.findings.append(f"Look at {example.name}, whose output ends with: {last}")
    answer.remedies.extend(details.remedies)
    option = namespace_option(experiment, evidence.place.default_namespace)
    if held_condition(example, "Failed").reason != PODS_REFUSED and "`katib logs" not in str(details.remedies):
        answer.remedies.append(f"`katib logs {example.name}{option}` shows all of its output.")
    has_value = evidence.best is not None or experiment.status.trials_succeeded
    if again := run_again(experiment, "--retry-failed" if has_value else ""):
        answer.remedies.append(f"When it is fixed, `{again}` runs the failed trials again.")
    answer.log_tail = details.log_tail


def common_cause(lost: Sequence[Trial], evidence: Evidence) -> str:
    """Return the most common cause of some lost trials, as a sentence."""
    cause, count = _commonest(lost, evidence)
    return f"Most common cause, {count} of {len(lost)} looked at: {cause}."


def _commonest(lost: Sequence[Trial], evidence: Evidence) -> tuple[str, int]:
    return Counter(cause_of_loss(trial, evidence) for trial in lost).most_common(1)[0]


def cause_of_loss(trial: Trial, evidence: Evidence) -> str:
    """Return in a few words why a trial brought no value, with the last line of its output if that has the cause."""
    if state_of(trial) == "MetricsUnavailable":
        condition = held_condition(trial, "MetricsUnavailable")
        if condition.reason == METRICS_INCOMPLETE:
            return "not all metrics could be stored"
        return metrics_loss(condition) or f"{metric_of(trial) or 'the objective metric'} was not found in the output"
    return failure_cause(trial, evidence.jobs.get(trial.name, JobFacts()))
