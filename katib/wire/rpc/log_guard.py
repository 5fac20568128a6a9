"""Access control of the observation log.

| caller | reports | reads | begins, ends, deletes |
|---|---|---|---|
| token of a trial | its own | its own | no |
| token of a reader | no | of its namespace | no |
| token of the controller | of its namespace | of its namespace | of its namespace |
| no token, on loopback, if trusted | no | all | no |
| no token | trials begun with `reports_without_token` | trials begun with `reads_without_token` | no |

Only the controller may report for an ended trial, whose observation is complete.

The log knows trials by name only. So the namespace of a trial is stored when its log begins, and another namespace with
a trial of that name has no access. A log that began before tokens, or under another controller, has no owner: any token
that names its trial, and any reader, has access. In a database created by Katib, it is open without a token, too, so
that trials started by Katib's controller can report to the end (`LOGS_OF_KATIB`).

In a pod, loopback (127.0.0.1 or ::1) means from inside the pod, which includes forwarded ports: a user who may forward
ports in the namespace of the installation may read. A mesh's proxy connects from 127.0.0.6, which does not count. On a
machine with several accounts, loopback could be any of them and is not trusted.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from katib.errors import ForbiddenError
from katib.model.metrics import LOGS_OF_KATIB, LogAccess
from katib.wire.rpc.tokens import METADATA_KEY, TOKEN_VARIABLE, CallerRole, TokenClaims, TokenSigner

MAX_REFUSALS = 1_000
"""Number of remembered refusals; the oldest are forgotten."""

_LOOPBACK = ("ipv4:127.0.0.1:", "ipv6:[::1]:", "ipv6:%5B::1%5D:", "unix:")


class AccessList(Protocol):
    """Owners of logs. Thread-safe; raises UnavailableError if it does not answer."""

    def find_all(self, trial_names: Collection[str]) -> Mapping[str, LogAccess]:
        """Return the owner of each of these logs, except logs that have not begun."""

    def find(self, trial_name: str) -> LogAccess | None:
        """Return the owner of a log; None if it has not begun."""

    def keep(self, trial_name: str, access: LogAccess) -> None:
        """Store the owner of a log."""

    def end(self, trial_name: str) -> None:
        """Close a log to further readings, as in `LogAccess.has_ended`; no effect on one that has not begun."""

    def forget(self, trial_name: str) -> None:
        """Remove the owner of a log."""


class MemoryAccessList:
    """An access list in memory."""

    def __init__(self) -> None:
        self._access: dict[str, LogAccess] = {}

    def find_all(self, trial_names: Collection[str]) -> Mapping[str, LogAccess]:
        return {name: self._access[name] for name in trial_names if name in self._access}

    def find(self, trial_name: str) -> LogAccess | None:
        return self._access.get(trial_name)

    def keep(self, trial_name: str, access: LogAccess) -> None:
        self._access[trial_name] = access

    def end(self, trial_name: str) -> None:
        access = self._access.get(trial_name)
        if access is not None:
            self._access[trial_name] = replace(access, has_ended=True)

    def forget(self, trial_name: str) -> None:
        self._access.pop(trial_name, None)


@dataclass(frozen=True, slots=True)
class LogCaller:
    """A caller of the log.

    Attributes:
        token: The token sent; None without one.
        is_local: Whether the call comes over loopback.
    """

    token: str | None
    is_local: bool

    @classmethod
    def of(cls, context: Any) -> LogCaller:
        metadata: Mapping[str, Any] = dict(context.invocation_metadata())
        token = metadata.get(METADATA_KEY)
        return cls(None if token is None else str(token), str(context.peer()).startswith(_LOOPBACK))


class LogGuard:
    """Authorizes callers or raises ForbiddenError with the remedy. Thread-safe.

    Args:
        trusts_loopback: Whether a caller on loopback may read without a token.
    """

    def __init__(self, tokens: TokenSigner, access: AccessList, *, trusts_loopback: bool = True) -> None:
        self._tokens = tokens
        self._trusts_loopback = trusts_loopback
        self.access = access
        self._lock = threading.Lock()
        self._refusals: OrderedDict[str, str] = OrderedDict()

    def check_report(self, caller: LogCaller, trial_name: str) -> None:
        """Check that a caller may report; a refusal is remembered, to explain missing readings."""
        try:
            self._check_report(caller, trial_name)
        except ForbiddenError as error:
            with self._lock:
                self._refusals[trial_name] = str(error)
                self._refusals.move_to_end(trial_name)
                while len(self._refusals) > MAX_REFUSALS:
                    self._refusals.popitem(last=False)
            raise

    def check_read(self, caller: LogCaller, trial_name: str) -> None:
        claims = self._claims(caller, trial_name)
        self._check_reads(caller, claims, (trial_name,))

    def check_reads(self, caller: LogCaller, trial_names: Collection[str]) -> None:
        for trial_name in trial_names:
            claims = self._claims(caller, trial_name)
            break
        else:
            return
        self._check_reads(caller, claims, trial_names)

    def _check_reads(self, caller: LogCaller, claims: TokenClaims | None, trial_names: Collection[str]) -> None:
        if claims is None and caller.is_local and self._trusts_loopback:
            return
        found = self.access.find_all({*trial_names, LOGS_OF_KATIB})
        unbegun = found.get(LOGS_OF_KATIB) if claims is None else None
        for trial_name in trial_names:
            _check_read(claims, found.get(trial_name, unbegun), trial_name)

    def check_control(self, caller: LogCaller, trial_name: str) -> TokenClaims:
        claims = self._claims(caller, trial_name)
        if claims is None or claims.role is not CallerRole.CONTROLLER:
            raise ForbiddenError(f"trial {trial_name}: only the controller may begin, end and delete logs")
        return claims

    def belongs_to_another(self, claims: TokenClaims, trial_name: str) -> bool:
        return _is_foreign(claims, self.access.find(trial_name))

    def begin(self, trial_name: str, access: LogAccess) -> None:
        """Store the owner of a log, and forget earlier refusals."""
        self.access.keep(trial_name, access)
        self._forget_refusal(trial_name)

    def end(self, trial_name: str) -> None:
        """Close the log of an ended trial, whose observation is complete."""
        self.access.end(trial_name)

    def forget(self, trial_name: str) -> None:
        self.access.forget(trial_name)
        self._forget_refusal(trial_name)

    def refusal_of(self, trial_name: str) -> str:
        """Return why reports of a trial were last refused; empty if none was."""
        with self._lock:
            return self._refusals.get(trial_name, "")

    def _check_report(self, caller: LogCaller, trial_name: str) -> None:
        claims = self._claims(caller, trial_name)
        access = self.access.find(trial_name)
        if claims is None:
            access = access or self.access.find(LOGS_OF_KATIB)
            if access is None or not access.reports_without_token:
                raise ForbiddenError(_without_token(trial_name, "report", "runtime.metricsCollectors"))
            _check_running(access, trial_name)
            return
        if claims.role is CallerRole.READER or (claims.role is CallerRole.TRIAL and claims.trial != trial_name):
            raise ForbiddenError(f"trial {trial_name}: the token is not that of this trial, which alone may report")
        _check_namespace(claims, access, trial_name)
        if claims.role is CallerRole.TRIAL:
            _check_running(access, trial_name)

    def _claims(self, caller: LogCaller, trial_name: str) -> TokenClaims | None:
        """Return the claims of a caller's token; None without one."""
        if caller.token is None:
            return None
        claims = self._tokens.claims_of(caller.token)
        if claims is None:
            raise ForbiddenError(
                f"trial {trial_name}: the token is not one of this installation; its key was replaced or never ours"
            )
        return claims

    def _forget_refusal(self, trial_name: str) -> None:
        with self._lock:
            self._refusals.pop(trial_name, None)


