"""Confirming an experiment: its best configurations as the trials of an experiment of its own, with other seeds.

That experiment is an ordinary one: its runs are initial trials, one of each configuration in turn, and its budget is
their number. An annotation has the configurations, with their values in the search. More runs are initial trials of its
Suggestion, as trials that are added by hand, written before the larger budget: a crash between the two leaves runs that
the next request counts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from msgspec import structs, to_builtins

from katib.engine.controllers.kinds import EXPERIMENT, SUGGESTION, owner_entry
from katib.engine.runtime.objects import Key, Object, ObjectStore
from katib.errors import NotFoundError, UnavailableError, invalid
from katib.model.algorithms import with_free_resource
from katib.model.decoding import decode_stored
from katib.model.defaults import with_defaults
from katib.model.features.repeats.feature import REPEATS
from katib.model.features.repeats.runs import ranked
from katib.model.names import (
    CHECKPOINTS_ANNOTATION,
    COMMAND_ANNOTATION,
    CONFIRMED_ANNOTATION,
    CONFIRMS_LABEL,
    FIRST_FAILURES_ANNOTATION,
    KUEUE_LABELS,
    LOST_LEASES_ANNOTATION,
    PARENT_LABEL,
    WORKSPACE_ANNOTATION,
    confirmation_name,
)
from katib.model.trials import cost, is_chosen, is_feasible
from katib.model.types import (
    AlgorithmSpec,
    Experiment,
    InitialTrial,
    ObjectiveSpec,
    ObjectMeta,
    ParameterAssignment,
    ResumePolicy,
    Suggestion,
    Trial,
)
from katib.model.validation.history import MOST_INITIAL_TRIALS
from katib.model.wording import counted
from katib.service.tuning.confirmations import (
    ConfirmedTrials,
    Point,
    SearchedTrial,
    confirmation_by,
    cost_of,
    point_of,
    trials_of,
)
from katib.service.tuning.editing import edit_experiment
from katib.service.tuning.reading import assignments_of
from katib.service.tuning.service import Confirm, Confirmation
from katib.service.tuning.states import is_at_rest, is_completed, last_condition, lost_count, state_of
from katib.service.tuning.writing import until_written

_ALGORITHM: Final = "random"
"""It is never asked: all trials are initial ones."""

_KEPT_ANNOTATIONS: Final = (
    WORKSPACE_ANNOTATION,
    CHECKPOINTS_ANNOTATION,
    FIRST_FAILURES_ANNOTATION,
    LOST_LEASES_ANNOTATION,
)
_OURS: Final = "katib.kubeflow.org/"


def confirm(
    store: ObjectStore, request: Confirm, create: Callable[[str], object], retry: Callable[[Key], object]
) -> Confirmation:
    """Create, continue or extend the experiment that confirms another one; return its findings so far.

    Raises:
        InvalidError: The experiment cannot be confirmed now.
        NotFoundError: There is no such experiment.
    """
    key = Key(request.namespace, request.name)
    source = with_defaults(decode_stored(store.get(EXPERIMENT, key)))
    objective = _confirmable(source)
    if request.top * request.repeats > MOST_INITIAL_TRIALS:
        cause = f"{request.repeats} runs of {request.top} configurations are more than {MOST_INITIAL_TRIALS}"
        raise invalid("repeats", cause, "ask for fewer", "confirm-count")
    best = _best_trials(source, objective, trials_of(store, key))[: request.top]
    _check_repeatable(source, best)
    searched = tuple(
        SearchedTrial(trial.name, cost(objective.terms[0], value), assignments_of(trial)) for value, trial in best
    )
    wanted = ConfirmedTrials(source.metadata.uid, searched)
    own = Key(key.namespace, confirmation_name(key.name))
    try:
        stored = decode_stored(store.get(EXPERIMENT, own))
    except NotFoundError:
        create(json.dumps(_document(source, objective, wanted, request)))
    else:
        _check_own(stored, source)
        if request.retry_failed and lost_count(stored):
            retry(own)
        elif state_of(stored) == "Failed":
            cause = f"it failed: {last_condition(stored).message}"
            raise invalid(
                f"experiment {own.name}",
                cause,
                f"repeat the request with retryFailed (--retry-failed); on a cluster, delete {own.name} first",
                "confirm-failed",
            )
        until_written(lambda: _extend(store, own, wanted, request.repeats), own.name, "confirm it again")
        if not is_completed(stored):
            counts = {} if request.parallel is None else {"parallelTrialCount": request.parallel}
            edit_experiment(store, own, counts=counts, stopped=False)
    until_written(lambda: _owned(store, own, source), own.name, "confirm it again")
    found = confirmation_by(store, Experiment.read(store.get(EXPERIMENT, own)))
    few = f"Only {counted(len(best), 'configuration')} of {key.name} {'has' if len(best) == 1 else 'have'} a value."
    return structs.replace(found, notes=(few, *found.notes)) if len(best) < request.top else found


def _confirmable(source: Experiment) -> ObjectiveSpec:
    """Return the objective of an experiment that can be confirmed. Raises InvalidError for any other."""
    where = f"experiment {source.name}"
    if (other := source.metadata.labels.get(CONFIRMS_LABEL)) is not None:
        raise invalid(where, f"it confirms {other} already", f"confirm {other}, with more repeats", "confirm-itself")
    if source.spec.nas_config is not None:
        raise invalid(where, "an architecture search has no parameters to run again", "submit it again", "confirm-nas")
    if is_chosen(source) or source.spec.objective is None:
        cause, remedy = "callers choose the parameters of its trials", "run the best ones again in that program"
        raise invalid(where, cause, remedy, "confirm-chosen")
    if not is_completed(source) and not is_at_rest(source):
        cause = "it still runs, so that its best configurations may change"
        raise invalid(where, cause, f"wait for its end, or use `katib stop {source.name}`", "confirm-running")
    return source.spec.objective


def _best_trials(source: Experiment, objective: ObjectiveSpec, trials: Iterator[Trial]) -> list[tuple[float, Trial]]:
    """Return the best trial of each configuration that succeeded, with its cost, the best first.

    If the search repeats its trials, that is the mean, and configurations with all runs come before others.
    """
    best: dict[Point, tuple[float, Trial]] = {}
    if (repeats := REPEATS.read(source.metadata.annotations)) > 1:
        means = ranked(trials, repeats)
        best = {point_of(assignments_of(trial)): (sample.mean, trial) for sample, trial in means}
        trials = iter(())
    for trial in trials:
        value, point = cost_of(objective, trial), point_of(assignments_of(trial))
        if value is None or not is_feasible(objective, trial.status.observation):
            continue
        if point not in best or value < best[point][0]:
            best[point] = value, trial
    if not best:
        cause = "no trial succeeded with a value" + (" within the constraints" if objective.constraints else "")
        raise invalid(f"experiment {source.name}", cause, f"`katib why {source.name}` tells why", "confirm-nothing")
    return list(best.values()) if repeats > 1 else sorted(best.values(), key=lambda pair: pair[0])


def _check_repeatable(source: Experiment, best: Sequence[tuple[float, Trial]]) -> None:
    parents = [(trial.name, parent) for _, trial in best if (parent := trial.metadata.labels.get(PARENT_LABEL))]
    if parents:
        cause = (
            f"{parents[0][0]} continues from the checkpoint of {parents[0][1]}, so that its values alone do not make it"
        )
        raise invalid(f"experiment {source.name}", cause, "run the whole search again", "confirm-checkpoint")


def _check_own(stored: Experiment, source: Experiment) -> None:
    where, remedy = f"experiment {stored.name}", f"delete it first, with `katib delete {stored.name}`"
    if stored.metadata.labels.get(CONFIRMS_LABEL) != source.name:
        raise invalid(where, f"it does not confirm {source.name}, and has the name for that", remedy, "confirm-name")
    if ConfirmedTrials.of(stored).uid != source.metadata.uid:
        raise invalid(where, f"it confirms an earlier experiment named {source.name}", remedy, "confirm-earlier")


def _owned(store: ObjectStore, own: Key, source: Experiment) -> None:
    """Let the experiment be deleted with the one that it confirms."""
    found = store.get(EXPERIMENT, own)
    if not found["metadata"].get("ownerReferences"):
        owner = {**owner_entry(source), "controller": False, "blockOwnerDeletion": False}
        store.patch(found, {"metadata": {"ownerReferences": [owner]}})


def _document(
    source: Experiment, objective: ObjectiveSpec, wanted: ConfirmedTrials, request: Confirm
) -> dict[str, Any]:
    settings = () if source.spec.algorithm is None else source.spec.algorithm.algorithm_settings
    first = _missing(Counter(), wanted, request.repeats)
    parallel = request.parallel or source.spec.parallel_trial_count or 1
    spec = structs.replace(
        source.spec,
        objective=structs.replace(
            objective, goal=None, objectives=tuple(structs.replace(one, goal=None) for one in objective.objectives)
        ),
        algorithm=AlgorithmSpec(algorithm_name=_ALGORITHM),
        early_stopping=None,
        warm_start=None,
        parameters=tuple(
            structs.replace(one, default=None, prior=None)
            for one in with_free_resource(settings, source.spec.parameters)
        ),
        initial_trials=first,
        max_trial_count=len(first),
        parallel_trial_count=min(parallel, len(first)),
        max_failed_trial_count=None,
        resume_policy=ResumePolicy.FROM_VOLUME,
    )
    given = source.metadata
    annotations = {
        name: text
        for name, text in given.annotations.items()
        if name in _KEPT_ANNOTATIONS or name.startswith(KUEUE_LABELS)
    }
    if request.command:
        annotations[COMMAND_ANNOTATION] = request.command
    labels = {name: text for name, text in given.labels.items() if not name.startswith(_OURS)}
    metadata = ObjectMeta(
        name=confirmation_name(source.name),
        namespace=source.namespace,
        labels={**labels, CONFIRMS_LABEL: source.name},
        annotations={**annotations, CONFIRMED_ANNOTATION: _text(wanted)},
    )
    return Experiment(metadata=metadata, spec=spec).encode()


def _text(wanted: ConfirmedTrials) -> str:
    return json.dumps(to_builtins(wanted))


def _missing(listed: Counter[Point], wanted: ConfirmedTrials, repeats: int) -> tuple[InitialTrial, ...]:
    """Return the runs to add: one of each configuration in turn, so that an interrupted confirmation is even."""
    return tuple(
        InitialTrial(
            parameter_assignments=tuple(ParameterAssignment(name=n, value=v) for n, v in one.parameters.items())
        )
        for number in range(repeats)
        for one in wanted.trials
        if listed[point_of(one.parameters)] <= number
    )


def _extend(store: ObjectStore, own: Key, wanted: ConfirmedTrials, repeats: int) -> None:
    """Add the runs that an experiment lacks, and raise its budget."""
    found = store.get(EXPERIMENT, own)
    experiment, suggestion = Experiment.read(found), _suggestion_of(store, own)
    before = Suggestion.decode(suggestion).spec.initial_trials if suggestion else experiment.spec.initial_trials
    listed = Counter(frozenset((a.name, a.value) for a in one.parameter_assignments) for one in before)
    added = _missing(listed, wanted, repeats)
    budget = len(before) + len(added)
    if budget > MOST_INITIAL_TRIALS:
        cause = f"{budget} runs in all are more than {MOST_INITIAL_TRIALS}"
        raise invalid("repeats", cause, "ask for fewer", "confirm-count")
    if added and suggestion is None:
        raise UnavailableError(f"experiment {own.name} has not started yet; confirm it again in a moment")
    if added and suggestion is not None:
        both = [*(suggestion["spec"].get("initialTrials") or ()), *(one.encode() for one in added)]
        store.patch(suggestion, {"spec": {"initialTrials": both}})
    known = ConfirmedTrials.of(experiment)
    names = {one.trial for one in known.trials}
    more = structs.replace(known, trials=(*known.trials, *(one for one in wanted.trials if one.trial not in names)))
    changes: dict[str, Any] = {}
    if more != known:
        changes["metadata"] = {"annotations": {CONFIRMED_ANNOTATION: _text(more)}}
    if budget != experiment.spec.max_trial_count:
        changes["spec"] = {"maxTrialCount": budget}
    if changes:
        store.patch(found, changes)


def _suggestion_of(store: ObjectStore, key: Key) -> Object | None:
    try:
        return store.get(SUGGESTION, key)
    except NotFoundError:
        return None
