"""Which experiment is meant: by its title, which a study of Optuna has in any characters, and without a namespace."""

from __future__ import annotations

from contextlib import suppress

from katib.errors import KatibError, NotFoundError
from katib.model.names import TITLE_ANNOTATION, name_of_title
from katib.model.types import Experiment
from katib.service.tuning.service import DEFAULT_NAMESPACE, TuningService


def namespace_in_use(service: TuningService) -> str:
    """Return the namespace that all experiments are in; the default one if there are several or none."""
    used: set[str] = set()
    with suppress(KatibError):  # one who may not list them names a namespace
        used.update(experiment.namespace for experiment in service.experiments())
    return used.pop() if len(used) == 1 else DEFAULT_NAMESPACE


def name_meant(service: TuningService, namespace: str, text: str) -> str:
    """Return the name of the experiment with a title; the text itself if it is not a title.

    A text that can only be a name costs no request.

    Raises:
        NotFoundError: There is no such title, and it cannot be a name.
    """
    name = name_of_title(text)
    if name != text:
        with suppress(NotFoundError):
            if service.get(Experiment, namespace, name).metadata.annotations.get(TITLE_ANNOTATION) == text:
                return name
    if "/" in text:
        kinds = "experiments, trials, suggestions or pods"
        raise NotFoundError(f'"{text}" is neither the title of a study nor KIND/NAME with {kinds}')
    return text
