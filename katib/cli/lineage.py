"""How the checkpoint of a trial came about: the trials that led to it, as population based training labels them."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from katib.api.names import GENERATION_LABEL, PARENT_LABEL
from katib.api.types import Trial
from katib.errors import NotFoundError
from katib.tuning.reading import (
    metric_of,
    objective_value,
    parameters_of,
    short,
)
from katib.tuning.service import TuningService

_SHOWN = 30
"""Generations; what a screen holds."""


def lineage_lines(service: TuningService, trial: Trial) -> Iterator[str]:
    """Yield the trials whose checkpoints led to that of a trial, itself first; nothing for a trial without a parent.

    Args:
        service: Where they are found.
        trial: The youngest.
    """
    if not _label(trial, PARENT_LABEL):
        return
    yield ""
    yield "Lineage, each trial from the checkpoint of the next one:"
    youngest: Trial | None = trial
    for _ in range(_SHOWN):
        if youngest is None:
            return
        metric = metric_of(youngest)
        value = f"{metric}={short(objective_value(youngest) or '-')}"
        generation = f"generation {_label(youngest, GENERATION_LABEL) or '0'}"
        yield f"  {generation:<14}  {youngest.name}  {value}  {parameters_of(youngest)}"
        youngest = yield from _parent(service, youngest)
    if youngest is not None:
        yield f"  and {int(_label(youngest, GENERATION_LABEL) or 0) + 1} before them"


def _parent(service: TuningService, trial: Trial) -> Generator[str, None, Trial | None]:
    parent = _label(trial, PARENT_LABEL)
    if not parent:
        return None
    try:
        return service.get(Trial, trial.namespace, parent)
    except NotFoundError:
        yield f"  {parent}, which was deleted"
        return None


def _label(trial: Trial, label: str) -> str:
    return trial.metadata.labels.get(label, "")
