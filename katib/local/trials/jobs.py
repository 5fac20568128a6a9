"""Between trials and their jobs: what a job needs of its trial, and what the trial's controller reads of the job.

Files of checkpoints on one machine: each trial's folder is `<data-dir>/checkpoints/<namespace>/<experiment>/<trial>/`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from katib.api.checkpoints import DEFAULT_DIRECTORY, checkpoint_directory, parent_of
from katib.api.names import CHECKPOINTS_ANNOTATION, EXPERIMENT_LABEL, KEPT, TRIAL_LABEL, WORKSPACE_ANNOTATION
from katib.api.trials import ACTIVE, trial_state
from katib.api.types import Experiment, Trial
from katib.controllers.kinds import key_of
from katib.controllers.ports import NO_UPDATE, EventRecorder, PodUpdate
from katib.controllers.trial.plan import is_stopping
from katib.local.jobs.controller import JobController
from katib.local.jobs.dependencies import Provision, TrialCheckpoint
from katib.local.jobs.prepare import trial_name, trial_owner
from katib.local.layout import Layout
from katib.local.pods.pulls import PullNews
from katib.local.trials.files import TrialFiles
from katib.runtime.informer import Informer
from katib.runtime.objects import Key, Object
from katib.tuning.reading import format_duration

_MINUTE_SECONDS = 60


class TrialJobs:
    """The trials that jobs belong to, each of which has the name of its job. Fits `JobOwner`.

    Args:
        files: What jobs leave; those of a job without a trial go with it.
        layout: Where checkpoints are.
        trials: Where the trial of a job is found.
        experiments: Where its experiment is found.
        events: Where fetches of images, in the words of a kubelet, and retries are noted.
        wake: Has the controller look at a trial again.
    """

    def __init__(
        self,
        files: TrialFiles,
        layout: Layout,
        trials: Informer[Trial],
        experiments: Informer[Experiment],
        events: EventRecorder,
        wake: Callable[[Key], None],
    ) -> None:
        self._files = files
        self._layout = layout
        self._trials = trials
        self._experiments = experiments
        self._events = events
        self._wake = wake
        self._default_workspace = Path.cwd()

    def provision(self, job: Object) -> Provision:
        """Return what the pods of a job are given.

        They run where its experiment was submitted from, else where the engine was started.
        """
        trial = self._trials.get(Key.of(job))
        name = "" if trial is None else trial.metadata.labels.get(EXPERIMENT_LABEL, "")
        experiment = None if trial is None else self._experiments.get(Key(trial.namespace, name))
        if trial is None or experiment is None:
            return Provision(self._default_workspace, experiment=name)
        text, checkpoint = experiment.metadata.annotations.get(WORKSPACE_ANNOTATION, ""), None
        mount = checkpoint_directory(experiment.spec.algorithm)
        is_kept = experiment.metadata.annotations.get(CHECKPOINTS_ANNOTATION) == KEPT
        if mount or is_kept:
            folder = self._layout.checkpoints / experiment.namespace / experiment.name
            parent = parent_of(trial.metadata.labels) if mount else ""
            start = folder / parent if parent else None
            checkpoint = TrialCheckpoint(mount or DEFAULT_DIRECTORY, folder / trial.name, start, is_kept)
        return Provision(Path(text) if text else self._default_workspace, checkpoint, name)

    def pod_labels(self, job: Object) -> Mapping[str, str]:
        """Return what the pods of a trial's job are labelled with, as in a cluster."""
        trial = self._trials.get(Key.of(job))
        return {**(trial.metadata.labels if trial is not None else {}), TRIAL_LABEL: trial_name(job)}

    def may_start(self, job: Object) -> bool:
        """Return whether a new job is to run; no when its trial is being stopped."""
        trial = self._trials.get(Key.of(job))
        return trial is None or not is_stopping(trial)

    def may_delete(self, job: Object) -> bool:
        """Return whether a job that outlived its time to live may go; no while its trial is active."""
        trial = self._trials.get(Key.of(job))
        return trial is None or trial_state(trial) not in ACTIVE

    def stands(self, job: Object) -> None:
        """Have the controller look at the trial: its job runs, or waits for something else."""
        self._wake(Key.of(job))

    def gone(self, job: Object) -> None:
        """Have the controller look at the trial: nothing of its deleted job runs any more."""
        if trial_owner(job) is None and self._trials.get(Key.of(job)) is None:
            self._files.remove(Key.of(job))
        self._wake(Key.of(job))

    def pulled(self, job: Object, news: PullNews) -> None:
        """Note what happened to an image of a job."""
        if (trial := self._trials.get(Key.of(job))) is not None:
            reason, message = _event(news)
            self._events.record(trial, warning=bool(news.problem), reason=reason, message=message)
            self._wake(Key.of(job))

    def retried(self, job: Object, how: str) -> None:
        """Note how a try of a job failed."""
        if (trial := self._trials.get(Key.of(job))) is not None:
            self._events.record(trial, warning=True, reason="JobRetrying", message=f"Job {trial.name}: {how}")


class TrialPods:
    """What the jobs of trials say of their pods. Fits `katib.controllers.ports.PodWatcher`."""

    def __init__(self, jobs: JobController) -> None:
        self._jobs = jobs

    def update_of(self, trial: Trial) -> PodUpdate:
        """Return whether a trial runs and what it waits for."""
        if (standing := self._jobs.standing(key_of(trial))) is None:
            return NO_UPDATE
        return PodUpdate(standing.waiting, is_trouble=False, runs=standing.runs, place=standing.place)

    def is_ending(self, trial: Trial) -> bool:
        """Return whether programs of a deleted job may still run."""
        return self._jobs.runs(key_of(trial))

    def has_queues(self) -> bool:
        """Return that jobs which name a queue start at once: nothing queues them here."""
        return False


def _event(news: PullNews) -> tuple[str, str]:
    """Return the reason and the message of the event that a kubelet would write."""
    if news.seconds is None:
        return "Pulling", f'Pulling image "{news.image}"'
    if news.problem:
        return "Failed", f'Failed to pull image "{news.image}": {news.problem}'
    took = f"{news.seconds:.1f}s" if news.seconds < _MINUTE_SECONDS else format_duration(news.seconds)
    return "Pulled", f'Successfully pulled image "{news.image}" in {took}'
