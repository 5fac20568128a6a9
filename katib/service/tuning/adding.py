"""Adding a trial by hand to an experiment that runs."""

from __future__ import annotations

from collections.abc import Mapping

from katib.engine.controllers.kinds import EXPERIMENT, SUGGESTION
from katib.engine.controllers.suggestion.replies import initial_trials_left
from katib.engine.runtime.objects import Key, Object, ObjectStore
from katib.errors import FieldError, InvalidError, NotFoundError, UnavailableError, invalid
from katib.model.conditions import has_ended
from katib.model.decoding import decode_stored
from katib.model.defaults import with_defaults
from katib.model.space import check_assignments
from katib.model.types import Experiment, InitialTrial, ParameterAssignment, Suggestion
from katib.model.validation.history import MOST_INITIAL_TRIALS, check_names
from katib.service.tuning.writing import until_written

_PATH = "parameterAssignments"


def add_trial(store: ObjectStore, key: Key, assignments: Mapping[str, str]) -> int:
    """Have a trial run before those that the algorithm proposes next; return how many by hand come before it.

    It counts against the budget as any other trial.

    Args:
        assignments: Text by name of parameter: one for each.

    Raises:
        InvalidError: It is no point of the search space, or the experiment has no room for another trial.
        NotFoundError: There is no such experiment.
        UnavailableError: No controller has reconciled the experiment yet.
    """
    experiment = with_defaults(decode_stored(store.get(EXPERIMENT, key)))
    chosen = tuple(ParameterAssignment(name=name, value=value) for name, value in assignments.items())
    errors = point_errors(experiment, chosen)
    if errors:
        raise InvalidError(errors)
    if has_ended(experiment.status.conditions):
        where, cause = f"experiment {experiment.name}", "it has ended"
        raise invalid(where, cause, "raise spec.maxTrialCount first", "add-trial-ended")

    def attempt() -> int:
        found = _suggestion_of(store, key)
        suggestion = Suggestion.decode(found)
        _check_room(experiment, suggestion)
        listed = found.get("spec", {}).get("initialTrials") or ()
        added = InitialTrial(parameter_assignments=chosen).encode()
        store.patch(found, {"spec": {"initialTrials": [*listed, added]}})
        return initial_trials_left(suggestion)

    return until_written(attempt, key.name, "add the trial again")


def point_errors(experiment: Experiment, chosen: tuple[ParameterAssignment, ...]) -> list[FieldError]:
    """Return why assignments are no point of the search space."""
    if experiment.spec.nas_config is not None:
        cause = "an architecture search has no parameters to choose"
        return [FieldError(_PATH, cause, "leave it to the algorithm", "initial-trials-nas")]
    errors = list(check_names(experiment.spec, chosen, _PATH))
    spec = experiment.spec
    return errors or check_assignments(spec.parameters, chosen, spec.parameter_constraints)


def _check_room(experiment: Experiment, suggestion: Suggestion) -> None:
    left = initial_trials_left(suggestion)
    budget, given = experiment.spec.max_trial_count, suggestion.status.suggestion_count
    if budget is not None and given + left >= budget:
        cause = f"all {budget} trials of its budget have been chosen"
        raise invalid(f"experiment {experiment.name}", cause, "raise spec.maxTrialCount first", "add-trial-budget")
    if len(suggestion.spec.initial_trials) >= MOST_INITIAL_TRIALS:
        cause = f"{MOST_INITIAL_TRIALS} trials were chosen by hand already"
        raise invalid(f"experiment {experiment.name}", cause, "leave the rest to the algorithm", "add-trial-count")


def _suggestion_of(store: ObjectStore, key: Key) -> Object:
    try:
        return store.get(SUGGESTION, key)
    except NotFoundError:
        raise UnavailableError(f'experiment "{key.name}" has not started yet; add the trial in a moment') from None
