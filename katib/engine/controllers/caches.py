"""The caches of what the controllers read, together: who reads one of them mostly reads another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from katib.engine.controllers.cached_trial import TrialDecoder
from katib.engine.controllers.feature_tallies import FeatureTallies
from katib.engine.controllers.job_caches import JobCaches, identity
from katib.engine.controllers.kinds import CONFIG_MAP, EXPERIMENT, OPTIMIZATION_JOB, SUGGESTION, TRIAL
from katib.engine.controllers.ledger import OrderOf, TrialLedger, experiment_of
from katib.engine.runtime.cache import CacheSnapshot
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.informer import Informer
from katib.engine.runtime.objects import Key, Kind, Object, ObjectStore
from katib.engine.runtime.shared_thread import SharedThread
from katib.model.types import Experiment, Suggestion, Trial
from katib.model.types.optimization import OptimizationJob


@dataclass(frozen=True, slots=True)
class Caches:
    """The informers, for others that want to read what the controllers read.

    Attributes:
        optimization_jobs: None where they are not followed.
        stored_readings: How many batches of readings are known to be stored, by experiment, where that is known at all.
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
            store: Where the objects are.
            job_kinds: Kinds of jobs that are there from the start.
            clock: For the informers.
            decode_experiment: Where experiments may come without defaults, this adds them.
            decode_job: Turns a job into what is remembered of it.
            follows_new_jobs: Whether trials may run as other kinds, too.
            job_store: Where jobs are followed, if not in `store`.
            shows_labelled_jobs: Whether it leaves out those without their label.
            order_of: Where a trial stands among the others, if not where it came.
            offered: Shows those ConfigMaps that are worth watching for trial templates; all of the store by default.
            has_optimization_jobs: Whether the store has OptimizationJobs.
            thread: Where the informers take turns; None: each has a thread of its own.
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
            optimization_jobs=Informer(store, OPTIMIZATION_JOB, OptimizationJob.read, clock=clock, thread=thread)
            if has_optimization_jobs
            else None,
        )

    @property
    def all(self) -> tuple[Informer[Experiment] | Informer[Suggestion] | Informer[Trial] | Informer[Object], ...]:
        """Every informer that controllers wait for before they start."""
        return (self.experiments, self.suggestions, self.trials, *self.jobs.known)

    def trials_of(self, experiment: Key) -> CacheSnapshot[Trial]:
        """Return the trials that bear the name of an experiment, in order of creation."""
        return self.trials.group(experiment)

    def active_trials(self, experiment: Key) -> list[Trial]:
        """Return the trials of an experiment that are pending or running."""
        names = self.ledger.counts(experiment).active
        return [trial for name in names if (trial := self.trials.get(Key(experiment.namespace, name))) is not None]
