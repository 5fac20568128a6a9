"""Checkpoints on a volume shared by the service and its trials, in the layout of Katib's service.

A trial's folder is `<root>/<experiment>/<trial>`; the trial sees no other part of the volume. The origin of a folder is
recorded beside it, so that a service that is asked again after a lost answer neither copies twice nor reuses a folder
of another answer.
"""

from __future__ import annotations

import os
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path

from katib.errors import FieldError, NotFoundError, UnavailableError
from katib.model.checkpoints import (
    CHECKPOINT_ROOT_VARIABLE,
    NAMESPACE_VARIABLE,
    TRIAL_DIRECTORY_SETTING,
    CheckpointOwner,
    is_shared_directory,
    is_url,
    unneeded,
)
from katib.model.files.checkpoint_folders import (
    CheckpointError,
    CheckpointGoneError,
    has_remains,
    provide_checkpoint,
    remove_checkpoint,
)
from katib.model.names import trial_name
from suggestion_services.base.algorithm import PastTrial, Problem, TrialOutcome

DEFAULT_ROOT = "/opt/katib/data"
"""As in Katib's installations."""

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_MAX_PREFIX = 54  # of a trial's name, which has nine more characters and is a label and the name of a job


@dataclass(frozen=True, slots=True)
class CheckpointVolume:
    """A mounted volume.

    Attributes:
        namespace: Namespace of the service; part of trial names, so that equally named experiments of two namespaces
            name their trials differently.
    """

    root: Path
    namespace: str = ""

    @classmethod
    def of_environment(cls) -> CheckpointVolume | None:
        given = os.environ.get(CHECKPOINT_ROOT_VARIABLE)
        root = Path(DEFAULT_ROOT if given is None else given)
        if given == "" or (given is None and not root.is_dir()):
            return None
        return cls(root, _namespace())

    def trial_name(self, experiment: str, k: int, taken: Container[str]) -> str:
        """Return the name of the trial of the k-th suggestion, at most 63 characters."""
        return trial_name(self.namespace, experiment[:_MAX_PREFIX].rstrip("-."), k, taken)

    def provide(self, experiment: str, trial: str, parent: str) -> None:
        """Provide a complete folder for a trial: a copy of its parent's, or an empty one.

        Raises:
            UnavailableError: It cannot be written.
            NotFoundError: The parent's folder does not exist.
        """
        folder = self.root / experiment
        origin = folder / parent if parent else None
        try:
            provide_checkpoint(folder / trial, folder / f".{trial}.origin", origin, for_everybody=True)
        except CheckpointGoneError as error:
            raise NotFoundError(str(error)) from error
        except CheckpointError as error:
            raise UnavailableError(str(error)) from error

    def remove_unneeded(self, problem: Problem, trials: Sequence[PastTrial], first: int) -> None:
        """Remove the folders that no later trial can start from, except the best trial's.

        Does nothing while a suggestion has not become a trial: its parent is unknown here.

        Args:
            first: Number of suggestions given before.
        """
        own = [trial for trial in trials if not trial.is_earlier]
        if len(own) != first:
            return
        owners = [
            CheckpointOwner(
                trial.name,
                trial.labels,
                trial.outcome is not TrialOutcome.PENDING,
                trial.outcome is TrialOutcome.MEASURED,
            )
            for trial in own
        ]
        measured = [trial for trial in own if trial.outcome is TrialOutcome.MEASURED]
        sign = 1 if problem.maximize else -1
        best = max(measured, key=lambda trial: (trial.is_feasible, sign * trial.objective), default=None)
        for name in unneeded(owners):
            folder = self.root / problem.experiment / name
            if (best is None or name != best.name) and has_remains(folder):
                remove_checkpoint(folder)


def check_place(place: str) -> tuple[FieldError, ...]:
    """Return the errors of a checkpoint path; values that cannot be passed to a program are refused."""
    if is_url(place) or is_shared_directory(place):
        return ()
    name = TRIAL_DIRECTORY_SETTING
    cause = f'"{place}" is not an absolute path of a directory' if place else f"{name} is missing"
    remedy = "name the directory in which trials find their checkpoint"
    return (FieldError(f"spec.algorithm.algorithmSettings.{name}", cause, remedy, "checkpoint-place"),)


def _namespace() -> str:
    if given := os.environ.get(NAMESPACE_VARIABLE):
        return given
    try:
        return _NAMESPACE_FILE.read_text().strip()
    except OSError:
        return ""
