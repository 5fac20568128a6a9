"""Which trials of this machine keep checkpoints, and where: `checkpoints/<namespace>/<experiment>/<trial>/`."""

from __future__ import annotations

from katib.api.checkpoints import checkpoint_directory, parent_of
from katib.api.names import EXPERIMENT_LABEL
from katib.api.types import Experiment, Trial
from katib.local.jobs.checkpoint import TrialCheckpoint
from katib.local.layout import Layout
from katib.runtime.informer import Informer
from katib.runtime.objects import Key, Object


class TrialCheckpoints:
    """Finds the checkpoint folders of trials.

    Args:
        layout: Where things lie.
        trials: Where the trial of a job is found, which has its name.
        experiments: Where its algorithm's settings are found.
    """

    def __init__(self, layout: Layout, trials: Informer[Trial], experiments: Informer[Experiment]) -> None:
        self._layout = layout
        self._trials = trials
        self._experiments = experiments

    def of(self, job: Object) -> TrialCheckpoint | None:
        """Return the folder of the trial that a job runs; None where the experiment keeps no checkpoints."""
        key = Key.of(job)
        trial = self._trials.get(key)
        name = trial.metadata.labels.get(EXPERIMENT_LABEL, "") if trial is not None else ""
        experiment = self._experiments.get(Key(key.namespace, name))
        if trial is None or experiment is None:
            return None
        mount_path = checkpoint_directory(experiment.spec.algorithm)
        if not mount_path:
            return None
        folder = self._layout.experiment_checkpoints(key.namespace, name)
        parent = parent_of(trial.metadata.labels)
        return TrialCheckpoint(mount_path, folder / trial.name, folder / parent if parent else None)
