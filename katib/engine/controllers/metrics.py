"""Health checks and Prometheus metrics of either home, under Katib's names.

Counters follow the cache events, so a restarted controller starts at zero and ignores earlier changes. Gauges are views
of the caches.
"""

from __future__ import annotations

import json
from collections import Counter as StateCounts
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, cast

from katib.engine.controllers.caches import Caches
from katib.engine.runtime.informer import InformerEvent
from katib.engine.runtime.objects import EventType
from katib.model.conditions import current_type, find_condition, is_true
from katib.model.types import Experiment, Trial

if TYPE_CHECKING:
    from prometheus_client import Counter
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector

Page = Callable[[], tuple[int, str, bytes]]
"""Returns the status, content type and body of a page."""


def check_page(checks: Callable[[], Mapping[str, bool]]) -> Page:
    """Return a page that is 200 if all checks hold, else 503; it lists every check."""

    def page() -> tuple[int, str, bytes]:
        results = checks()
        status = HTTPStatus.OK if all(results.values()) else HTTPStatus.SERVICE_UNAVAILABLE
        return status, "application/json", json.dumps(results).encode()

    return page


class ControllerMetrics:
    """The counters of one controller."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry

        self.registry = CollectorRegistry()
        self._experiments = {
            name: self._counter("experiment", name) for name in ("created", "deleted", "succeeded", "failed")
        }
        self._trials = {
            name: self._counter("trial", name)
            for name in ("created", "deleted", "succeeded", "failed", "metrics_unavailable")
        }

    def follow(self, caches: Caches, unloaded: Callable[[], Iterable[Experiment]] = lambda: ()) -> None:
        """Count the events of these caches. Call it before they start, once for each set of caches.

        Args:
            unloaded: Returns the ended experiments that are not in the caches, nor are their trials.
        """
        caches.experiments.add_handler(partial(_count, self._experiments))
        caches.trials.add_handler(partial(_count, self._trials))
        gauges = _Gauges(unloaded)
        caches.experiments.add_view(gauges.experiments)
        caches.trials.add_view(gauges.trials)
        self.registry.register(cast("Collector", gauges))

    def page(self) -> tuple[int, str, bytes]:
        from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

        return HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(self.registry)

    def _counter(self, kind: str, what: str) -> Counter:
        from prometheus_client import Counter

        text = f"{kind.capitalize()}s {what.replace('_', ' ')}"
        return Counter(f"katib_{kind}_{what}", text, ("namespace",), registry=self.registry)


_ENDS = {"succeeded": "Succeeded", "failed": "Failed", "metrics_unavailable": "MetricsUnavailable"}


def _count(counters: Mapping[str, Counter], event: InformerEvent[Experiment] | InformerEvent[Trial]) -> None:
    old, new = (event.old.status.conditions if event.old else ()), event.new.status.conditions if event.new else ()
    happened: list[str] = []
    if event.type is EventType.DELETED:
        happened = ["deleted"]
    elif event.type is EventType.ADDED and find_condition(new, "Created") is None:
        happened = ["created"]
    elif event.type is EventType.MODIFIED:
        happened = [name for name, type_ in _ENDS.items() if is_true(new, type_) and not is_true(old, type_)]
    for name in happened:
        if name in counters:
            counters[name].labels(event.key.namespace).inc()


def _counts_of(experiment: Experiment) -> Mapping[str, int]:
    """Return the number of trials per state of an ended experiment."""
    status = experiment.status
    return {
        "Succeeded": status.trials_succeeded or 0,
        "Failed": status.trials_failed or 0,
        "Killed": status.trials_killed or 0,
        "EarlyStopped": status.trials_early_stopped or 0,
        "MetricsUnavailable": status.trial_metrics_unavailable or 0,
    }


class _States:
    """Number of objects by state and namespace: a view of a cache."""

    def __init__(self) -> None:
        self._counts: StateCounts[tuple[str, str]] = StateCounts()

    def apply(self, old: Experiment | Trial | None, new: Experiment | Trial | None) -> None:
        for obj, step in ((old, -1), (new, 1)):
            if obj is not None:
                self._counts[obj.namespace, current_type(obj.status.conditions) or "Unknown"] += step

    def gauge(self, name: str, text: str, unloaded: Mapping[tuple[str, str], int]) -> GaugeMetricFamily:
        """Return the current counts, including objects in no cache."""
        from prometheus_client.core import GaugeMetricFamily

        family = GaugeMetricFamily(name, text, labels=("namespace", "status"))
        for labels, count in sorted((self._counts + StateCounts(unloaded)).items()):
            if count:
                family.add_metric(labels, count)
        return family


class _Gauges:
    """Number of experiments and trials by namespace and state. Implements `prometheus_client`'s Collector."""

    def __init__(self, unloaded: Callable[[], Iterable[Experiment]]) -> None:
        self.experiments = _States()
        self.trials = _States()
        self._unloaded = unloaded

    def collect(self) -> Iterator[GaugeMetricFamily]:
        experiments: StateCounts[tuple[str, str]] = StateCounts()
        trials: StateCounts[tuple[str, str]] = StateCounts()
        for experiment in self._unloaded():
            experiments[experiment.namespace, current_type(experiment.status.conditions)] += 1
            for state, count in _counts_of(experiment).items():
                trials[experiment.namespace, state] += count
        yield self.experiments.gauge("katib_experiments_current", "Experiments by state", experiments)
        yield self.trials.gauge("katib_trials_current", "Trials by state", trials)

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return nothing: there is nothing to count at registration."""
        return ()
