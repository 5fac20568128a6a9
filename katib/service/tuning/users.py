"""The user of a request, whom a gateway has authenticated and names in a header.

A client that can set the header can act as any user, so it is believed only if a `Gateway` was configured, and only
in a form that a gateway writes: once, not empty, of printable characters, and with the prefix if there is one. A second
header beside the gateway's own, under whatever spelling, is a client's attempt to act as another user.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from katib.errors import invalid
from katib.service.tuning.service import TuningService

USER_HEADER = "kubeflow-userid"
LONGEST_NAME = 256
MOST_GROUPS = 256

RawHeaders = Iterable[tuple[bytes, bytes]]

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_RESERVED = "system:"
"""Kubernetes keeps these names for itself: no user may claim to be one of its components."""
_SERVICE_ACCOUNT = re.compile(r"system:serviceaccount:[a-z0-9-]+:[a-z0-9.-]+")
"""But for programs, whose tokens a gateway can check as it checks the cookies of people."""


@dataclass(frozen=True, slots=True)
class User:
    """The user of a request.

    Attributes:
        name: As roles name the user.
        groups: That the gateway says the user is in.
    """

    name: str
    groups: tuple[str, ...] = ()


class UnknownUserError(Exception):
    """A request that names no user; the message explains the mistake in its header."""


@dataclass(frozen=True, slots=True)
class UserHeaders:
    """The headers in which a gateway names the user.

    Attributes:
        prefix: Prefix of the header's value before the user's name.
        groups: Name of the header with the user's groups, separated by commas; empty: there is none.
    """

    user: str = USER_HEADER
    prefix: str = ""
    groups: str = ""

    def __post_init__(self) -> None:
        for option, name in (("--user-header", self.user), ("--groups-header", self.groups or "none")):
            if not _TOKEN.fullmatch(name):
                cause = f"{name!r} is not a valid name of a header"
                raise invalid(option, cause, f"write it like {USER_HEADER}", "header-name")

    def user_of(self, headers: RawHeaders) -> User:
        """Return the user that the headers of a request name.

        Raises:
            UnknownUserError: They name no user, or not in a way that can be trusted.
        """
        raw = list(headers)
        return User(self._name_in(_values(raw, self.user)), self._groups_in(_values(raw, self.groups)))

    def _name_in(self, values: list[str]) -> str:
        if not values:
            raise UnknownUserError(f"the header {self.user} is missing; ask through the gateway")
        if len(values) > 1:
            raise UnknownUserError(f"the header {self.user} is there more than once; send none, the gateway does")
        value = values[0]
        if not value.startswith(self.prefix):
            raise UnknownUserError(f"the header {self.user} does not begin with {self.prefix!r}; see --user-prefix")
        name = value.removeprefix(self.prefix)
        if not name:
            raise UnknownUserError(f"the header {self.user} names no user; log in at the gateway")
        # A comma is what proxies join two headers with.
        if len(name) > LONGEST_NAME or not name.isprintable() or "," in name or name != name.strip():
            rule = f"give at most {LONGEST_NAME} printable characters without commas"
            raise UnknownUserError(f"the header {self.user} holds no name of a user; {rule}")
        if name.startswith(_RESERVED) and not _SERVICE_ACCOUNT.fullmatch(name):
            raise UnknownUserError(f"the header {self.user} names {name}, which is one of Kubernetes' own; use another")
        return name

    def _groups_in(self, values: list[str]) -> tuple[str, ...]:
        """Return the groups, without those that Kubernetes keeps for itself, such as `system:masters`."""
        if len(values) > 1:
            raise UnknownUserError(
                f"the header {self.groups} is there {len(values)} times; send none, the gateway does"
            )
        named = dict.fromkeys(part.strip() for value in values for part in value.split(","))
        groups = tuple(name for name in named if name and not name.startswith(_RESERVED))
        if len(groups) > MOST_GROUPS or any(len(name) > LONGEST_NAME or not name.isprintable() for name in groups):
            rule = f"give at most {MOST_GROUPS} of at most {LONGEST_NAME} printable characters"
            raise UnknownUserError(f"the header {self.groups} holds no groups; {rule}")
        return groups


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway before the server, and the service of each of its users.

    Attributes:
        service_of: Returns the tuning service with the rights of a user, and no others. Fast: it is called for each
            request, before anything else is known of it.
    """

    headers: UserHeaders
    service_of: Callable[[User], TuningService]


def _values(headers: RawHeaders, name: str) -> list[str]:
    """Return the values of a header in the order of a request."""
    wanted = name.lower().encode()
    try:
        return [value.decode().strip(" \t") for key, value in headers if key.lower() == wanted]
    except UnicodeDecodeError as error:
        raise UnknownUserError(f"the header {name} is not UTF-8; send none, the gateway does") from error
