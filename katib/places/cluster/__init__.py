"""Composition for Kubernetes. Start with `controller.py`, which wires the whole controller on one page.

Belongs here: choosing and connecting implementations, and features that only a cluster has (leader election, webhooks,
metrics for Prometheus). Does not belong here: anything that one machine needs, too.
Other wings import from this page alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from katib.model.loadable import lazy_names

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

if not TYPE_CHECKING:  # which knows all names
    __getattr__ = lazy_names(
        __name__,
        {
            "access.connect": "await_api_server",
            "access.release": "open_cluster_store release require_no_controller",
            "access.tuning_service": "OpenCluster open_cluster",
            "access.users": "UserClusters open_users",
            "client": "open_connection",
            "configuration.models": "KatibConfig",
            "controller": "ClusterController ControllerOptions",
            "db_manager": "DbManager read_options",
            "environment": "await_answer core_namespace db_manager_address status_address",
            "installation_key": "PodSecrets ensure_keys write_keys",
            "monitoring.log_records": "log_json",
        },
    )
