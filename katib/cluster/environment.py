"""What the processes of a cluster learn from their environment, under Katib's names."""

from __future__ import annotations

import os
from collections.abc import Mapping

DEFAULT_CORE_NAMESPACE = "kubeflow"


def core_namespace(environment: Mapping[str, str] = os.environ) -> str:
    """Return the namespace that the product is installed in."""
    return environment.get("KATIB_CORE_NAMESPACE") or DEFAULT_CORE_NAMESPACE


def db_manager_address(environment: Mapping[str, str] = os.environ) -> str:
    """Return where the DB manager listens, as pods of any namespace reach it."""
    host = environment.get("KATIB_DB_MANAGER_SERVICE_IP") or "katib-db-manager"
    namespace = environment.get("KATIB_DB_MANAGER_SERVICE_NAMESPACE", core_namespace(environment))
    port = environment.get("KATIB_DB_MANAGER_SERVICE_PORT") or "6789"
    return f"{host}.{namespace}:{port}" if namespace else f"{host}:{port}"
