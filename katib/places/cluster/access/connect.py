"""Connecting to a cluster with a user's rights, with a clear error if Katib is not installed there."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from katib.errors import ForbiddenError, KindNotInstalledError, UnavailableError
from katib.model.types import API_VERSION
from katib.places.cluster.client import ApiConnection
from katib.places.cluster.client.configuration import ClusterAccess, access
from katib.places.cluster.environment import await_answer, core_namespace

SETTLING_SECONDS = 30.0
"""Grace period after an outage in which a restarted server may not yet know rights and custom kinds."""


@dataclass(frozen=True, slots=True)
class UserCluster:
    """A cluster, seen with one user's rights.

    Attributes:
        core_namespace: Namespace of Katib's own components.
        access: Configuration, for components that open a connection of their own.
    """

    connection: ApiConnection
    core_namespace: str
    access: ClusterAccess

    @property
    def namespace(self) -> str:
        """The namespace of the context, or of the pod this process runs in."""
        return self.connection.namespace


def await_api_server(kubeconfig: Path | None, context: str | None, pause: Callable[[float], bool]) -> bool:
    """Return True once the API server answers, False if a pause was ended before that.

    Args:
        kubeconfig: As in `connect`.
        context: As in `connect`.
        pause: As in `katib.places.cluster.environment.await_answer`.

    Raises:
        KatibError: As `connect` does, except for an API server that does not answer.
    """
    settled_at: float | None = None  # None: there was no outage

    def ask() -> bool:
        nonlocal settled_at
        try:
            connection.request("GET", "/version")
            if settled_at is not None:
                connect(kubeconfig, context).connection.close()
        except UnavailableError:
            settled_at = time.monotonic() + SETTLING_SECONDS
            raise
        except (ForbiddenError, KindNotInstalledError) as error:
            if settled_at is None or time.monotonic() >= settled_at:
                raise
            raise UnavailableError(str(error)) from error
        return True

    with ApiConnection(access(kubeconfig, context), user_agent="katib-server") as connection:
        return await_answer(ask, pause) is not None


def connect(kubeconfig: Path | None = None, context: str | None = None, *, user_agent: str = "katib") -> UserCluster:
    """Connect as configured by a kubeconfig file, its context, or the pod this process runs in.

    Raises:
        InvalidError: The file cannot be read, or has no such context.
        UnavailableError: There is no configuration, or the API server does not answer.
        KindNotInstalledError: The cluster does not serve Katib's kinds.
    """
    found = access(kubeconfig, context)
    connection = ApiConnection(found, user_agent=user_agent)
    try:
        connection.discovery.resource(API_VERSION, "Experiment")
    except KindNotInstalledError as error:
        connection.close()
        raise KindNotInstalledError(
            f"the cluster at {connection.host} does not serve {API_VERSION} Experiment: Katib is not installed there; "
            "install it with `kubectl apply -k manifests/installs/standalone`, or choose another context"
        ) from error
    except BaseException:
        connection.close()
        raise
    return UserCluster(connection, core_namespace(), found)
