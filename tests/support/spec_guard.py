"""Follows what is written to an API server, and notes every write that changes what was stored for good.

It stands in for the rules of newer API servers where the tests have an older one, and asks more than they do: a rule
compares values, this compares bytes, and what we made ourselves (Trials, Suggestions) is held to the same.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any, Self

from katib.engine.controllers.kinds import EXPERIMENT, SUGGESTION, TRIAL
from katib.engine.runtime.objects import EventType, Key, Kind, Object
from katib.errors import KatibError
from katib.places.cluster.client import open_connection
from katib.places.cluster.store import KubernetesStore
from tests.support.transition_rules import broken_rules

KINDS = (EXPERIMENT, SUGGESTION, TRIAL)


class SpecGuard:
    """A context manager; `broken` says what was written that must not be, one line for each write.

    Writes that follow each other while the API server is away may be seen as one.
    """

    def __init__(self, kubeconfig: Path) -> None:
        self.broken: list[str] = []
        self.seen = 0
        self._connection = open_connection(kubeconfig)
        self._store = KubernetesStore(self._connection)
        self._stored: dict[str, Object] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(kind,), daemon=True) for kind in KINDS]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stopping.set()
        self._connection.close()
        for thread in self._threads:
            thread.join(60)

    def _run(self, kind: Kind) -> None:
        while not self._stopping.is_set():
            try:
                self._follow(kind)
            except KatibError:  # the server was stopped, or forgot its revisions
                self._stopping.wait(0.2)

    def _follow(self, kind: Kind) -> None:
        listed = self._store.list(kind)
        for obj in listed.items:
            self._see(obj)
        with self._store.watch(kind, listed.resource_version) as watch:
            while not self._stopping.is_set():
                event = watch.next(0.5)
                if event is not None and event.type is not EventType.DELETED:
                    self._see(event.object)

    def _see(self, obj: Object) -> None:
        uid = obj["metadata"]["uid"]
        with self._lock:
            stored = self._stored.get(uid, obj)
            self._stored[uid] = obj
            self.seen += obj is not stored
            self.broken += [f"{obj['kind']} {Key.of(obj)}: {words}" for words in _changes(stored, obj)]


def _changes(stored: Object, written: Object) -> list[str]:
    if Kind.of(stored) == EXPERIMENT:
        return broken_rules(stored, written)
    same = _text(_fixed(stored)) == _text(_fixed(written))
    return [] if same else [f"its spec was written as {_text(_fixed(written))} over {_text(_fixed(stored))}"]


def _fixed(obj: Object) -> dict[str, Any]:
    """Return what of the spec of a Trial or Suggestion never changes."""
    return {name: value for name, value in (obj.get("spec") or {}).items() if name != "requests"}


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
