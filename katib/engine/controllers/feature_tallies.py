"""Tallies of features by experiment: a view of the trial cache, like the ledger."""

from __future__ import annotations

from katib.engine.controllers.ledger import experiment_of
from katib.engine.runtime.objects import Key
from katib.model.features.feature import Feature, Part, Progress, Tally
from katib.model.features.listed import FEATURES
from katib.model.types import Experiment, Trial


class FeatureTallies:
    """Tallies of all features. `apply` runs under the lock of the trial cache; hold it to call `parts`."""

    def __init__(self) -> None:
        self._tallies: dict[tuple[Feature, Key], Tally] = {}

    def apply(self, old: Trial | None, new: Trial | None) -> None:
        """Apply one change of a trial: added (old is None), modified, or deleted (new is None)."""
        for feature in FEATURES:
            if old is not None and feature.counts(old):
                self._tallies[feature, experiment_of(old)].remove(old.name)
            if new is not None and feature.counts(new):
                place = feature, experiment_of(new)
                if place not in self._tallies:
                    self._tallies[place] = feature.tally()
                self._tallies[place].add(new)

    def parts(self, key: Key, experiment: Experiment, progress: Progress) -> tuple[Part, ...]:
        """Return the features' additions to an experiment's plan."""
        found = (feature.part(experiment, self._tallies.get((feature, key)), progress) for feature in FEATURES)
        return tuple(part for part in found if part is not None)
