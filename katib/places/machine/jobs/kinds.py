"""The kinds of jobs that run on this machine. A kind that is not here needs a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from katib.engine.runtime.objects import Key, Kind, Object
from katib.model.loadable import Loadable
from katib.places.machine.findings import Findings
from katib.places.machine.jobs.kind import JobKind

Find = Callable[[Kind, Key], Object | None]
"""Returns a stored object, or None if there is none."""

_OPERATOR, _REPLICATED = "kubeflow.org/v1", "katib.places.machine.jobs.replicated"
_TRAIN_JOB: Final = Kind("trainer.kubeflow.org/v1alpha1", "TrainJob")

_LISTED: Final[tuple[tuple[Kind, Loadable[Callable[..., JobKind]]], ...]] = (
    (Kind("batch/v1", "Job"), Loadable("katib.places.machine.jobs.batch.job:BatchJob")),
    (Kind(_OPERATOR, "TFJob"), Loadable(f"{_REPLICATED}.frameworks:TFJob")),
    (Kind(_OPERATOR, "PyTorchJob"), Loadable(f"{_REPLICATED}.frameworks:PyTorchJob")),
    (Kind(_OPERATOR, "XGBoostJob"), Loadable(f"{_REPLICATED}.frameworks:XGBoostJob")),
    (Kind(_OPERATOR, "PaddleJob"), Loadable(f"{_REPLICATED}.frameworks:PaddleJob")),
    (Kind(_OPERATOR, "JAXJob"), Loadable(f"{_REPLICATED}.frameworks:JAXJob")),
    (Kind(_OPERATOR, "MPIJob"), Loadable(f"{_REPLICATED}.mpijob:MPIJob")),
    (Kind("kubeflow.org/v2beta1", "MPIJob"), Loadable(f"{_REPLICATED}.mpijob:MPIOperatorJob")),
    (Kind("jobset.x-k8s.io/v1alpha2", "JobSet"), Loadable("katib.places.machine.jobs.jobset.jobset:JobSet")),
    (_TRAIN_JOB, Loadable("katib.places.machine.jobs.jobset.jobset:TrainJob")),
)
"""In the order in which messages list them. A kind is imported when a job of it is first looked up."""

CHECK_RUNTIME: Final[Loadable[Callable[[Object, Findings], None]]] = Loadable(
    "katib.places.machine.jobs.jobset.rules:check_runtime"
)
"""The check of a training runtime to which no TrainJob refers yet."""


def nothing_stored(_kind: Kind, _key: Key) -> None:
    """Find nothing."""


class JobKinds(Mapping[Kind, JobKind]):
    """The kinds by apiVersion and kind, each made when it is first looked up.

    Args:
        find: Finds stored objects; a kind may depend on others, as a TrainJob does on its runtime.
    """

    def __init__(self, find: Find = nothing_stored) -> None:
        self._find = find
        self._made: dict[Kind, JobKind] = {}

    def __getitem__(self, kind: Kind) -> JobKind:
        made = self._made.get(kind)
        if made is None:
            make = _BY_KIND[kind].load()
            made = self._made[kind] = make(self._find) if kind == _TRAIN_JOB else make()
        return made

    def __contains__(self, kind: object) -> bool:
        return kind in _BY_KIND

    def __iter__(self) -> Iterator[Kind]:
        return iter(_BY_KIND)

    def __len__(self) -> int:
        return len(_BY_KIND)


_BY_KIND: Final = dict(_LISTED)
