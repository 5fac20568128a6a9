"""Access to the observation log of one machine: addresses for permitted callers, and refusal of others.

Built-in services read it through a Unix socket that only this account can open. Programs that push their metrics, and
services that listen on a port, support addresses of the form `host:port` only: for them a port of the loopback
interface is opened on first use, and every caller there needs a token (`katib.wire.rpc.log_guard`).
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from katib.engine.algorithm_services.plan import ServiceId, ServicePlan
from katib.model.metrics import LogAccess, ObservationLog
from katib.places.machine.services.files import SocketDirectory
from katib.wire.rpc.tokens import TOKEN_VARIABLE, CallerRole, TokenClaims, TokenSigner

if TYPE_CHECKING:
    from katib.wire.rpc.db_manager import DbManagerServer
    from katib.wire.rpc.log_guard import LogGuard
    from katib.wire.rpc.trainer_status import StatusReceiver
    from katib.wire.serving.status_server import StatusServer

ADDRESS_VARIABLE = "KATIB_DB_MANAGER_ADDRESS"
LOOPBACK_HOST = "127.0.0.1"
_KEY_BYTES = 32


class LogServers:
    """Serves an observation log to permitted callers, from the first request on. Thread-safe.

    The key of the tokens lives as long as this object: no trial outlives its engine.

    Attributes:
        on_stored: Called with the name of a trial whose pushed readings were just stored, on a thread of a server.

    Args:
        plans: Services that a user plugged in.
        host: Name or address of this machine for programs that push.
    """

    def __init__(self, log: ObservationLog, plans: Mapping[ServiceId, ServicePlan], host: str = LOOPBACK_HOST) -> None:
        self._host = host
        self.on_stored: Callable[[str], None] = lambda _trial_name: None
        self._log = log
        self._tokens = TokenSigner([secrets.token_bytes(_KEY_BYTES)])
        self._reads_without_token = any(not plan.sends_token for plan in plans.values())
        self._lock = threading.Lock()
        self._pushing: set[str] = set()
        self._sockets: SocketDirectory | None = None
        self._own: DbManagerServer | None = None
        self._others: DbManagerServer | None = None
        self._status: StatusServer | None = None
        reader = {TOKEN_VARIABLE: self._tokens.token_of(TokenClaims(CallerRole.READER))}
        self.plans: Mapping[ServiceId, ServicePlan] = {
            service: replace(plan, environment={**reader, **plan.environment}) if _needs_port(plan) else plan
            for service, plan in plans.items()
        }
        """The services, with the token that they need."""

    def address_for(self, plan: ServicePlan) -> str:
        """Return the address from which an early stopping service reads metrics, `unix:/path` or `host:port`."""
        return self._port() if _needs_port(plan) else self._socket()

    def variables_of(self, trial_name: str, metrics: Collection[str] = (), *, pushes: bool = True) -> dict[str, str]:
        """Return the environment variables of a trial that may send metrics, until it has ended.

        Args:
            metrics: Metrics to store from a status of Kubeflow Trainer; empty to give it no address for the status.
            pushes: Whether to give it the address for pushing metrics.
        """
        token = self._tokens.token_of(TokenClaims(CallerRole.TRIAL, "", trial_name))
        if metrics or pushes:
            self._pushing.add(trial_name)
        found = {ADDRESS_VARIABLE: self._port(), TOKEN_VARIABLE: token} if pushes else {}
        if not metrics:
            return found
        import certifi

        from katib.wire.rpc.tokens import AUTHORITIES_VARIABLE, TOKEN_FILE_VARIABLE, URL_VARIABLE
        from katib.wire.serving.status_server import StatusServer

        with self._lock:
            if self._status is None:
                self._status = StatusServer(self._receiver)
            url, file = self._status.url_of(trial_name, metrics), self._directory().path(trial_name)
        file.touch(mode=0o600)
        file.write_text(token)
        return found | {URL_VARIABLE: url, TOKEN_FILE_VARIABLE: str(file), AUTHORITIES_VARIABLE: certifi.where()}

    def end(self, trial_name: str) -> None:
        """Close the log of an ended trial, whose observation is complete."""
        if trial_name not in self._pushing:
            return
        self._pushing.discard(trial_name)
        with self._lock:
            if self._sockets is not None:
                self._sockets.path(trial_name).unlink(missing_ok=True)

    def close(self) -> None:
        """Refuse further calls. Idempotent; the next request starts a server again."""
        with self._lock:
            servers, self._own, self._others = (self._own, self._others), None, None
            sockets, self._sockets = self._sockets, None
            status, self._status = self._status, None
        if status is not None:
            status.close()
        for server in servers:
            if server is not None:
                server.stop(0)
        if sockets is not None:
            sockets.remove()

    def _receiver(self) -> StatusReceiver:
        from katib.wire.rpc.trainer_status import StatusReceiver

        return StatusReceiver(self._log, self._guard(), self._stored)

    def _stored(self, trial_name: str) -> None:
        self.on_stored(trial_name)

    def _socket(self) -> str:
        from katib.wire.rpc.db_manager import serve_db_manager

        with self._lock:
            if self._own is None:
                self._own = serve_db_manager(self._log, f"unix:{self._directory().new_path()}")
            return self._own.address

    def _directory(self) -> SocketDirectory:
        if self._sockets is None:
            self._sockets = SocketDirectory()
        return self._sockets

    def _port(self) -> str:
        from katib.wire.rpc.db_manager import serve_db_manager

        with self._lock:
            if self._others is None:
                self._others = serve_db_manager(
                    self._log, f"{self._host}:0", guard=self._guard(), on_report=self._stored
                )
            return self._others.address

    def _guard(self) -> LogGuard:
        from katib.wire.rpc.log_guard import LogGuard

        access = _OneAccount(self._pushing, reads_without_token=self._reads_without_token)
        return LogGuard(self._tokens, access, trusts_loopback=False)


class _OneAccount:
    """All logs belong to the account that runs the engine. Implements `katib.wire.rpc.log_guard.AccessList`.

    Args:
        reads_without_token: Whether there is a service that cannot send a token.
    """

    def __init__(self, pushing: Container[str], *, reads_without_token: bool) -> None:
        self._pushing = pushing
        self._reads_without_token = reads_without_token

    def find(self, trial_name: str) -> LogAccess:
        has_ended = trial_name not in self._pushing
        return LogAccess("", reads_without_token=self._reads_without_token, has_ended=has_ended)

    def find_all(self, trial_names: Collection[str]) -> Mapping[str, LogAccess]:
        return {name: self.find(name) for name in trial_names}

    def keep(self, _trial_name: str, _access: LogAccess) -> None:
        """Do nothing: no caller here has the token of a controller."""

    def end(self, _trial_name: str) -> None:
        """Do nothing: the engine ends it."""

    def forget(self, _trial_name: str) -> None:
        """Do nothing: no caller here has the token of a controller."""


def _needs_port(plan: ServicePlan) -> bool:
    """Return whether a service calls a port: it listens on one itself, or it is external."""
    given_port = any("{port}" in word for word in plan.command)
    elsewhere = bool(plan.address) and not plan.address.startswith("unix:")
    return plan.id.early_stopping and (given_port or elsewhere)
