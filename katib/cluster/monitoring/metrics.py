"""What the controller counts, for Prometheus, under Katib's names.

Counters follow the changes that the caches see, so a restarted controller counts on from zero and counts nothing that
happened before it. Gauges are counted from the caches when they are asked for.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from katib.api.conditions import Conditions, current_type, find_condition, is_true
from katib.api.types import Experiment, Trial
from katib.controllers.assembly import Caches
from katib.runtime.informer import Informer, InformerEvent
from katib.runtime.objects import EventType


class ControllerMetrics:
    """The counters of one controller.

    Attributes:
        registry: What is served.
        requests: Requests to the API server, by verb, resource and status: what its rights have to allow.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "katib_api_requests",
            "Requests to the API server",
            ("verb", "group", "resource", "status"),
            registry=self.registry,
        )
        self.reviews = Histogram(
            "katib_admission_seconds",
            "Time that admission reviews take",
            ("webhook",),
            registry=self.registry,
        )
        self._experiments = {
            name: self._counter("experiment", name) for name in ("created", "deleted", "succeeded", "failed")
        }
        self._trials = {
            name: self._counter("trial", name)
            for name in ("created", "deleted", "succeeded", "failed", "metrics_unavailable")
        }

    def follow(self, caches: Caches) -> None:
        """Count what happens in these caches. Before they start, once for each set of caches."""
        caches.experiments.add_handler(self._experiment_changed)
        caches.trials.add_handler(self._trial_changed)
        self.registry.register(_Gauges(caches))

    def _counter(self, kind: str, what: str) -> Counter:
        text = f"{kind.capitalize()}s {what.replace('_', ' ')}"
        return Counter(f"katib_{kind}_{what}", text, ("namespace",), registry=self.registry)

    def _experiment_changed(self, event: InformerEvent[Experiment]) -> None:
        old, new = (event.old.status.conditions if event.old else ()), event.new.status.conditions if event.new else ()
        namespace = event.key.namespace
        if event.type is EventType.DELETED:
            self._experiments["deleted"].labels(namespace).inc()
        elif event.type is EventType.ADDED and find_condition(new, "Created") is None:
            self._experiments["created"].labels(namespace).inc()
        elif event.type is EventType.MODIFIED:
            _count_changes(self._experiments, {"succeeded": "Succeeded", "failed": "Failed"}, old, new, namespace)

    def _trial_changed(self, event: InformerEvent[Trial]) -> None:
        old, new = (event.old.status.conditions if event.old else ()), event.new.status.conditions if event.new else ()
        namespace = event.key.namespace
        if event.type is EventType.DELETED:
            self._trials["deleted"].labels(namespace).inc()
        elif event.type is EventType.ADDED and find_condition(new, "Created") is None:
            self._trials["created"].labels(namespace).inc()
        elif event.type is EventType.MODIFIED:
            ends = {"succeeded": "Succeeded", "failed": "Failed", "metrics_unavailable": "MetricsUnavailable"}
            _count_changes(self._trials, ends, old, new, namespace)


def _count_changes(
    counters: dict[str, Counter], types: dict[str, str], old: Conditions, new: Conditions, namespace: str
) -> None:
    for name, type_ in types.items():
        if is_true(new, type_) and not is_true(old, type_):
            counters[name].labels(namespace).inc()


class _Gauges(Collector):
    """How many experiments and trials there are, by namespace and state."""

    def __init__(self, caches: Caches) -> None:
        self._caches = caches

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Count them now."""
        yield _gauge("katib_experiments_current", "Experiments by state", self._caches.experiments)
        yield _gauge("katib_trials_current", "Trials by state", self._caches.trials)

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return nothing: counting at registration would be too early."""
        return ()


def _gauge(name: str, text: str, informer: Informer[Experiment] | Informer[Trial]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=("namespace", "status"))
    counts = Tally((obj.namespace, current_type(obj.status.conditions) or "Unknown") for obj in informer.all())
    for labels, count in sorted(counts.items()):
        family.add_metric(labels, count)
    return family
