"""Experiments by their titles: a study of Optuna has one of any characters, and so a name that differs from it."""

from __future__ import annotations

from contextlib import suppress

from katib.api.names import TITLE_ANNOTATION, name_of_title
from katib.api.types import Experiment
from katib.errors import NotFoundError
from katib.tuning.service import TuningService


def name_meant(service: TuningService, namespace: str, text: str) -> str:
    """Return the name of the experiment with a title; the text itself where it is no title, be it a name or not.

    What could only be a name costs no request.

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
