"""The objects that `katib get` shows: read from a service of any home, selected, and sorted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from katib.api.names import EXPERIMENT_LABEL
from katib.api.types import Experiment, Suggestion, Trial
from katib.cli.kinds import Asked
from katib.errors import NotFoundError, invalid
from katib.runtime.objects import Key, Object
from katib.tuning.service import Json, TuningService
from katib.tuning.titles import name_meant
from katib.tuning.trial_pages import pages_of

if TYPE_CHECKING:
    from katib.cli.jsonpath import Path
    from katib.kube_api.selectors import Selector

_TYPES: dict[str, type[Experiment | Trial | Suggestion]] = {
    "Experiment": Experiment,
    "Trial": Trial,
    "Suggestion": Suggestion,
}
_DIGITS = re.compile(r"(\d+)", re.ASCII)


class Found(NamedTuple):
    """An object as it is stored, and read; a pod is not read."""

    document: Object
    read: Experiment | Trial | Suggestion | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """Which of the objects of a kind are wanted, and in which order.

    Attributes:
        selector: By their labels and fields; None: all.
        sort_by: What they are sorted by; None: as they come.
        on_missing: Is called for a name that is not there, and may raise.
    """

    selector: Selector | None
    sort_by: Path | None
    on_missing: Callable[[NotFoundError], None]


def selector_for(kind: str, labels: str, fields: str) -> Selector | None:
    """Return what two selectors of the command line select; None where both are empty.

    Raises:
        InvalidError: One of them cannot be understood.
    """
    if not labels and not fields:
        return None
    from katib.kube_api.selectors import selector_of
    from katib.kube_api.statuses import StatusError

    try:
        return selector_of(kind, labels.removeprefix("="), fields)  # `-l=a=b`, as kubectl takes it
    except StatusError as error:
        option, _, rest = str(error).partition(": ")
        cause, _, remedy = rest.rpartition("; ")
        raise invalid(
            {"labelSelector": "--selector"}.get(option, "--field-selector"), cause, remedy, "selector"
        ) from error


def read(service: TuningService, namespace: str | None, asked: Asked, choice: Choice) -> Iterator[Found]:
    """Yield objects; without names those of a namespace, or of all where it is None.

    Raises:
        InvalidError: They are to be sorted by what none of them has.
    """
    found = (
        _listed(service, namespace, asked.kind, choice)
        if not asked.names
        else _named(service, namespace or "", asked, choice)
    )
    if choice.selector is not None:
        found = (one for one in found if choice.selector.fits(one.document))
    return found if choice.sort_by is None else iter(_sorted(list(found), asked.kind, choice.sort_by))


def _listed(service: TuningService, namespace: str | None, kind: str, choice: Choice) -> Iterator[Found]:
    experiments: Iterable[Experiment] = service.experiments(namespace)
    if kind == "Trial" and choice.selector is not None and (only := choice.selector.labels.get(EXPERIMENT_LABEL)):
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
            with suppress(NotFoundError):  # it bears the experiment's name
                suggestion = service.get(Suggestion, experiment.namespace, experiment.name)
                yield Found(suggestion.encode(), suggestion)


def _named(service: TuningService, namespace: str, asked: Asked, choice: Choice) -> Iterator[Found]:
    for name in asked.names:
        try:
            if asked.kind == "Pod":
                found = [Found(pod) for pod in _pods_named(service, namespace, name)]
            else:
                obj = service.get(_TYPES[asked.kind], namespace, name_meant(service, namespace, name))
                found = [Found(obj.encode(), obj)]
        except NotFoundError as error:
            choice.on_missing(error)
        else:
            yield from found


def _pods_named(service: TuningService, namespace: str, name: str) -> Sequence[Json]:
    """Return the pods of an experiment or a trial, or the one of that name.

    Raises:
        NotFoundError: There is none of these.
    """
    for kind in ("Experiment", "Trial"):
        with suppress(NotFoundError):
            return service.pods(kind, namespace, name)
    if (found := pod_named(service, namespace, name)) is None:
        raise NotFoundError(f'neither an experiment, a trial nor a pod "{name}" is in namespace {namespace}')
    return [found]


def pod_named(service: TuningService, namespace: str, name: str) -> Json | None:
    """Return the pod of a name; None where there is none."""
    for experiment in service.experiments(namespace):
        for pod in service.pods("Experiment", namespace, experiment.name):
            if Key.of(pod).name == name:
                return pod
    return None


def _sorted(found: list[Found], kind: str, path: Path) -> list[Found]:
    """Return objects sorted as kubectl does: those without a value first, numbers by their size."""
    values = [path.values(one.document)[:1] for one in found]
    if found and not any(values):
        cause = f"no {kind.lower()} has a value there"
        raise invalid("--sort-by", cause, "check the path against that of -o json", "sort-missing")
    order = sorted(range(len(found)), key=lambda i: _order(values[i]))
    return [found[i] for i in order]


def _order(values: Sequence[Any]) -> tuple[Any, ...]:
    from katib.cli.jsonpath import number_of, text_of

    if not values:
        return (0,)
    if (number := number_of(values[0])) is not None:
        return 1, number
    parts = _DIGITS.split(text_of(values[0]))  # a-2 comes before a-10
    return 2, [int(part) if i % 2 else part for i, part in enumerate(parts)]
