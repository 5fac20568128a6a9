"""What a client of the DB manager brings: its token, and whom it trusts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import grpc

from katib.rpc.connection import CHANNEL_OPTIONS
from katib.rpc.tokens import METADATA_KEY, TOKEN_VARIABLE

AUTHORITY_VARIABLE = "KATIB_DB_MANAGER_CA"
SERVER_NAME = "katib-db-manager"
"""Name that the certificate of every DB manager holds, by whatever address it is reached."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """How to call a DB manager.

    Attributes:
        token: Sent with each call; empty: none. Katib's DB manager takes no notice of it.
        authority: Certificates (PEM) of those who sign the DB manager's; empty: plain text.
    """

    token: str = field(default="", repr=False)
    authority: str = ""

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that hand them to a pod; `of` reads them."""
        given = {TOKEN_VARIABLE: self.token, AUTHORITY_VARIABLE: self.authority}
        return {name: value for name, value in given.items() if value}

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Credentials:
        """Return what a pod was handed."""
        return cls(environment.get(TOKEN_VARIABLE, ""), environment.get(AUTHORITY_VARIABLE, ""))

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What goes with each call."""
        return ((METADATA_KEY, self.token),) if self.token else ()

    def channel(self, address: str) -> grpc.Channel:
        """Open a channel."""
        if not self.authority:
            return grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
        name = ("grpc.ssl_target_name_override", SERVER_NAME)
        credentials = grpc.ssl_channel_credentials(self.authority.encode())
        return grpc.secure_channel(address, credentials, options=(*CHANNEL_OPTIONS, name))


NO_CREDENTIALS = Credentials()
