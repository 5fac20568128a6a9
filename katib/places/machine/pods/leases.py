"""The leases of a user's engines on this machine: a table of files that all of them read, whatever their directories.

Each engine has a file there, on which it and its guard hold a lock; it lists the leases of the
engine and the request of its first waiting pod. Leasing something takes the lock of the table.

Laws:

1. The leases of all engines never exceed the cores that they may run on, nor a limit that they share.
2. No card is held twice.
3. The leases of an engine are free once it and its guard have ended in any way: the kernel takes the lock back. The
   guard ends after all processes.
4. The first request is served first: the earlier request of the first waiting pod of another engine is kept for it, as
   long as that engine says every few seconds that it waits.
5. Engines do not wait for a file: if the table cannot be used, an engine leases as if it were alone, and the log
   reports it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import secrets
import stat
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any, Final

from katib.engine.runtime.clock import Clock
from katib.places.machine.claims import close_in_children, close_now
from katib.places.machine.pods.requests import Capacity, Lease, LeaseRefusal, Limit, Request
from katib.places.machine.pods.tokens import LOOK_SECONDS

DIRECTORY_VARIABLE: Final = "KATIB_LEASES"
"""Names another directory for the table, such as one that containers on one machine share."""

TRIAL_VARIABLE: Final = "KATIB_TRIAL_DIR"

CARDS: Final = Path("/proc/driver/nvidia/gpus")

_BUSY_SECONDS = 0.01
"""When to try again if another engine is leasing at this moment."""

_FORGOTTEN_SECONDS = 10.0
"""An engine that was stopped (Ctrl-Z) does not say any more that it waits; nothing is kept for it then."""

_RENEW_SECONDS = 2.0

_TABLE_LOCK = "table.lock"
_HEADER = struct.Struct("!II")
"""Length and checksum of the rest. Files are written in place: replacing one waits for the disk on some systems."""

_READ_ATTEMPTS = 5
_SHOWN_HOLDERS = 3

_log = logging.getLogger(__name__)


def lease_directory(environment: Mapping[str, str]) -> Path:
    """Return the directory of the table.

    It has to be the same for all that a user starts on a machine, and on no other machine: homes may be shared by many,
    and the directories of a session (`XDG_RUNTIME_DIR`, `TMPDIR`) differ, or go while programs still run. An engine
    that a trial runs shares the lease of that trial, for which it must not wait: it has a table of its own.
    """
    if trial := environment.get(TRIAL_VARIABLE):
        return Path(trial) / "leases"
    if given := environment.get(DIRECTORY_VARIABLE):
        return Path(given).absolute()
    return Path("/tmp") / f"katib-{os.getuid()}" / "leases"  # noqa: S108 - below a directory that has to be our own


def card_ids(names: Iterable[str], cards: Path = CARDS) -> dict[str, str]:
    """Return the identity of each card, whether it goes by its number or a part of its UUID; its name if unknown."""
    uuids: list[str] = []
    for card in sorted(cards.glob("*/information")):
        with contextlib.suppress(OSError):
            lines = (line.partition(":") for line in card.read_text().splitlines())
            uuids += [value.strip() for key, _, value in lines if key.strip() == "GPU UUID"]
    found: dict[str, str] = {}
    for name in names:
        same = [
            uuid for i, uuid in enumerate(uuids) if name == str(i) or (name[:4] == "GPU-" and uuid.startswith(name))
        ]
        found[name] = same[0] if len(same) == 1 else name
    return found


@dataclass(frozen=True, slots=True)
class _Claim:
    """The lease of one holder, or its request.

    Attributes:
        holder: Whose it is, for people.
        cards: Which cards it has, or would take.
        since: When it was asked for; None once it is held.
        seen: When its engine last said that it waits.
    """

    holder: str
    request: Request
    cards: frozenset[str]
    since: float | None = None
    seen: float = 0.0

    def encode(self) -> dict[str, Any]:
        amounts = {"cpu": str(self.request.cpu), "memory": str(self.request.memory), "gpus": self.request.gpus}
        return {"holder": self.holder, **amounts, "cards": sorted(self.cards), "since": self.since, "seen": self.seen}

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> _Claim:
        """Read the result of `encode`."""
        request = Request(Decimal(raw["cpu"]), Decimal(raw["memory"]), int(raw["gpus"]))
        return cls(str(raw["holder"]), request, frozenset(raw["cards"]), raw["since"], float(raw["seen"]))


@dataclass(frozen=True, slots=True)
class _Engine:
    """One engine in the table.

    Attributes:
        cores: Which cores its processes may run on; empty if unknown.
        limits: Further limits, such as those of a control group.
    """

    name: str
    pid: int
    directory: str
    cores: frozenset[int] = frozenset()
    limits: frozenset[tuple[str, str]] = frozenset()
    claims: tuple[_Claim, ...] = ()

    def encode(self) -> bytes:
        shape = {"cores": sorted(self.cores), "limits": sorted(self.limits)}
        claims = [claim.encode() for claim in self.claims]
        data = json.dumps({"pid": self.pid, "directory": self.directory, **shape, "claims": claims}).encode()
        return _HEADER.pack(len(data), zlib.crc32(data)) + data

    @classmethod
    def decode(cls, name: str, data: bytes) -> _Engine:
        """Read the result of `encode`; that of an engine of another version may be unreadable."""
        try:
            raw = json.loads(data)
            claims = tuple(map(_Claim.decode, raw["claims"]))
            limits = frozenset((str(place), str(resource)) for place, resource in raw["limits"])
            return cls(name, int(raw["pid"]), str(raw["directory"]), frozenset(raw["cores"]), limits, claims)
        except (ValueError, LookupError, TypeError, ArithmeticError):
            return cls(name, 0, "")


@dataclass(slots=True)
class _Held:
    request: Request = field(default_factory=Request)
    cards: set[str] = field(default_factory=set)


class LeaseTable:
    """The table, as one engine uses it. Used by one thread; files are made with the first lease.

    Args:
        directory: The directory of the files; made when needed.
        hold: Has the guard keep a descriptor open until all processes have ended.
        root: The data directory of this engine, for people.
    """

    def __init__(
        self, directory: Path, capacity: Capacity, hold: Callable[[int], None], clock: Clock, root: Path
    ) -> None:
        self._directory = directory
        self._hold = hold
        self._clock = clock
        self._limits = capacity.limits
        if not capacity.cores and not capacity.limits:
            self._limits = (Limit("machine", "cpu", capacity.cpu), Limit("machine", "memory", capacity.memory))
        self._ids = card_ids(capacity.gpus)
        self._cores = capacity.cores
        name = f"{os.getpid()}-{secrets.token_hex(4)}"
        limits = frozenset((limit.place, limit.resource) for limit in self._limits)
        self._file = directory / f"{name}.lock"
        self._me = _Engine(name, os.getpid(), str(root), capacity.cores, limits)
        self._held: dict[str, _Held] = {}
        self._waiting: _Claim | None = None
        self._descriptors: list[int] = []
        self._written = b""
        self._has_complained = False

    @classmethod
    def of(
        cls,
        environment: Mapping[str, str],
        capacity: Capacity,
        hold: Callable[[int], None],
        clock: Clock,
        root: Path,
    ) -> LeaseTable:
        return cls(lease_directory(environment), capacity, hold, clock, root)

    def take_over(self, descriptors: Sequence[int]) -> None:
        """Go on with the files of an earlier engine, whose guard has held them; the last one is in the table."""
        for descriptor in descriptors:
            close_in_children(descriptor)
            self._descriptors.append(descriptor)
        if descriptors:
            self._file = Path(f"/proc/self/fd/{descriptors[-1]}").readlink()
            self._me = replace(self._me, name=self._file.stem)

    def close(self, *, leaves: bool = False) -> None:
        """Leave the table; nothing is held any more.

        Args:
            leaves: Whether everything stays held, by the guard, for pods that outlive this engine.
        """
        if self._descriptors and not leaves:
            self._file.unlink(missing_ok=True)
        while self._descriptors:
            close_now(self._descriptors.pop())

    # --- keys of the `TokenSigner` ------------------------------------------------------------------------------------

    def take(self, holder: str, request: Request, free: Sequence[str], since: float) -> tuple[str, ...] | LeaseRefusal:
        """Lease something, or return the reason for waiting.

        Args:
            holder: For whom, for people.
            free: Cards that this engine has not leased.
            since: When it was asked for.
        """
        try:
            with self._locked() as is_ours:
                if not is_ours:
                    return LeaseRefusal("", _BUSY_SECONDS)
                others = list(self._others(removes_dead=True))
                cards, reason = self._share(request, free, since, others)
                if reason:
                    return LeaseRefusal(f"waits for {request}: {reason}", LOOK_SECONDS)
                self._waiting = None
                self._take(holder, request, cards)
                self._write()
                return cards
        except OSError as error:
            self._complain(error)
            cards = tuple(free[: request.gpus])
            self._take(holder, request, cards)
            return cards

    def keep(self, holder: str, request: Request, cards: Sequence[str]) -> None:
        """Lease the resources of a pod that outlived its engine."""
        self._take(holder, request, cards)
        self.flush()

    def give_back(self, lease: Lease) -> None:
        held = self._held[lease.holder]
        held.request -= lease.request
        held.cards -= {self._ids[card] for card in lease.gpus}
        if held.request.is_empty:
            del self._held[lease.holder]

    def wait(self, holder: str, request: Request, since: float) -> None:
        """Publish the request of the first waiting pod, every time that it looks again."""
        now = self._clock.now().timestamp()
        old = self._waiting
        if old is None or (old.holder, old.request, old.since) != (holder, request, since):
            self._waiting = _Claim(holder, request, frozenset(self._ids.values()), since, now)
        elif not 0 <= now - old.seen < _RENEW_SECONDS:
            self._waiting = _Claim(holder, request, old.cards, since, now)

    def wait_no_more(self) -> None:
        """Say that no pod waits."""
        self._waiting = None

    def flush(self) -> bool:
        """Publish changes to the others; return False if that has to be tried again."""
        try:
            self._write()
        except OSError as error:
            self._complain(error)
            return False
        return True

    def held_elsewhere(self) -> frozenset[str]:
        """Return the cards of this engine that other engines hold now."""
        try:
            taken = {c for e in self._others() for claim in e.claims if claim.since is None for c in claim.cards}
        except OSError as error:
            self._complain(error)
            return frozenset()
        return frozenset(name for name, id_ in self._ids.items() if id_ in taken)

    # --- what is free -------------------------------------------------------------------------------------------------

    def _share(
        self, request: Request, free: Sequence[str], since: float, others: Sequence[_Engine]
    ) -> tuple[tuple[str, ...], str]:
        """Return the cards of a lease, or why there is none now."""
        ahead = self._ahead(since, others)
        cards = self._free_cards(free, others, ahead)
        claims = [(e, c) for e in others for c in e.claims if c.since is None] + ahead
        scarce = set() if request.gpus <= len(cards) else {"gpus"}
        for resource in ("cpu", "memory"):
            if amount := getattr(request, resource):
                own = sum(getattr(held.request, resource) for held in self._held.values())
                if self._is_over(resource, amount + own, claims):
                    scarce.add(resource)
        if not scarce:
            return tuple(cards[: request.gpus]), ""
        return (), _holders([(e, c) for e, c in claims if any(getattr(c.request, resource) for resource in scarce)])

    def _ahead(self, since: float, others: Sequence[_Engine]) -> list[tuple[_Engine, _Claim]]:
        """Return the earlier requests of waiting pods of other engines, the first one first."""
        now = self._clock.now().timestamp()
        found = [
            (claim.since, engine.name, engine, claim)
            for engine in others
            for claim in engine.claims
            if claim.since is not None and abs(now - claim.seen) < _FORGOTTEN_SECONDS
        ]
        earlier = (ticket for ticket in found if ticket[:2] < (since, self._me.name))
        return [(engine, claim) for _, _, engine, claim in sorted(earlier, key=lambda ticket: ticket[:2])]

    def _free_cards(
        self, free: Sequence[str], others: Sequence[_Engine], ahead: Sequence[tuple[_Engine, _Claim]]
    ) -> list[str]:
        """Return the cards that are free and that are not needed for earlier requests."""
        taken = {card for e in others for claim in e.claims if claim.since is None for card in claim.cards}
        taken |= {card for held in self._held.values() for card in held.cards}
        ours = {self._ids[name] for name in free}
        for _, claim in ahead:
            fitting = sorted(claim.cards - taken, key=lambda card: (card in ours, card))
            taken.update(fitting[: claim.request.gpus])
        return [name for name in free if self._ids[name] not in taken]

    def _is_over(self, resource: str, own: Decimal, claims: Sequence[tuple[_Engine, _Claim]]) -> bool:
        for limit in self._limits:
            if limit.resource == resource:
                place = (limit.place, limit.resource)
                if own + _sum(resource, (c for e, c in claims if place in e.limits)) > limit.amount:
                    return True
        if resource != "cpu" or not self._cores:
            return False
        # Engines may be bound to cores, to some or none of the same. Those that have to share a set are within it.
        sets = {engine.cores for engine, _ in claims if engine.cores >= self._cores} | {self._cores}
        sets.add(self._cores.union(*(engine.cores for engine, _ in claims)))
        return any(
            own + _sum(resource, (c for e, c in claims if e.cores and e.cores <= cores)) > len(cores) for cores in sets
        )

    def _take(self, holder: str, request: Request, cards: Sequence[str]) -> None:
        held = self._held.setdefault(holder, _Held())
        held.request += request
        held.cards |= {self._ids[card] for card in cards}

    # --- files --------------------------------------------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Iterator[bool]:
        """Hold the table; False when another engine does this moment."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        _check_owner(self._directory)
        descriptor = _open(self._directory / _TABLE_LOCK, os.O_RDWR | os.O_CREAT)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True
        finally:
            close_now(descriptor)

    def _enter(self) -> None:
        """Have files of our own, also after the directory was cleaned."""
        if self._descriptors:
            with contextlib.suppress(FileNotFoundError):
                if self._file.stat().st_ino == os.fstat(self._descriptors[-1]).st_ino:
                    return
            self._written = b""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        _check_owner(self._directory)
        self._descriptors.append(_open(self._file, os.O_RDWR | os.O_CREAT))
        fcntl.flock(self._descriptors[-1], fcntl.LOCK_EX)  # at most a reader has it, for a moment
        self._hold(self._descriptors[-1])

    def _write(self) -> None:
        claims = [_Claim(holder, held.request, frozenset(held.cards)) for holder, held in self._held.items()]
        claims += [] if self._waiting is None else [self._waiting]
        me = _Engine(self._me.name, self._me.pid, self._me.directory, self._me.cores, self._me.limits, tuple(claims))
        data = me.encode()
        if not claims and not self._descriptors:
            return
        self._enter()
        if data == self._written:
            return
        if os.pwrite(self._descriptors[-1], data, 0) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._written = data

    def _others(self, *, removes_dead: bool = False) -> Iterator[_Engine]:
        with contextlib.suppress(FileNotFoundError):
            for lock in sorted(self._directory.glob("*.lock")):
                if lock.name == _TABLE_LOCK or lock.stem == self._me.name:
                    continue
                engine = _read(lock)
                if engine is not None:
                    yield engine
                elif removes_dead:
                    lock.unlink(missing_ok=True)

    def _complain(self, error: OSError) -> None:
        if not self._has_complained:
            self._has_complained = True
            cause = error.strerror or str(error)
            _log.warning(
                "Cards and CPUs cannot be shared with other engines",
                extra={"directory": str(self._directory), "cause": cause},
            )


