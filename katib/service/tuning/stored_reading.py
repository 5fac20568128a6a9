"""Handlers of the verbs that change nothing, over an object store and an observation log.

This is all that a command needs which reads a data directory, so it imports nothing that only a submission needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from katib.engine.controllers.kinds import EXPERIMENT, POD, POD_HEADER, TRIAL
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.objects import Key, Kind, Object, ObjectStore
from katib.errors import NotFoundError, invalid
from katib.model import types
from katib.model.features.repeats.feature import are_repeated
from katib.model.loadable import Loadable
from katib.model.metrics import BEFORE_THE_LAST, MetricLog, trial_of_log
from katib.model.names import CONFIRMS_LABEL, EXPERIMENT_LABEL, TRIAL_LABEL, confirmation_name
from katib.model.trials import ACTIVE, trial_state
from katib.model.types import API_VERSION
from katib.service.tuning.changes import stream_changes
from katib.service.tuning.ports import Explain, Namespaces, Part, Records, do_nothing
from katib.service.tuning.service import (
    NOW,
    ArrivedReadings,
    Change,
    Confirmation,
    Diagnosis,
    ExplainObject,
    FollowChanges,
    GetBestTrial,
    GetConfirmation,
    GetObject,
    GetParetoSet,
    Json,
    ListAlgorithms,
    ListEvents,
    ListExperiments,
    ListFiles,
    ListMetrics,
    ListPods,
    ListReadings,
    ListTrials,
    Named,
    ReadFile,
    ReadLogs,
    RecordedEvent,
    TrialFile,
    TrialPage,
    TuningService,
)
from katib.service.tuning.trial_pages import find_trials
from katib.service.tuning.verbs import A, Verb

if TYPE_CHECKING:
    from katib.model.algorithms import AlgorithmCatalog, AlgorithmInfo
    from katib.model.types import Experiment, Trial


_OPTIMUM: Final[Loadable[Callable[..., types.OptimalTrial | None]]] = Loadable(
    "katib.service.tuning.confirmations:confirmed_optimum"
)
_REPEATED: Final[Loadable[Callable[..., Confirmation | None]]] = Loadable(
    "katib.service.tuning.confirmations:repeated_by"
)
_EQUAL: Final[Loadable[Callable[..., Confirmation | None]]] = Loadable(
    "katib.service.tuning.confirmations:equal_trials_of"
)
_CONFIRMATION: Final[Loadable[Callable[..., Confirmation]]] = Loadable(
    "katib.service.tuning.confirmations:confirmation_by"
)


class ObjectReadingService(TuningService):
    """The handlers of the verbs that change nothing. Thread-safe.

    Args:
        records: Objects, readings, events and output of experiments.
        explain: Says why something does not progress.
        namespaces: Those that there are; left out: those with experiments.
    """

    def __init__(
        self,
        records: Records,
        explain: Explain,
        catalog: AlgorithmCatalog,
        clock: Clock,
        namespaces: Namespaces | None = None,
    ) -> None:
        self._store = records.store
        self._observations = records.observations
        self._events = records.events
        self._output = records.output
        self._settle = do_nothing if records.callers is None else records.callers.settle
        self._explain = explain
        self._catalog = catalog
        self._clock = clock
        self._namespaces = namespaces or Namespaces(records.store)

    def call(self, request: Verb[A]) -> A:
        """Return the answer of the verb's handler, the method `_on_` and its name."""
        return getattr(self, f"_on_{request.verb}")(request)  # type: ignore[no-any-return]  # as the verb says

    def _on_get_object(self, request: GetObject) -> Json:
        if request.kind == EXPERIMENT.kind:
            self._settle()
        found = dict(self._require(Kind(API_VERSION, request.kind), key_in(request)))
        if request.kind != EXPERIMENT.kind or not (found.get("status") or {}).get("completionTime"):
            return found
        experiment = types.Experiment.read(found)
        shown = with_confirmed_best(self._store, experiment, confirming_experiment(self._store, experiment))
        return found if shown is experiment else shown.encode()

    def _on_experiments(self, request: ListExperiments) -> tuple[Experiment, ...]:
        self._settle()
        found = [types.Experiment.read(obj) for obj in self._store.list(EXPERIMENT, request.namespace).items]
        confirming = {
            (one.namespace, name): one for one in found if (name := one.metadata.labels.get(CONFIRMS_LABEL)) is not None
        }
        confirming |= {(one.namespace, one.name): one for one in confirming.values()}
        return tuple(with_confirmed_best(self._store, one, confirming.get((one.namespace, one.name))) for one in found)

    def _on_trials(self, request: ListTrials) -> TrialPage:
        key, states = key_in(request), frozenset(request.states)
        self._require(EXPERIMENT, key)
        found = find_trials(
            self._store, key, states=states, order=request.order, limit=request.limit, cursor=request.cursor
        )
        return TrialPage(found.items, found.cursor, found.total)

    def _on_best(self, request: GetBestTrial) -> Trial | None:
        experiment = self.get(types.Experiment, request.namespace, request.name)
        return best_of(self._store, experiment)

    def _on_pareto(self, request: GetParetoSet) -> Json | None:
        experiment = self.get_object(request.namespace, request.name, EXPERIMENT.kind)
        return (experiment.get("status") or {}).get("paretoSet") or None

    def _on_confirmation(self, request: GetConfirmation) -> Confirmation | None:
        self._settle()
        experiment = self.get(types.Experiment, request.namespace, request.name)
        return findings_of(self._store, experiment)

    def _on_metrics(self, request: ListMetrics) -> tuple[MetricLog, ...]:
        """Return readings of a trial, or of an earlier try of it; the whole curve of one metric if points are given."""
        from katib.service.tuning.reading import metric_of

        log = self._observations.within(request.namespace)
        if request.points is None:
            self._require(TRIAL, Key(request.namespace, trial_of_log(request.name)))
            return tuple(log.newest(request.name, limit=request.limit, metric_name=request.metric))
        found = self.get(types.Trial, request.namespace, request.name)
        return tuple(log.curve(request.name, request.metric or metric_of(found), request.points))

    def _on_readings(self, request: ListReadings) -> ArrivedReadings:
        self._require(TRIAL, key_in(request))
        log, trial, since = self._observations.within(request.namespace), request.name, request.since
        if since == NOW:
            last = log.changes({trial: BEFORE_THE_LAST})
            return ArrivedReadings((), str(last[-1].cursor) if last else "0")
        if since and not (since.isascii() and since.isdigit() and len(since) <= _MOST_DIGITS):
            raise invalid("since", f'"{since}" is not a cursor of readings', "start without one", "cursor")
        changes = log.changes({trial: int(since or 0)})
        cursor = str(changes[-1].cursor) if changes else since
        return ArrivedReadings(tuple(change.reading for change in changes), cursor)

    def _on_pods(self, request: ListPods) -> tuple[Json, ...]:
        from katib.service.tuning.replicas import trial_of

        owner = self._require(Kind(API_VERSION, request.kind), key_in(request))
        label = EXPERIMENT_LABEL if request.kind == EXPERIMENT.kind else TRIAL_LABEL
        pods = self._store.list(POD, request.namespace, labels={label: request.name}).items
        found = [pod for pod in pods if trial_of(pod)]
        if not found and request.kind == TRIAL.kind:
            found = list(self._output().past_pods(types.Trial.read(owner)))
        return tuple({**POD_HEADER, **pod} for pod in found)

    def _on_logs(self, request: ReadLogs) -> Iterator[bytes]:
        found = self.get(types.Trial, request.namespace, request.name)
        goes_on = self._goes_on(key_in(request)) if request.follow else None
        return self._output().read(found, Part(goes_on, request.tail_lines, request.replica, request.container))

    def _on_files(self, request: ListFiles) -> tuple[TrialFile, ...]:
        return tuple(self._output().files(self.get(types.Trial, request.namespace, request.name)))

    def _on_file(self, request: ReadFile) -> Iterator[bytes]:
        return self._output().read_file(self.get(types.Trial, request.namespace, request.name), request.path)

    def _goes_on(self, key: Key) -> Callable[[], bool]:
        def check() -> bool:
            obj = self._find(TRIAL, key)
            return obj is not None and trial_state(types.Trial.read(obj)) in ACTIVE

        return check

    def _on_events(self, request: ListEvents) -> tuple[RecordedEvent, ...]:
        self._require(Kind(API_VERSION, request.kind), key_in(request))
        return tuple(self._events.events_of(request.kind, request.namespace, request.name))

    def _on_why(self, request: ExplainObject) -> Diagnosis:
        self._settle()
        return self._explain(request.namespace, request.name)

    def _on_algorithms(self, _request: ListAlgorithms) -> tuple[AlgorithmInfo, ...]:
        return tuple(self._catalog.all())

    def _on_changes(self, request: FollowChanges) -> Iterator[Change]:
        key = key_in(request)
        self._settle()
        self._require(EXPERIMENT, key)
        store = self._namespaces.store_of(request.namespace)
        return stream_changes(store, key, self._clock, timeout_seconds=request.timeout_seconds, since=request.since)

    def _find(self, kind: Kind, key: Key) -> Object | None:
        with suppress(NotFoundError):
            return self._store.get(kind, key)
        return None

    def _require(self, kind: Kind, key: Key) -> Object:
        obj = self._find(kind, key)
        if obj is None:
            is_experiment = kind == TRIAL and self._find(EXPERIMENT, key) is not None
            hint = (
                f"; it is an experiment, whose trials are those of `katib trials {key.name}`" if is_experiment else ""
            )
            raise NotFoundError(f'{kind.kind.lower()} "{key.name}" is not in namespace {key.namespace}{hint}')
        return obj


