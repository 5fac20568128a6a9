"""Informers of trial jobs by kind; new kinds may appear while trials run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock

from katib.engine.runtime.clock import Clock
from katib.engine.runtime.informer import Handler, Informer
from katib.engine.runtime.objects import Key, Kind, Object, ObjectStore
from katib.engine.runtime.shared_thread import SharedThread


def identity(obj: Object) -> Object:
    """Return the object unchanged: jobs may be of any kind."""
    return obj


def _ignore(_kind: Kind) -> None:
    """Do nothing."""


class JobCaches:
    """Informers of the kinds that trials run as. Thread-safe.

    Jobs that these informers do not show are strays: known by their keys only, and read by name.

    Args:
        known: Kinds that are watched from the start; their owner starts and stops the informers.
        decode: Reduces a job to the part that is cached.
        follows_new: Whether any other kind is watched once `follow` names it. Its informer is never awaited, as access
            may be denied. It catches up by itself.
        shows_labelled: Whether the store omits jobs without `katib.model.names.JOB_LABEL`.
        thread: Thread shared by the informers; None gives each its own.

    Attributes:
        shows_labelled: Whether a job that loses its label disappears without an event.
        strays: The existing jobs that no informer shows, as far as noted.
    """

    def __init__(
        self,
        store: ObjectStore,
        known: Sequence[Kind],
        clock: Clock,
        *,
        decode: Callable[[Object], Object] = identity,
        follows_new: bool = False,
        shows_labelled: bool = False,
        thread: SharedThread | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._decode = decode
        self._follows_new = follows_new
        self.shows_labelled = shows_labelled
        self._thread = thread
        self._handlers: list[Handler[Object]] = []
        self._lock = Lock()
        self._stopped = False
        self._known = {kind: self._informer(kind) for kind in known}
        self._found: dict[Kind, Informer[Object]] = {}
        self._synced: dict[Kind, Informer[Object]] = {}
        self.strays: set[tuple[Kind, Key]] = set()
        self._on_follow: Callable[[Kind], None] = _ignore

    @property
    def known(self) -> tuple[Informer[Object], ...]:
        """The informers of the kinds known from the start."""
        return tuple(self._known.values())

    def __getitem__(self, kind: Kind) -> Informer[Object]:
        """Return the informer of a kind known from the start."""
        return self._known[kind]

    def add_handler(self, handler: Handler[Object]) -> None:
        """Register a callback for each change of each job, before anything is started."""
        self._handlers.append(handler)
        for informer in self._known.values():
            informer.add_handler(handler)

    def on_follow(self, tell: Callable[[Kind], None]) -> None:
        """Register a callback for each newly watched kind."""
        self._on_follow = tell

    def synced(self, kind: Kind) -> Informer[Object] | None:
        """Return the informer of a kind if it has synced; None while it catches up or if there is none."""
        if (synced := self._synced.get(kind)) is not None:
            return synced
        informer = self._known.get(kind) or self._found.get(kind)
        if informer is None or not informer.has_synced():
            return None
        self._synced[kind] = informer
        return informer

    def follow(self, kind: Kind) -> None:
        """Watch a kind from now on, if new kinds are watched.

        Call it only for a kind that could be read: users name kinds that do not exist, and each would cost a thread for
        good.
        """
        with self._lock:
            if kind in self._known or kind in self._found or not self._follows_new or self._stopped:
                return
            informer = self._informer(kind)
            informer.start()
            self._found[kind] = informer
        self._on_follow(kind)

    def start(self) -> None:
        """Do nothing: a kind is watched when it is first requested."""

    def stop(self) -> None:
        """Stop the informers of new kinds and watch no more."""
        with self._lock:
            self._stopped = True
            found = list(self._found.values())
        for informer in found:
            informer.stop()

    def _informer(self, kind: Kind) -> Informer[Object]:
        informer = Informer(self._store, kind, self._decode, clock=self._clock, thread=self._thread)
        for handler in self._handlers:
            informer.add_handler(handler)
        return informer
