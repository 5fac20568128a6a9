"""The wire: generated stubs, conversion between objects and messages, clients, rendering of errors.

Belongs here: everything that speaks `api.v1.beta1`. Stays light (no SQLAlchemy, no numpy), because a pod's sidecar
imports it. Does not belong here: decisions.
"""

from __future__ import annotations

from collections.abc import MutableMapping

VERBOSITY_VARIABLE = "GRPC_VERBOSITY"
OUR_VERBOSITY_VARIABLE = "GRPC_VERBOSITY_OF_KATIB"
"""Says that the one above is ours and not the user's."""


def keep_connections_quiet(environ: MutableMapping[str, str]) -> None:
    """Make gRPC print errors only, before it is imported: a service that closes its connections is not news.

    Args:
        environ: Of a process that is ours. What its user says stays.
    """
    if VERBOSITY_VARIABLE not in environ:
        environ.update({VERBOSITY_VARIABLE: "ERROR", OUR_VERBOSITY_VARIABLE: "ERROR"})
