"""Trials as the cache keeps them: ten thousand of them have to fit into memory.

What the trials of an experiment have in common is kept once. The rendered job of a trial that has ended is dropped but
for its kind, for it will not be created again. A cached trial is therefore for reading and for writing its status;
whoever writes anything else reads the stored object first.
"""

from __future__ import annotations

from collections import OrderedDict

from katib.api.types import Trial
from katib.controllers.trial_states import ACTIVE, state_of
from katib.runtime.objects import Object

_SHARED_FIELDS = ("objective", "metrics_collector", "early_stopping_rules")
_KIND_FIELDS = ("apiVersion", "kind")
_REMEMBERED_EXPERIMENTS = 500
"""More than run at once; those that are gone must not be kept for ever."""


class TrialDecoder:
    """Decodes trials for a cache. Used by one thread."""

    def __init__(self) -> None:
        self._last: OrderedDict[str, Trial] = OrderedDict()

    def __call__(self, obj: Object) -> Trial:
        """Return the trial, sharing with the last one of its experiment what is equal."""
        trial = Trial.decode(obj)
        owner = trial.metadata.owner_references[0].uid if trial.metadata.owner_references else ""
        last = self._last.get(owner)
        update = {}
        if last is not None:
            update = {
                name: getattr(last.spec, name)
                for name in _SHARED_FIELDS
                if getattr(last.spec, name) == getattr(trial.spec, name)
            }
        if state_of(trial) not in ACTIVE:
            update["run_spec"] = {key: (trial.spec.run_spec or {}).get(key, "") for key in _KIND_FIELDS}
        slim = trial.model_copy(update={"spec": trial.spec.model_copy(update=update)}) if update else trial
        self._remember(owner, slim)
        return slim

    def _remember(self, owner: str, trial: Trial) -> None:
        self._last[owner] = trial
        self._last.move_to_end(owner)
        if len(self._last) > _REMEMBERED_EXPERIMENTS:
            self._last.popitem(last=False)
