"""Which names trials have taken."""

from __future__ import annotations

from katib.api.types import Trial
from katib.runtime.informer import Informer
from katib.runtime.objects import Key


class TakenNames:
    """The names of the trials of a namespace, looked up in the cache one by one."""

    def __init__(self, trials: Informer[Trial], namespace: str) -> None:
        self._trials = trials
        self._namespace = namespace

    def __contains__(self, name: object) -> bool:
        return self._trials.get(Key(self._namespace, str(name))) is not None
