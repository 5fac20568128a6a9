"""What the injection needs to know beyond the pod and its trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from metrics_collector.pod_settings import DEFAULT_GIVE_UP_SECONDS


@dataclass(frozen=True, slots=True)
class CollectorEntry:
    """The collector of one kind, as the KatibConfig describes it.

    Attributes:
        image: What the collector's container runs.
        image_pull_policy: As in a container.
        resources: As in a container.
        wait_all_processes: Value of the flag `-w`; None leaves it out.
        native_sidecar: Whether the collector is a native sidecar where the cluster has them. Only one of ours can be:
            the program's container waits for what it writes.
        patience_seconds: How long readings are kept for a DB manager that is away, after the end of the program.
    """

    image: str
    image_pull_policy: str = "IfNotPresent"
    resources: Mapping[str, Any] = field(default_factory=dict)
    wait_all_processes: bool | None = None
    native_sidecar: bool = False
    patience_seconds: float = DEFAULT_GIVE_UP_SECONDS


@dataclass(frozen=True, slots=True)
class VolumeClaim:
    """A claim that the primary container sees: where trials of one experiment share files.

    Attributes:
        mount_path: Directory in the primary container.
        claim_name: The PersistentVolumeClaim.
        sub_path: This trial's part of the volume.
    """

    mount_path: str
    claim_name: str
    sub_path: str


@dataclass(frozen=True, slots=True)
class InjectionSettings:
    """How pods of one trial are to be changed.

    Attributes:
        db_manager_address: `host:port` of the DB manager.
        db_manager_variables: What the reporting program brings to the DB manager, as environment variables.
        collectors: Entries by collector kind.
        cluster_has_native_sidecars: Whether every node keeps init containers running that ask for it.
        inject_security_context: Whether the collector gets the security context of the primary container as it is.
        early_stopping_address: `host:port` of the early stopping service; empty when the experiment has none.
        suggestion_volume: The claim of the algorithm setting `suggestion_trial_dir`, when it is set.
    """

    db_manager_address: str
    collectors: Mapping[str, CollectorEntry] = field(default_factory=dict)
    cluster_has_native_sidecars: bool = False
    inject_security_context: bool = False
    early_stopping_address: str = ""
    suggestion_volume: VolumeClaim | None = None
    db_manager_variables: Mapping[str, str] = field(default_factory=dict, repr=False)
