"""The informers that the controllers read, as one object, since most readers need several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from katib.engine.controllers.cached_trial import TrialDecoder
from katib.engine.controllers.job_caches import JobCaches, identity
from katib.engine.controllers.kinds import CONFIG_MAP, EXPERIMENT, OPTIMIZATION_JOB, SUGGESTION, TRIAL
from katib.engine.controllers.ledger import OrderOf, TrialLedger, experiment_of
from katib.engine.runtime.cache import CacheSnapshot
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.informer import Informer
from katib.engine.runtime.objects import Key, Kind, Object, ObjectStore
from katib.engine.runtime.shared_thread import SharedThread
from katib.model.features.feature import Feature, Part, Progress, Tally
from katib.model.features.listed import FEATURES
from katib.model.types import Experiment, Suggestion, Trial

if TYPE_CHECKING:
    from katib.model.types.optimization import OptimizationJob


def _optimization_job(obj: Object) -> OptimizationJob:
    from katib.model.types.optimization import OptimizationJob

    return OptimizationJob.read(obj)


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

    def history(self, key: Key, experiment: Experiment) -> Sequence[Trial] | None:
        """Return the trials of an experiment as algorithms see them; None if they see them as they are."""
        found = (feature.history(experiment, self._tallies.get((feature, key))) for feature in FEATURES)
        return next((trials for trials in found if trials is not None), None)


@dataclass(frozen=True, slots=True)
class Caches:
    """The informers, shared with other readers.

    Attributes:
        optimization_jobs: None if OptimizationJobs are not watched.
        stored_readings: Number of stored batches of readings by experiment, as far as known.
    """

    experiments: Informer[Experiment]
    suggestions: Informer[Suggestion]
    trials: Informer[Trial]
    jobs: JobCaches
    ledger: TrialLedger
    tallies: FeatureTallies
    config_maps: Informer[Object]
    optimization_jobs: Informer[OptimizationJob] | None = None
    stored_readings: Counter[Key] = field(default_factory=Counter)

    @classmethod
    def of(
        cls,
        store: ObjectStore,
        job_kinds: Sequence[Kind],
        clock: Clock,
        *,
        decode_experiment: Callable[[Object], Experiment] = Experiment.decode,
        decode_job: Callable[[Object], Object] = identity,
        follows_new_jobs: bool = False,
        job_store: ObjectStore | None = None,
        shows_labelled_jobs: bool = False,
        order_of: OrderOf | None = None,
        offered: ObjectStore | None = None,
        has_optimization_jobs: bool = False,
        thread: SharedThread | None = None,
    ) -> Caches:
        """Return caches of a store, not started.

        Args:
            decode_experiment: Decodes experiments, adding defaults if they may be stored without.
            decode_job: Reduces a job to the part that is cached.
            follows_new_jobs: Whether trials may run as other kinds, too.
            job_store: Store of the jobs, if not `store`.
            shows_labelled_jobs: Whether that store omits jobs without their label.
            order_of: Position of a trial among the others; by default the order of arrival.
            offered: Lists the ConfigMaps worth watching for trial templates; all of the store by default.
            has_optimization_jobs: Whether the store has OptimizationJobs.
            thread: Thread shared by the informers; None gives each its own.
        """
        trials = Informer(store, TRIAL, TrialDecoder(), experiment_of, clock=clock, thread=thread)
        ledger = TrialLedger(trials.get, order_of)
        trials.add_view(ledger)
        tallies = FeatureTallies()
        trials.add_view(tallies)
        return cls(
            experiments=Informer(store, EXPERIMENT, decode_experiment, clock=clock, thread=thread),
            suggestions=Informer(store, SUGGESTION, Suggestion.decode, clock=clock, thread=thread),
            trials=trials,
            jobs=JobCaches(
                job_store or store,
                job_kinds,
                clock,
                decode=decode_job,
                follows_new=follows_new_jobs,
                shows_labelled=shows_labelled_jobs,
                thread=thread,
            ),
            ledger=ledger,
            tallies=tallies,
            config_maps=Informer(offered or store, CONFIG_MAP, identity, clock=clock, thread=thread),
            optimization_jobs=Informer(store, OPTIMIZATION_JOB, _optimization_job, clock=clock, thread=thread)
            if has_optimization_jobs
            else None,
        )

    @property
    def all(self) -> tuple[Informer[Experiment] | Informer[Suggestion] | Informer[Trial] | Informer[Object], ...]:
        """The informers that must sync before the controllers start."""
        return (self.experiments, self.suggestions, self.trials, *self.jobs.known)

    def has(self, kind: Kind, key: Key) -> bool:
        """Return whether an Experiment, a Suggestion or a Trial is cached."""
        caches: dict[Kind, Informer[Any]] = {
            EXPERIMENT: self.experiments,
            SUGGESTION: self.suggestions,
            TRIAL: self.trials,
        }
        return caches[kind].has(key)

    def trials_of(self, experiment: Key) -> CacheSnapshot[Trial]:
        """Return the trials labelled with an experiment, in order of creation."""
        return self.trials.group(experiment)

    def active_trials(self, experiment: Key) -> list[Trial]:
        """Return the pending and running trials of an experiment."""
        names = self.ledger.counts(experiment).active
        return [trial for name in names if (trial := self.trials.get(Key(experiment.namespace, name))) is not None]
