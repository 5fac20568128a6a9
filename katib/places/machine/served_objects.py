"""The objects of one machine as its Kubernetes API serves them. Imported when a server offers them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from katib.engine.runtime.objects import Kind
from katib.places.machine.findings import Structure
from katib.places.machine.jobs.batch.job import JOB
from katib.places.machine.jobs.jobset.rules import JOB_SET_SPEC, RUNTIME_SPEC, TRAIN_JOB_SPEC
from katib.places.machine.jobs.jobset.runtimes import RUNTIME_KINDS, shipped_documents
from katib.places.machine.jobs.kinds import JobKinds
from katib.places.machine.jobs.replicated.job import ReplicatedJob
from katib.places.machine.jobs.replicated.rules import spec_structure
from katib.service.tuning.object_home import ObjectHome

_OF_JOB_SETS: Final[Mapping[str, Structure]] = {"JobSet": JOB_SET_SPEC, "TrainJob": TRAIN_JOB_SPEC}


def served_objects(**given: Any) -> ObjectHome:
    """Return the objects with shipped runtimes and the structures of kinds; takes fields of `ObjectHome`."""
    return ObjectHome(**given, runtimes=shipped_documents(), structures=spec_structures())


def spec_structures() -> Mapping[Kind, Structure]:
    """Return the structure of the spec of each kind but batch Jobs, which have a schema, and of training runtimes."""
    jobs = {kind: job for kind, job in JobKinds().items() if kind != JOB}
    return {
        **{
            kind: spec_structure(job) if isinstance(job, ReplicatedJob) else _OF_JOB_SETS[kind.kind]
            for kind, job in jobs.items()
        },
        **dict.fromkeys(RUNTIME_KINDS.values(), RUNTIME_SPEC),
    }