def key_in(request: Named[Any] | ListPods | ListEvents) -> Key:
    return Key(request.namespace, request.name)


def confirming_experiment(store: ObjectStore, experiment: Experiment) -> Experiment | None:
    """Return the experiment that runs the best configurations of another one again, itself if it does; else None."""
    if CONFIRMS_LABEL in experiment.metadata.labels:
        return experiment
    with suppress(NotFoundError):
        key = Key(experiment.namespace, confirmation_name(experiment.name))
        found = types.Experiment.read(store.get(EXPERIMENT, key))
        return found if found.metadata.labels.get(CONFIRMS_LABEL) == experiment.name else None
    return None


def with_confirmed_best(store: ObjectStore, experiment: Experiment, confirming: Experiment | None) -> Experiment:
    """Return an experiment with the configuration of the best mean as its best trial, if another one confirms it."""
    if confirming is None:
        return experiment
    best = _OPTIMUM.load()(store, confirming)
    status = experiment.status
    return experiment if best is None else replace(experiment, status=replace(status, current_optimal_trial=best))


def best_of(store: ObjectStore, experiment: Experiment) -> Trial | None:
    """Return the best trial of an experiment, with the means of its runs if there are several.

    Args:
        store: Objects.
        experiment: With the best trial that is shown, see `with_confirmed_best`.
    """
    best = experiment.status.current_optimal_trial
    if not best.best_trial_name:
        return None
    try:
        trial = types.Trial.read(store.get(TRIAL, Key(experiment.namespace, best.best_trial_name)))
    except NotFoundError:
        return None
    if not are_repeated(experiment.metadata.annotations) and confirming_experiment(store, experiment) is None:
        return trial
    return replace(trial, status=replace(trial.status, observation=best.observation))


def findings_of(store: ObjectStore, experiment: Experiment) -> Confirmation | None:
    """Return the findings about configurations of an experiment that were run several times; None without such.

    Those of a search without repeats, which nobody asked for, count if their values differ.
    """
    confirming = confirming_experiment(store, experiment)
    if confirming is not None:
        return _CONFIRMATION.load()(store, confirming)
    return (_REPEATED if are_repeated(experiment.metadata.annotations) else _EQUAL).load()(store, experiment)


_MOST_DIGITS = 18
"""Of a cursor: the numbers of readings fit into 64 bits."""
