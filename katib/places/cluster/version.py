"""The oldest supported Kubernetes."""

from __future__ import annotations

import re

from katib.errors import TerminalError
from katib.places.cluster.client import ApiConnection

OLDEST = (1, 32)
"""From this version on, every node supports native sidecars and every API server evaluates rules in definitions."""


def supported_version(connection: ApiConnection) -> str:
    """Return the version of an API server, such as `1.37`.

    Raises:
        TerminalError: It is older than `OLDEST`.
        UnavailableError: It does not answer.
    """
    answer = connection.request("GET", "/version")
    version = f"{answer.get('major')}.{answer.get('minor')}"  # some clusters write `32+`
    found = re.match(r"(\d+)\+?\.(\d+)", version)
    if found is not None and (int(found[1]), int(found[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise TerminalError(f"{connection.host} runs Kubernetes {version}; upgrade it to {oldest} or newer")
    return version
