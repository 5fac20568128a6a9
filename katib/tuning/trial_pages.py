"""The trials of an experiment, chosen, sorted and a page at a time; at once where the store keeps facts about them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from katib.api import types
from katib.api.names import EXPERIMENT_LABEL
from katib.controllers.kinds import TRIAL
from katib.runtime.objects import Key, Object, ObjectStore
from katib.runtime.search import Facts, FactsOf, Found, Order, Query, SearchableStore, search_in
from katib.tuning.reading import objective_value, violates_constraints
from katib.tuning.service import Page, TrialOrder, TuningService

if TYPE_CHECKING:
    from katib.api.types import Trial

_PAGE = 1_000

ORDERS: dict[TrialOrder, Order] = {
    "age": Order.CREATION,
    "objective": Order.COST,
    "duration": Order.BREVITY,
    "name": Order.NAME,
}


def find_trials(
    store: ObjectStore, experiment: Key, *, states: frozenset[str], order: TrialOrder, limit: int, cursor: str
) -> Found:
    """Return a page of trials. A store without facts is read whole for it, but never held whole.

    Raises:
        InvalidError: The cursor is none of this list.
    """
    query = Query(TRIAL, str(experiment), states, ORDERS[order], limit, cursor)
    found = store.search(query) if isinstance(store, SearchableStore) else None
    return search_in(_with_ages(store, experiment), TRIAL_FACTS, query) if found is None else found


def pages_of(
    service: TuningService,
    namespace: str,
    experiment: str,
    *,
    states: Sequence[str] = (),
    order: TrialOrder = "age",
    limit: int | None = None,
) -> Iterator[Page]:
    """Yield the trials of an experiment page by page, at most so many as the limit says."""
    cursor, left = "", math.inf if limit is None else limit
    while left > 0:
        size = int(min(left, _PAGE))
        page = service.trials(namespace, experiment, states=states, order=order, limit=size, cursor=cursor)
        yield page
        left -= len(page.documents)
        cursor = page.cursor
        if not cursor:
            return


def each_trial(service: TuningService, namespace: str, experiment: str) -> Iterator[Trial]:
    """Yield the trials of an experiment, read in several pages."""
    for page in pages_of(service, namespace, experiment):
        yield from page.items


def _with_ages(store: ObjectStore, experiment: Key) -> Iterator[tuple[str, Object]]:
    for page in store.pages(TRIAL, experiment.namespace, labels={EXPERIMENT_LABEL: experiment.name}):
        for trial in page.items:
            metadata = trial["metadata"]
            yield f"{metadata.get('creationTimestamp', '')} {metadata['name']}", trial


def _facts_of(obj: Object) -> Facts:
    trial = types.Trial.read_once(obj)
    metadata, status = trial.metadata, trial.status
    scope = str(Key(metadata.namespace, metadata.labels.get(EXPERIMENT_LABEL, "")))
    start, end = status.start_time, status.completion_time
    brevity = -(end - start).total_seconds() if start and end else 0.0
    cost = math.inf if status.observation is None else _cost(trial)
    return Facts(scope, trial.state.value, metadata.name, cost, brevity)


def _cost(trial: Trial) -> float:
    """Return the objective value with the sign that makes smaller better; infinity for what cannot be the best.

    That is a trial without a finite number, and one that does not satisfy the constraints. Of several objectives the
    first counts.
    """
    try:
        value = float(objective_value(trial) or "nan")
    except ValueError:
        return math.inf
    if not math.isfinite(value) or violates_constraints(trial):
        return math.inf
    return value if trial.spec.objective is not None and trial.spec.objective.type == "minimize" else -value


TRIAL_FACTS = FactsOf(2, {TRIAL: _facts_of})
"""What a store keeps beside trials. Raise the version whenever a state, an objective value or a time is read in another
way: at its next opening, a store derives all of it again."""
