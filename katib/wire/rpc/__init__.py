"""The wire: generated stubs, conversion between objects and messages, clients, rendering of errors.

Belongs here: all code for `api.v1.beta1`. Stays light (no SQLAlchemy, no numpy), because a pod's sidecar imports it.
Does not belong here: decisions.
"""

from __future__ import annotations

from collections.abc import MutableMapping

VERBOSITY_VARIABLE = "GRPC_VERBOSITY"
OUR_VERBOSITY_VARIABLE = "GRPC_VERBOSITY_OF_KATIB"
"""Marks the variable above as set by Katib and not by the user."""


def keep_connections_quiet(environ: MutableMapping[str, str]) -> None:
    """Make gRPC print errors only; call before it is imported. A service that closes its connections is no error.

    Args:
        environ: Environment of one of Katib's processes. The user's setting takes precedence.
    """
    if VERBOSITY_VARIABLE not in environ:
        environ.update({VERBOSITY_VARIABLE: "ERROR", OUR_VERBOSITY_VARIABLE: "ERROR"})
