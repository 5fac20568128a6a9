"""States of objects, and counts of trials, for surfaces. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from katib.model import types
from katib.model.conditions import find_condition, has_ended
from katib.model.failure_text import trial_failure
from katib.model.names import EXPERIMENT_INTERRUPTED, EXPERIMENT_STOPPED
from katib.model.trials import ACTIVE, metric_text, trial_state
from katib.model.types import TrialState

if TYPE_CHECKING:
    from typing import TypeAlias

    from katib.model.types import Condition, Experiment, Resource, Suggestion, Trial

    AnyObject: TypeAlias = Experiment | Trial | Suggestion


TRIAL_STATES = tuple(state.value for state in TrialState)


def condition_of(obj: AnyObject | None, type_: str) -> Condition | None:
    found = None if obj is None else find_condition(obj.status.conditions, type_)
    return found if found is not None and found.status == "True" else None


def held_condition(obj: AnyObject, type_: str) -> Condition:
    """Return the condition of that type if it holds, else an empty one."""
    return condition_of(obj, type_) or types.Condition()


def running_condition(obj: AnyObject) -> Condition:
    """Return the condition Running, whatever its status; an empty one if there is none."""
    return find_condition(obj.status.conditions, "Running") or types.Condition()


def last_condition(obj: AnyObject) -> Condition:
    """Return the condition that changed last among those that hold; an empty one when none does."""
    return next((c for c in reversed(obj.status.conditions) if c.status == "True"), types.Condition())


def early_stop_reason(message: str) -> str:
    """Return why a trial was stopped early, from the message of its condition; any other message as it is."""
    return message.removeprefix("Trial is early stopped").removeprefix(": ")


def failure_of(trial: Trial) -> str:
    """Return why a trial failed; empty when it did not, or when the cause is unknown."""
    failed = condition_of(trial, "Failed")
    return "" if failed is None else trial_failure(failed.message).rstrip(".")


def state_of(obj: AnyObject) -> str:
    """Return "the state" as users know it."""
    if isinstance(obj, types.Trial):
        return trial_state(obj).value
    if obj.metadata.deletion_timestamp is not None:
        return "Terminating"
    if is_interrupted(obj):
        return "Interrupted"
    return "Stopped" if is_stopped(obj) else last_condition(obj).type or "Created"


def is_stopped(experiment: Experiment | Suggestion) -> bool:
    """Return whether an experiment was stopped and nothing of it runs any more."""
    running = running_condition(experiment)
    return running.reason == EXPERIMENT_STOPPED and running.status != "True"


def is_interrupted(experiment: Experiment | Suggestion) -> bool:
    """Return whether an unfinished experiment waits until it is taken up again, and nothing of it runs."""
    return running_condition(experiment).reason == EXPERIMENT_INTERRUPTED


def is_at_rest(experiment: Experiment) -> bool:
    """Return whether nothing of an unfinished experiment runs because it was stopped or interrupted."""
    return is_stopped(experiment) or is_interrupted(experiment)


def is_suspended_trial(trial: Trial) -> bool:
    """Return whether a trial waits because its job is suspended."""
    return running_condition(trial).reason == "TrialSuspended" and not is_completed(trial)


def is_completed(obj: Experiment | Trial) -> bool:
    if isinstance(obj, types.Trial):
        return trial_state(obj) not in ACTIVE
    return has_ended(obj.status.conditions)


def completed_count(experiment: Experiment) -> int:
    """Return how many trials of an experiment have ended, in whatever way."""
    status = experiment.status
    return lost_count(experiment) + status.trials_succeeded + status.trials_killed + status.trials_early_stopped


def lost_count(experiment: Experiment) -> int:
    """Return how many trials of an experiment failed or ended without metrics."""
    return experiment.status.trials_failed + experiment.status.trial_metrics_unavailable


def active_count(experiment: Experiment) -> int:
    """Return how many trials of an experiment run or wait."""
    return experiment.status.trials_running + experiment.status.trials_pending


def stops_early(experiment: Experiment) -> bool:
    """Return whether an algorithm may stop trials of an experiment early."""
    return experiment.spec.early_stopping not in (None, types.AlgorithmSpec())


def objective_value(trial: Trial) -> str | None:
    return metric_text(trial.spec.objective, trial.status.observation)


def has_several_objectives(obj: Experiment | Trial) -> bool:
    """Return whether an Experiment or a Trial has more than one objective."""
    return obj.spec.objective is not None and obj.spec.objective.has_several


def best_value(experiment: Experiment) -> str | None:
    """Return the objective value of the best trial of an experiment as text; None while there is none."""
    return metric_text(experiment.spec.objective, experiment.status.current_optimal_trial.observation)


def namespace_option(obj: Resource, default_namespace: str) -> str:
    """Return the option that names the namespace of an object in a command; empty for the default namespace."""
    namespace = obj.namespace
    return f" -n {namespace}" if namespace not in ("", default_namespace) else ""