def _open(path: Path, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    close_in_children(descriptor)
    return descriptor


def _check_owner(directory: Path) -> None:
    """Raise OSError unless the directory is ours: in a directory for all, another user may have made it."""
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise OSError(errno.EPERM, f"it is not a directory of user {os.getuid()}")


def _read(path: Path) -> _Engine | None:
    """Return an engine; None when neither it nor its guard holds its lock."""
    try:
        descriptor = _open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        for _ in range(_READ_ATTEMPTS):  # it may be writing
            content = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
            if len(content) >= _HEADER.size:
                length, checksum = _HEADER.unpack_from(content)
                data = content[_HEADER.size : _HEADER.size + length]
                if zlib.crc32(data) == checksum:
                    return _Engine.decode(path.stem, data)
        return _Engine(path.stem, 0, "")  # it has just come
    finally:
        close_now(descriptor)
    return None


def _sum(resource: str, claims: Iterable[_Claim]) -> Decimal:
    return sum((getattr(claim.request, resource) for claim in claims), Decimal(0))


def _holders(claims: Sequence[tuple[_Engine, _Claim]]) -> str:
    """Return its holder, as the end of a sentence."""
    whose = {f"{c.holder} of process {e.pid} in {e.directory}": "asked for earlier" for e, c in claims}
    whose |= {f"{c.holder} of process {e.pid} in {e.directory}": "held" for e, c in claims if c.since is None}
    texts = [f"{how} by {holder}" for holder, how in whose.items()]
    shown = sorted(texts, reverse=True)[:_SHOWN_HOLDERS]
    more = len(texts) - len(shown)
    return ", ".join(chain(shown, [f"and {more} more"] if more else []))
