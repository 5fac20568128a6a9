"""Selection of the objects that `katib get` shows, from a service of any home."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from katib.doors.cli.kinds import Asked
from katib.engine.runtime.objects import Key, Object
from katib.errors import NotFoundError, invalid
from katib.model.names import EXPERIMENT_LABEL
from katib.model.types import Experiment, Suggestion, Trial
from katib.service.tuning.service import Json, TuningService
from katib.service.tuning.titles import name_meant
from katib.service.tuning.trial_pages import pages_of

if TYPE_CHECKING:
    from katib.doors.kube_api.selectors import Selector

_TYPES: dict[str, type[Experiment | Trial | Suggestion]] = {
    "Experiment": Experiment,
    "Trial": Trial,
    "Suggestion": Suggestion,
}


class Found(NamedTuple):
    """A stored object and its decoded form; pods are not decoded."""

    document: Object
    read: Experiment | Trial | Suggestion | None = None


def selector_for(kind: str, labels: str) -> Selector | None:
    """Return the selector of a text for objects of a kind; None if it is empty.

    Raises:
        InvalidError: It cannot be parsed.
    """
    if not labels:
        return None
    from katib.doors.kube_api.selectors import selector_of
    from katib.doors.kube_api.statuses import StatusError

    try:
        return selector_of(kind, labels.removeprefix("="), "")  # `-l=a=b`, as kubectl accepts it
    except StatusError as error:
        cause, _, remedy = str(error).partition(": ")[2].rpartition("; ")
        raise invalid("--selector", cause, remedy, "selector") from error


def read(
    service: TuningService,
    namespace: str | None,
    asked: Asked,
    selector: Selector | None,
    on_missing: Callable[[NotFoundError], None],
) -> Iterator[Found]:
    """Yield objects; without names those of a namespace, or of all if it is None."""
    found = (
        _named(service, namespace or "", asked, on_missing)
        if asked.names
        else _listed(service, namespace, asked.kind, selector)
    )
    return found if selector is None else (one for one in found if selector.fits(one.document))


def _listed(service: TuningService, namespace: str | None, kind: str, selector: Selector | None) -> Iterator[Found]:
    experiments: Iterable[Experiment] = service.experiments(namespace)
    if kind == "Trial" and selector is not None and (only := selector.labels.get(EXPERIMENT_LABEL)):
        experiments = (experiment for experiment in experiments if experiment.name == only)
    for experiment in experiments:
        if kind == "Experiment":
            yield Found(experiment.encode(), experiment)
        elif kind == "Trial":
            for page in pages_of(service, experiment.namespace, experiment.name):
                yield from map(Found, page.documents)
        elif kind == "Pod":
            yield from map(Found, service.pods("Experiment", experiment.namespace, experiment.name))
        else:
            with suppress(NotFoundError):  # the Suggestion has the experiment's name
                suggestion = service.get(Suggestion, experiment.namespace, experiment.name)
                yield Found(suggestion.encode(), suggestion)


def _named(
    service: TuningService, namespace: str, asked: Asked, on_missing: Callable[[NotFoundError], None]
) -> Iterator[Found]:
    for name in asked.names:
        try:
            if asked.kind == "Pod":
                found = [Found(pod) for pod in _pods_named(service, namespace, name)]
            else:
                obj = service.get(_TYPES[asked.kind], namespace, name_meant(service, namespace, name))
                found = [Found(obj.encode(), obj)]
        except NotFoundError as error:
            on_missing(error)
        else:
            yield from found


def _pods_named(service: TuningService, namespace: str, name: str) -> Sequence[Json]:
    """Return the pods of an experiment or a trial, or the pod of that name."""
    for kind in ("Experiment", "Trial"):
        with suppress(NotFoundError):
            return service.pods(kind, namespace, name)
    if (found := pod_named(service, namespace, name)) is None:
        raise NotFoundError(f'neither an experiment, a trial nor a pod "{name}" is in namespace {namespace}')
    return [found]


def pod_named(service: TuningService, namespace: str, name: str) -> Json | None:
    for experiment in service.experiments(namespace):
        for pod in service.pods("Experiment", namespace, experiment.name):
            if Key.of(pod).name == name:
                return pod
    return None
