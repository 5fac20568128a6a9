"""The objects of the cluster as the leader sees them: one store for each selection of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec, TypeVar

from katib.engine.controllers.kinds import CONFIG_MAP
from katib.engine.runtime.objects import Kind, ObjectStore
from katib.errors import UnavailableError
from katib.model.names import JOB_LABEL, TRIAL_LABEL
from katib.model.templates.source import OFFERED, OFFERED_LABEL
from katib.places.cluster.client import Connection
from katib.places.cluster.leader.stray_jobs import ListUnlabelled
from katib.places.cluster.pods.missed import MISSED_SELECTOR
from katib.places.cluster.pods.reading import POD
from katib.places.cluster.services.plan import SERVICE_SELECTORS
from katib.places.cluster.store import KubernetesStore

P = ParamSpec("P")
R = TypeVar("R")


def check_leading(may_write: Callable[[], bool]) -> None:
    """Raise UnavailableError while we may not write."""
    if not may_write():
        raise UnavailableError("this controller does not lead any more; another one goes on")


def _fenced(call: Callable[P, R], may_write: Callable[[], bool]) -> Callable[P, R]:
    """Return a call that raises UnavailableError while we may not write."""

    @wraps(call)
    def fenced(*args: P.args, **kwargs: P.kwargs) -> R:
        check_leading(may_write)
        return call(*args, **kwargs)

    return fenced


class FencedStore:
    """Fits `ObjectStore`. Reads pass; writes raise UnavailableError while `may_write` says no."""

    def __init__(self, store: ObjectStore, may_write: Callable[[], bool]) -> None:
        self.get, self.list, self.pages, self.watch = store.get, store.list, store.pages, store.watch
        self.create = _fenced(store.create, may_write)
        self.update = _fenced(store.update, may_write)
        self.patch = _fenced(store.patch, may_write)
        self.update_status = _fenced(store.update_status, may_write)
        self.delete = _fenced(store.delete, may_write)


@dataclass(frozen=True, slots=True)
class LeaderStores:
    """Objects by what is to be seen of them. Those that are written refuse it once we do not lead any more.

    Attributes:
        main: Shows only pods that bear the label of a trial, and only Deployments and Services of suggestions.
        offered: Shows the ConfigMaps with trial templates that the installation offers.
        jobs: Shows only what bears the label of a trial's job.
        unlabelled_jobs: Lists the metadata of what does not.
        all_pods: Shows every pod; what is deleted there goes at once.
        missed_pods: Shows the pods of jobs that do not bear the label of a trial.
        leads: Whether we still lead.
    """

    main: ObjectStore
    offered: ObjectStore
    jobs: ObjectStore
    unlabelled_jobs: ListUnlabelled
    all_pods: ObjectStore
    missed_pods: ObjectStore
    leads: Callable[[], bool]

    @classmethod
    def of(
        cls,
        connection: Connection,
        core_namespace: str,
        leads: Callable[[], bool],
        waits_for_pods: Callable[[Kind], bool],
    ) -> LeaderStores:
        """Return the stores of a connection.

        Args:
            connection: To the API server.
            core_namespace: Where the product is installed.
            leads: Whether we still lead.
            waits_for_pods: Of which kinds an object stays until its pods are gone.
        """
        selectors = {POD: TRIAL_LABEL, **SERVICE_SELECTORS}
        main = KubernetesStore(connection, selectors=selectors, foreground=waits_for_pods)
        templates = {CONFIG_MAP: f"{OFFERED_LABEL}={OFFERED}"}
        return cls(
            main=FencedStore(main, leads),
            offered=KubernetesStore(connection, selectors=templates, namespace=core_namespace),
            jobs=FencedStore(KubernetesStore(connection, selector=JOB_LABEL), leads),
            unlabelled_jobs=KubernetesStore(connection, selector=f"!{JOB_LABEL}").metadata_pages,
            all_pods=FencedStore(KubernetesStore(connection), leads),
            missed_pods=KubernetesStore(connection, selectors={POD: MISSED_SELECTOR}),
            leads=leads,
        )
