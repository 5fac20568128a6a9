"""Composition for Kubernetes. Start with `controller.py`, which wires the whole controller on one page.

Belongs here: choosing and connecting implementations, and features that only a cluster has (leader election, webhooks,
metrics for Prometheus). Does not belong here: anything that one machine needs, too.
Other wings import from this page alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from katib.places.cluster.access.connect import await_api_server
    from katib.places.cluster.access.release import open_cluster_store, release, require_no_controller
    from katib.places.cluster.access.tuning_service import OpenCluster, open_cluster
    from katib.places.cluster.access.users import UserClusters, open_users
    from katib.places.cluster.client import open_connection
    from katib.places.cluster.configuration.models import KatibConfig
    from katib.places.cluster.controller import ClusterController, ControllerOptions
    from katib.places.cluster.db_manager import DbManager, read_options
    from katib.places.cluster.environment import await_answer, core_namespace, db_manager_address, status_address
    from katib.places.cluster.installation_key import PodSecrets, ensure_keys, write_keys
    from katib.places.cluster.monitoring.log_records import log_json

__all__ = [
    "ClusterController",
    "ControllerOptions",
    "DbManager",
    "KatibConfig",
    "OpenCluster",
    "PodSecrets",
    "UserClusters",
    "await_answer",
    "await_api_server",
    "core_namespace",
    "db_manager_address",
    "ensure_keys",
    "log_json",
    "open_cluster",
    "open_cluster_store",
    "open_connection",
    "open_users",
    "read_options",
    "release",
    "require_no_controller",
    "status_address",
    "write_keys",
]

_MODULES = {
    "await_api_server": "access.connect",
    "open_cluster_store": "access.release",
    "release": "access.release",
    "require_no_controller": "access.release",
    "OpenCluster": "access.tuning_service",
    "open_cluster": "access.tuning_service",
    "UserClusters": "access.users",
    "open_users": "access.users",
    "open_connection": "client",
    "KatibConfig": "configuration.models",
    "ClusterController": "controller",
    "ControllerOptions": "controller",
    "DbManager": "db_manager",
    "read_options": "db_manager",
    "await_answer": "environment",
    "core_namespace": "environment",
    "db_manager_address": "environment",
    "status_address": "environment",
    "PodSecrets": "installation_key",
    "ensure_keys": "installation_key",
    "write_keys": "installation_key",
    "log_json": "monitoring.log_records",
}


if not TYPE_CHECKING:  # which knows all names

    def __getattr__(name: str) -> Any:
        """Import the module of a name when the name is asked for, so that a plain run loads no other."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
