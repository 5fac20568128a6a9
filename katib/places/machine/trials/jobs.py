"""Relation between trials and their jobs: input of a job from its trial, and state of a job for its controller."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from katib.engine.controllers.experiment.plan import is_stopped
from katib.engine.controllers.kinds import key_of
from katib.engine.controllers.ledger import experiment_of
from katib.engine.controllers.ports import NO_UPDATE, EventRecorder, PodUpdate
from katib.engine.controllers.trial.plan import is_stopping
from katib.engine.runtime.informer import Informer
from katib.engine.runtime.objects import Key, Object
from katib.model.checkpoints import (
    DEFAULT_DIRECTORY,
    checkpoint_directory,
    parent_of,
)
from katib.model.names import (
    CHECKPOINTS_ANNOTATION,
    EXPERIMENT_LABEL,
    HELD_WORDS,
    KEPT,
    SLURM_OPTIONS_ANNOTATION,
    TRIAL_LABEL,
    WORKSPACE_ANNOTATION,
)
from katib.model.templates.render import compile_template
from katib.model.trials import ACTIVE, trial_state
from katib.model.types import Experiment, Trial
from katib.model.wording import format_duration
from katib.places.machine.jobs.controller import JobController
from katib.places.machine.jobs.dependencies import Provision, TrialCheckpoint
from katib.places.machine.jobs.prepare import trial_name, trial_owner
from katib.places.machine.layout import Layout
from katib.places.machine.trials.files import TrialFiles

if TYPE_CHECKING:
    from katib.places.machine.pods.pulls import PullNews

_MINUTE_SECONDS = 60


class TrialJobs:
    """The trials of jobs, each with the name of its job. Implements `JobOwner`.

    Args:
        files: Files of jobs; those of a job without a trial are removed with it.
        layout: Layout of the data directory, for checkpoints.
        events: Recorder of image pulls, in the words of a kubelet, and of retries.
        went_on: Receives a trial whose programs ran without an engine, and their end on the monotonic clock.
        is_interrupted: Returns whether an experiment is not for this engine.
    """

    def __init__(
        self,
        files: TrialFiles,
        layout: Layout,
        trials: Informer[Trial],
        experiments: Informer[Experiment],
        events: EventRecorder,
        wake: Callable[[Key], None],
        went_on: Callable[[Trial, float | None], None],
        is_interrupted: Callable[[Experiment], bool],
    ) -> None:
        self._files = files
        self._layout = layout
        self._trials = trials
        self._experiments = experiments
        self._events = events
        self._wake = wake
        self._went_on = went_on
        self._is_interrupted = is_interrupted
        self._default_workspace = Path.cwd()

    def provision(self, job: Object) -> Provision:
        """Return the input of a job's pods.

        They run in the directory from which its experiment was submitted, by default that of the engine.
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

    def keeps_checkpoint(self, job: Object) -> bool:
        """Return whether a failed attempt of a job leaves its checkpoint to the next one."""
        return self.provision(job).checkpoint is not None

    def placement(self, job: Object, path: str) -> Mapping[str, str]:
        """Return the options of Slurm, which may have changed since the job was created."""
        trial = self._trials.get(Key.of(job))
        name = "" if trial is None else trial.metadata.labels.get(EXPERIMENT_LABEL, "")
        experiment = None if trial is None else self._experiments.get(Key(trial.namespace, name))
        template = None if experiment is None else experiment.spec.trial_template
        if trial is None or experiment is None or template is None or template.trial_spec is None:
            return {}
        compiled, spec = compile_template(template, None, experiment.spec.parameters or ()), trial.spec
        found: Any = compiled.render(spec.parameter_assignments, trial.name, trial.namespace, spec.labels or {})
        try:
            for part in filter(None, re.split(r"[.\[\]]", path)):
                found = found[int(part) if isinstance(found, list) else part]
        except LookupError:  # it was created from a training runtime
            return {}
        annotations = (found.get("metadata") or {}).get("annotations") or {}
        return {SLURM_OPTIONS_ANNOTATION: str(annotations.get(SLURM_OPTIONS_ANNOTATION) or "")}

    def pod_labels(self, job: Object) -> Mapping[str, str]:
        """Return the labels for the pods of a trial's job, as in a cluster."""
        trial = self._trials.get(Key.of(job))
        return {**(trial.metadata.labels if trial is not None else {}), TRIAL_LABEL: trial_name(job)}

    def may_start(self, job: Object) -> bool:
        """Return whether a new job may run: not if its trial is being stopped, or waits for another engine."""
        trial = self._trials.get(Key.of(job))
        return trial is None or not (is_stopping(trial) or self.is_cut_off(trial))

    def is_interrupted(self, job: Object) -> bool:
        """Return whether a job waits for another engine."""
        trial = self._trials.get(Key.of(job))
        return trial is not None and self.is_cut_off(trial)

    def is_cut_off(self, trial: Trial) -> bool:
        """Return whether a trial waits for another engine."""
        experiment = self._experiments.get(experiment_of(trial))
        return experiment is not None and self._is_interrupted(experiment)

    def is_stopped(self, job: Object) -> bool:
        trial = self._trials.get(Key.of(job))
        experiment = None if trial is None else self._experiments.get(experiment_of(trial))
        return experiment is not None and is_stopped(experiment)

    def may_delete(self, job: Object) -> bool:
        """Return whether a job past its time to live may be deleted: not while its trial is active."""
        trial = self._trials.get(Key.of(job))
        return trial is None or trial_state(trial) not in ACTIVE

    def stands(self, job: Object) -> None:
        """Enqueue the trial of a job that runs, or waits for something else."""
        self._wake(Key.of(job))

    def went_on(self, job: Object, until: float | None) -> None:
        """Count the time in which the programs of a job ran without an engine."""
        if (trial := self._trials.get(Key.of(job))) is not None:
            self._went_on(trial, until)

    def gone(self, job: Object) -> None:
        """Enqueue the trial of a deleted job whose programs have ended."""
        if trial_owner(job) is None and self._trials.get(Key.of(job)) is None:
            self._files.remove(Key.of(job))
        self._wake(Key.of(job))

    def pulled(self, job: Object, news: PullNews) -> None:
        if (trial := self._trials.get(Key.of(job))) is not None:
            reason, message = _event(news)
            self._events.record(trial, warning=bool(news.problem), reason=reason, message=message)
            self._wake(Key.of(job))

    def retried(self, job: Object, how: str) -> None:
        if (trial := self._trials.get(Key.of(job))) is not None:
            self._events.record(trial, warning=True, reason="JobRetrying", message=f"Job {trial.name}: {how}")


