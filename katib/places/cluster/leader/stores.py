"""The leader's views of the cluster's objects: one store for each selection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec, TypeVar

from katib.engine.controllers.kinds import CONFIG_MAP, POD
from katib.engine.runtime.objects import Kind, ObjectStore
from katib.errors import UnavailableError
from katib.model.names import JOB_LABEL, TRIAL_LABEL
from katib.model.templates.source import OFFERED, OFFERED_LABEL
from katib.places.cluster.client import ApiConnection
from katib.places.cluster.leader.stray_jobs import ListUnlabelled
from katib.places.cluster.pods.missed import MISSED_SELECTOR
from katib.places.cluster.services.plan import SERVICE_SELECTORS
from katib.places.cluster.store import KubernetesStore

P = ParamSpec("P")
R = TypeVar("R")


def check_leading(may_write: Callable[[], bool]) -> None:
    """Raise UnavailableError if this replica may not write."""
    if not may_write():
        raise UnavailableError("this controller no longer leads; another one continues")


def _fenced(call: Callable[P, R], may_write: Callable[[], bool]) -> Callable[P, R]:
    """Return a call that raises UnavailableError if this replica may not write."""

    @wraps(call)
    def fenced(*args: P.args, **kwargs: P.kwargs) -> R:
        check_leading(may_write)
        return call(*args, **kwargs)

    return fenced


class FencedStore:
    """Store whose reads pass and whose writes raise UnavailableError unless `may_write`. Implements `ObjectStore`."""

    def __init__(self, store: ObjectStore, may_write: Callable[[], bool]) -> None:
        self.get, self.list, self.pages, self.watch = store.get, store.list, store.pages, store.watch
        self.create = _fenced(store.create, may_write)
        self.update = _fenced(store.update, may_write)
        self.patch = _fenced(store.patch, may_write)
        self.update_status = _fenced(store.update_status, may_write)
        self.delete = _fenced(store.delete, may_write)


@dataclass(frozen=True, slots=True)
class LeaderStores:
    """Objects by selection. The stores with writes refuse them once this replica no longer leads.

    Attributes:
        main: Pods with a trial's label only, Deployments and Services of suggestions only, all other objects.
        offered: ConfigMaps with the trial templates of the installation.
        jobs: Objects with the label of a trial's job.
        unlabelled_jobs: Lists the metadata of objects without that label.
        all_pods: All pods; deletion takes effect at once.
        missed_pods: Pods of jobs without a trial's label.
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
        connection: ApiConnection,
        core_namespace: str,
        leads: Callable[[], bool],
        waits_for_pods: Callable[[Kind], bool],
    ) -> LeaderStores:
        """Return the stores of a connection.

        Args:
            waits_for_pods: Whether an object of a kind stays until its pods are gone.
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
