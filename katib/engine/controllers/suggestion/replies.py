"""Questions to a service and the effect of its replies on a Suggestion. Pure: no I/O, no clock.

Theory of operation: `suggestionCount` counts every assignment ever accepted and never falls; `suggestions` keeps those
that no trial has taken. An assignment's name comes from its number, so accepting the same reply twice gives the same
names, and the compare-and-set on the object lets only one of the two through.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter

from msgspec import structs

from katib.engine.controllers.ports import SuggestionsReply
from katib.engine.controllers.suggestion import states
from katib.model.algorithms import with_free_resource
from katib.model.conditions import set_condition, without_condition
from katib.model.names import BY_DEFAULT, BY_USER, CHOSEN_BY_LABEL, trial_name
from katib.model.space.assignments import check_assignments, first_trials, has_defaults
from katib.model.types import (
    AlgorithmSetting,
    AlgorithmSpec,
    EarlyStoppingRule,
    Experiment,
    ObjectMeta,
    ParameterSpec,
    Suggestion,
    SuggestionStatus,
    Trial,
    TrialAssignment,
    TrialCondition,
    TrialSpec,
    TrialStatus,
)

MOST_AT_ONCE = 256
"""Assignments that a question asks for if replies violate the constraints."""

_NAME = attrgetter("name")
_DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


class MalformedReplyError(Exception):
    """An unusable answer of a service."""


class RejectedReplyError(MalformedReplyError):
    """An answer whose assignments all violate the constraints on the parameters, which the service may not know."""


@dataclass(frozen=True, slots=True)
class Question:
    """A request for assignments, and its position.

    Attributes:
        base: `suggestionCount` at the time of asking.
        spare: Number of these that are not needed, in case others violate the constraints.
        ended: Number of ended trials at that time, that is, the evidence of the answer.
        initial: Number of counted initial trials, which the service does not know.
    """

    base: int
    wanted: int
    ended: int = 0
    initial: int = 0
    spare: int = 0


def open_question(suggestion: Suggestion, ended: int = 0, rejections: int = 0) -> Question | None:
    """Return the next question; None if nothing is outstanding.

    Args:
        ended: Number of ended trials of the experiment.
        rejections: Number of replies in a row without an allowed assignment: the next one is twice as long each time,
            so that a service whose answer depends on its number alone gives others.
    """
    wanted = suggestion.spec.requests - suggestion.status.suggestion_count
    if wanted <= 0 or states.is_exhausted(suggestion.status.conditions):
        return None
    asked = max(wanted, min(wanted << min(rejections, 10), MOST_AT_ONCE))
    given = suggestion.status.initial_trials_given
    return Question(suggestion.status.suggestion_count, asked, ended, given, asked - wanted)


def initial_trials_left(suggestion: Suggestion) -> int:
    """Return the number of initial trials that have not become assignments yet."""
    return max(len(suggestion.spec.initial_trials) - suggestion.status.initial_trials_given, 0)


def with_initial_trials(experiment: Experiment, suggestion: Suggestion, taken: Container[str]) -> SuggestionStatus:
    """Return the status of a Suggestion after turning initial trials into the wanted assignments."""
    status, given = suggestion.status, suggestion.status.initial_trials_given
    wanted = max(suggestion.spec.requests - status.suggestion_count, 0)
    chosen = suggestion.spec.initial_trials[given : given + wanted]
    waiting = waiting_assignments(suggestion, taken)
    names = _UsedNames(set(map(_NAME, waiting)), taken)
    new: list[TrialAssignment] = []
    is_default = given == 0 and has_defaults(experiment.spec)
    for i, trial in enumerate(chosen, status.suggestion_count):
        name = trial_name(experiment.namespace, experiment.name, i, names)
        names.waiting.add(name)
        labels = {CHOSEN_BY_LABEL: BY_DEFAULT if is_default and not new else BY_USER}
        new.append(TrialAssignment(name=name, parameter_assignments=trial.parameter_assignments, labels=labels))
    return structs.replace(
        status,
        suggestions=(*waiting, *new),
        suggestion_count=status.suggestion_count + len(new),
        initial_trials_given=given + len(new),
    )


def waiting_assignments(suggestion: Suggestion | None, taken: Container[str]) -> tuple[TrialAssignment, ...]:
    """Return the assignments that no trial has taken.

    Args:
        suggestion: The Suggestion; None counts as one without assignments.
        taken: Names of the experiment's trials.
    """
    if suggestion is None:
        return ()
    return tuple([a for a in suggestion.status.suggestions if a.name not in taken])


def accepted(
    experiment: Experiment,
    suggestion: Suggestion,
    asked: Question,
    reply: SuggestionsReply,
    *,
    taken: Container[str],
    now: datetime,
) -> SuggestionStatus:
    """Return the status of a Suggestion that accepts a reply.

    Raises:
        RejectedReplyError: None of its assignments satisfies the constraints.
        MalformedReplyError: The reply has the wrong number of assignments, an assignment outside the search space, or
            an invalid trial name.
    """
    conditions = suggestion.status.conditions
    given = len(reply.assignments)
    if given > asked.wanted or (given < asked.wanted and not reply.exhausted and not reply.waits):
        raise MalformedReplyError(f"{given} assignments were given where {asked.wanted} were asked for")
    if given == asked.base == 0 and not reply.waits:
        raise MalformedReplyError("the very first answer holds no assignment; a search space has at least one point")
    if reply.waits:
        conditions = states.waiting_for_trials(conditions, reply.explanation, now)
    else:
        conditions = without_condition(conditions, states.WAITING)
        conditions = states.exhausted(conditions, now) if reply.exhausted else conditions
    waiting = waiting_assignments(suggestion, taken)
    names = _UsedNames(set(map(_NAME, waiting)), taken)
    new: list[TrialAssignment] = []
    rejected = ""
    for suggested in reply.assignments:
        if len(new) == asked.wanted - asked.spare:
            break
        if rejected_by := _rejection(experiment, suggested):
            rejected = rejected_by
            continue
        assignment = _assignment(experiment, suggested, asked.base + len(new), reply.rules, names)
        names.waiting.add(assignment.name)
        new.append(assignment)
    if rejected and not new and not reply.exhausted and not reply.waits:
        raise RejectedReplyError(rejected)
    return structs.replace(
        suggestion.status,
        suggestions=(*waiting, *new),
        suggestion_count=asked.base + len(new),
        algorithm_settings=merged_settings(suggestion.status.algorithm_settings, reply.algorithm_settings),
        conditions=conditions,
        explanation=reply.explanation or suggestion.status.explanation,
    )


@dataclass(frozen=True, slots=True)
class _UsedNames:
    """The names of waiting assignments and trials."""

    waiting: set[str]
    taken: Container[str]

    def __contains__(self, name: object) -> bool:
        return name in self.waiting or name in self.taken


def _rejection(experiment: Experiment, suggested: TrialAssignment) -> str:
    """Return which constraint an assignment violates; empty if none, or if it is no point of the search space."""
    constraints = experiment.spec.parameter_constraints
    if not constraints:
        return ""
    errors = check_assignments(_parameters(experiment), suggested.parameter_assignments, constraints)
    return next((error.cause for error in errors if error.origin == "assignment-constraint"), "")


def _parameters(experiment: Experiment) -> Sequence[ParameterSpec]:
    algorithm = experiment.spec.algorithm or AlgorithmSpec()
    return with_free_resource(algorithm.algorithm_settings, experiment.spec.parameters)


def _assignment(
    experiment: Experiment,
    suggested: TrialAssignment,
    index: int,
    rules: tuple[EarlyStoppingRule, ...],
    used: Container[str],
) -> TrialAssignment:
    if experiment.spec.parameters:
        errors = check_assignments(_parameters(experiment), suggested.parameter_assignments)
        if errors:
            raise MalformedReplyError("; ".join(f"{e.path}: {e.cause}" for e in errors))
    name = suggested.name or trial_name(experiment.namespace, experiment.name, index, used)
    if name in used:
        raise MalformedReplyError(f'trial name "{name}" is taken')
    if not _DNS_LABEL.fullmatch(name):
        raise MalformedReplyError(f'trial name "{name}" is not a DNS label')
    return TrialAssignment(
        name=name,
        parameter_assignments=suggested.parameter_assignments,
        early_stopping_rules=rules,
        labels=suggested.labels,
    )


def merged_settings(old: Sequence[AlgorithmSetting], new: Sequence[AlgorithmSetting]) -> tuple[AlgorithmSetting, ...]:
    """Return the old settings, with those of equal name replaced in place and the others appended."""
    if not old and not new:
        return ()
    merged = {s.name: s for s in old} | {s.name: s for s in new}
    return tuple(merged.values())


def asked_about(experiment: Experiment, suggestion: Suggestion) -> Experiment:
    """Return the experiment sent to the service: its settings overridden by those the service gave.

    Its initial trials include that of the defaults.
    """
    algorithm = experiment.spec.algorithm or AlgorithmSpec()
    settings = merged_settings(algorithm.algorithm_settings, suggestion.status.algorithm_settings)
    first = first_trials(experiment.spec)
    if (
        algorithm is experiment.spec.algorithm
        and settings == algorithm.algorithm_settings
        and first is experiment.spec.initial_trials
    ):
        return experiment
    algorithm = structs.replace(algorithm, algorithm_settings=settings)
    return structs.replace(experiment, spec=structs.replace(experiment.spec, algorithm=algorithm, initial_trials=first))


def waiting_trials(experiment: Experiment, waiting: Sequence[TrialAssignment], now: datetime) -> tuple[Trial, ...]:
    """Return the future trials of waiting assignments, so that the service counts them as pending."""
    conditions = set_condition((), TrialCondition.CREATED, "TrialCreated", "Trial is created", now)
    return tuple(
        Trial(
            metadata=ObjectMeta(
                name=a.name, namespace=experiment.namespace, uid=f"waiting-{a.name}", resource_version="0"
            ),
            spec=TrialSpec(
                objective=experiment.spec.objective,
                parameter_assignments=a.parameter_assignments,
                labels=a.labels,
            ),
            status=TrialStatus(conditions=conditions),
        )
        for a in waiting
    )