CUT_OFF = PodUpdate("its experiment is interrupted", is_trouble=False, runs=False)


class TrialPods:
    """State of the pods of trials' jobs. Implements `katib.engine.controllers.ports.PodWatcher`."""

    def __init__(self, jobs: JobController, owner: TrialJobs) -> None:
        self._jobs = jobs
        self._owner = owner

    def update_of(self, trial: Trial) -> PodUpdate:
        if (standing := self._jobs.standing(key_of(trial))) is None:
            return CUT_OFF if self._owner.is_cut_off(trial) else NO_UPDATE
        queued = HELD_WORDS if standing.waiting == HELD_WORDS else ""
        return PodUpdate(standing.waiting, is_trouble=False, runs=standing.runs, place=standing.place, queued=queued)

    def is_ending(self, trial: Trial) -> bool:
        """Return whether programs of a deleted job may still run."""
        return self._jobs.runs(key_of(trial))

    def has_queues(self) -> bool:
        """Return False: jobs with a queue start at once, as there are no queues here."""
        return False


def _event(news: PullNews) -> tuple[str, str]:
    """Return the reason and the message of the corresponding kubelet event."""
    if news.seconds is None:
        return "Pulling", f'Pulling image "{news.image}"'
    if news.problem:
        return "Failed", f'Failed to pull image "{news.image}": {news.problem}'
    took = f"{news.seconds:.1f}s" if news.seconds < _MINUTE_SECONDS else format_duration(news.seconds)
    return "Pulled", f'Successfully pulled image "{news.image}" in {took}'
