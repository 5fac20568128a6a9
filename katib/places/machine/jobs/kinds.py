"""The kinds of jobs that run on this machine. A kind that is not here needs a cluster."""

from __future__ import annotations

from collections.abc import Mapping

from katib.engine.runtime.objects import Key, Kind
from katib.places.machine.findings import Structure
from katib.places.machine.jobs.batch.job import BatchJob
from katib.places.machine.jobs.jobset.jobset import JobSet, TrainJob
from katib.places.machine.jobs.jobset.rules import JOB_SET_SPEC, RUNTIME_SPEC, TRAIN_JOB_SPEC
from katib.places.machine.jobs.jobset.runtimes import RUNTIME_KINDS, Find
from katib.places.machine.jobs.kind import JobKind
from katib.places.machine.jobs.replicated.frameworks import JAXJob, PaddleJob, PyTorchJob, TFJob, XGBoostJob
from katib.places.machine.jobs.replicated.job import ReplicatedJob
from katib.places.machine.jobs.replicated.mpijob import MPIJob, MPIOperatorJob
from katib.places.machine.jobs.replicated.rules import spec_structure

_TRAININGS: tuple[type[ReplicatedJob], ...] = (
    *(TFJob, PyTorchJob, XGBoostJob, PaddleJob, JAXJob, MPIJob, MPIOperatorJob),
)


def nothing_stored(_kind: Kind, _key: Key) -> None:
    """Find nothing."""


def job_kinds(find: Find = nothing_stored) -> tuple[JobKind, ...]:
    """Return the kinds, in the order in which messages list them.

    Args:
        find: Where stored objects are; a kind may depend on others, as a TrainJob does on its runtime.
    """
    return (
        BatchJob(),
        *(training() for training in _TRAININGS),
        JobSet(),
        TrainJob(find),
    )


def spec_structures() -> Mapping[Kind, Structure]:
    """Return the structure of the spec of each kind but batch Jobs, which have a schema, and of training runtimes."""
    return {
        **{training.kind: spec_structure(training) for training in _TRAININGS},
        JobSet().kind: JOB_SET_SPEC,
        TrainJob(nothing_stored).kind: TRAIN_JOB_SPEC,
        **dict.fromkeys(RUNTIME_KINDS.values(), RUNTIME_SPEC),
    }


def kinds_by_name(kinds: tuple[JobKind, ...]) -> Mapping[Kind, JobKind]:
    """Return the kinds by apiVersion and kind.

    Raises:
        ValueError: Two of them are the same.
    """
    found = {kind.kind: kind for kind in kinds}
    if len(found) < len(kinds):
        raise ValueError("a kind of job is listed twice")
    return found
