"""The trials of an experiment, chosen, sorted and in pages; without a scan if the store keeps facts about them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import ValidationError

from katib.engine.controllers.kinds import TRIAL
from katib.engine.runtime.objects import Key, Object, ObjectStore
from katib.engine.runtime.search import (
    FactsOf,
    ObjectFacts,
    SearchableStore,
    SearchPage,
    SearchQuery,
    SortOrder,
    search_in,
)
from katib.errors import KatibError
from katib.model import types
from katib.model.names import EXPERIMENT_LABEL, PARENT_LABEL
from katib.model.trials import ELIGIBLE, cost, is_feasible, may_be_best, objective_number, ran_seconds
from katib.service.tuning.service import State, TrialOrder, TrialPage, TuningService

if TYPE_CHECKING:
    from katib.model.types import Trial

_PAGE = 1_000

ORDERS: dict[TrialOrder, SortOrder] = {
    "age": SortOrder.CREATION,
    "objective": SortOrder.COST,
    "duration": SortOrder.BREVITY,
    "name": SortOrder.NAME,
}


def find_trials(
    store: ObjectStore, experiment: Key, *, states: frozenset[str], order: TrialOrder, limit: int, cursor: str
) -> SearchPage:
    """Return a page of trials. A store without facts is read whole for it, but never held whole.

    Raises:
        InvalidError: The cursor does not belong to this list.
    """
    query = SearchQuery(TRIAL, str(experiment), states, ORDERS[order], limit, cursor)
    found = store.search(query) if isinstance(store, SearchableStore) else None
    return search_in(_with_ages(store, experiment), TRIAL_FACTS, query) if found is None else found


def pages_of(
    service: TuningService,
    namespace: str,
    experiment: str,
    *,
    states: tuple[State, ...] = (),
    order: TrialOrder = "age",
    limit: int | None = None,
) -> Iterator[TrialPage]:
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
    for page in pages_of(service, namespace, experiment):
        yield from page.items


def _with_ages(store: ObjectStore, experiment: Key) -> Iterator[tuple[str, Object]]:
    for page in store.pages(TRIAL, experiment.namespace, labels={EXPERIMENT_LABEL: experiment.name}):
        for trial in page.items:
            metadata = trial["metadata"]
            yield f"{metadata.get('creationTimestamp', '')} {metadata['name']}", trial


def _facts_of(obj: Object) -> tuple[ObjectFacts, Trial | None]:
    """Return the facts of a trial, and the trial unless a field has the wrong type."""
    try:
        struct = trial = types.Trial.decode(obj)
    except ValidationError:
        struct, trial = None, types.Trial.read(obj)
    metadata, status = trial.metadata, trial.status
    scope = str(Key(metadata.namespace, metadata.labels.get(EXPERIMENT_LABEL, "")))
    brevity = -(ran_seconds(trial) or 0.0) if status.completion_time else 0.0
    # What cannot be the best comes last: without a finite number, or against the constraints. Of several objectives the
    # first counts.
    objective, worth = trial.spec.objective, math.inf
    value = objective_number(objective, status.observation)
    if objective is not None and value is not None:
        is_out = trial.state in ELIGIBLE and not (
            may_be_best(trial, trial.state) and is_feasible(objective, status.observation)
        )
        worth = math.inf if is_out else cost(objective, value)
    return ObjectFacts(scope, trial.state.value, metadata.name, worth, brevity), struct


TRIAL_FACTS = FactsOf(4, {TRIAL: _facts_of})
"""Facts that a store keeps beside trials. Raise the version whenever a state, an objective value or a time is read
in another way: at its next opening, a store derives all of it again."""


MOST_GENERATIONS = 30


def generations_of(service: TuningService, trial: Trial) -> list[Trial]:
    """Return a trial and those whose checkpoints led to its own, the youngest first, up to one that was deleted."""
    found = [trial]
    while len(found) < MOST_GENERATIONS and (parent := found[-1].metadata.labels.get(PARENT_LABEL)):
        try:
            found.append(service.get(types.Trial, trial.namespace, parent))
        except KatibError:
            break
    return found
