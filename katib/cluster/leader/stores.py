"""The objects of the cluster as the leader sees them: one store for each selection of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from katib.api.names import JOB_LABEL, TRIAL_LABEL
from katib.cluster.client import Connection
from katib.cluster.leader.fencing import FencedStore
from katib.cluster.leader.stray_jobs import ListUnlabelled
from katib.cluster.pods.missed import MISSED_SELECTOR
from katib.cluster.pods.reading import POD
from katib.cluster.services.kinds import SERVICE_SELECTORS
from katib.cluster.store import KubernetesStore
from katib.controllers.kinds import CONFIG_MAP
from katib.runtime.objects import Kind, ObjectStore
from katib.templates.source import OFFERED, OFFERED_LABEL


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
