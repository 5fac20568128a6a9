"""The jobs of trials, by kind: which kinds there are may only turn out while trials run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock

from katib.engine.runtime.clock import Clock
from katib.engine.runtime.informer import Handler, Informer
from katib.engine.runtime.objects import Key, Kind, Object, ObjectStore
from katib.engine.runtime.shared_thread import SharedThread


def identity(obj: Object) -> Object:
    """Return the object: jobs are of any kind, so nothing is known of them beforehand."""
    return obj


def _ignore(_kind: Kind) -> None:
    """Do nothing."""


class JobCaches:
    """Informers of the kinds that trials run as. Thread-safe.

    Jobs that these informers do not show are strays: known by their keys only, and asked for by name.

    Args:
        store: Where jobs are.
        known: Kinds that are followed from the start; their owner starts and stops the informers.
        clock: For the informers.
        decode: Turns a job into what is remembered of it.
        follows_new: Whether any other kind is followed as soon as `follow` names it. Its informer is never waited for:
            rights may be missing. It catches up by itself.
        shows_labelled: Whether the store leaves out jobs without `katib.model.names.JOB_LABEL`.
        thread: Where the informers take turns; None: each has a thread of its own.

    Attributes:
        shows_labelled: Whether a job that loses its label on its way is not shown, nor its event.
        strays: The jobs that are there and that no informer shows, as far as that has been noted.
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
        """Register a callback for each kind that is followed from now on."""
        self._on_follow = tell

    def synced(self, kind: Kind) -> Informer[Object] | None:
        """Return the informer of a kind if it can be relied on; None while it catches up, or where there is none."""
        if (synced := self._synced.get(kind)) is not None:
            return synced
        informer = self._known.get(kind) or self._found.get(kind)
        if informer is None or not informer.has_synced():
            return None
        self._synced[kind] = informer
        return informer

    def follow(self, kind: Kind) -> None:
        """Follow a kind from now on, where new ones are followed.

        Only one that could be read: users name kinds that do not exist, and each would cost a thread for good.
        """
        with self._lock:
            if kind in self._known or kind in self._found or not self._follows_new or self._stopped:
                return
            informer = self._informer(kind)
            informer.start()
            self._found[kind] = informer
        self._on_follow(kind)

    def start(self) -> None:
        """Do nothing: a kind is followed when it is first asked for."""

    def stop(self) -> None:
        """Stop the informers of kinds that turned up, and follow no more."""
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