def _check_read(claims: TokenClaims | None, access: LogAccess | None, trial_name: str) -> None:
    if claims is None:
        if access is None or not access.reads_without_token:
            raise ForbiddenError(_without_token(trial_name, "read", "runtime.earlyStoppings"))
    elif claims.role is CallerRole.TRIAL and claims.trial != trial_name:
        raise ForbiddenError(f"trial {trial_name}: the token is another trial's, which may read its own log only")
    else:
        _check_namespace(claims, access, trial_name)


def _check_namespace(claims: TokenClaims, access: LogAccess | None, trial_name: str) -> None:
    if _is_foreign(claims, access):
        raise ForbiddenError(
            f"trial {trial_name}: its log belongs to a trial of this name in another namespace; "
            "give the experiment another name"
        )


def _check_running(access: LogAccess | None, trial_name: str) -> None:
    if access is not None and access.has_ended:
        raise ForbiddenError(f"trial {trial_name}: it has ended, and its log takes no more readings")


def _is_foreign(claims: TokenClaims, access: LogAccess | None) -> bool:
    return bool(claims.namespace) and access is not None and access.namespace != claims.namespace


def _without_token(trial_name: str, verb: str, section: str) -> str:
    return (
        f"trial {trial_name}: a token is required to {verb}, and none was sent; send that of {TOKEN_VARIABLE} as "
        f"{METADATA_KEY}, or where a program cannot, set sendsToken: false in its entry of {section} of the KatibConfig"
    )
