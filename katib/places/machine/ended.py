"""Experiments that had ended before the engine started: kept from the controllers until something of them changes.

A data directory may hold a hundred thousand trials of experiments that have ended. To decode, remember and reconcile
them takes a minute and most of the memory, and comes to nothing: an engine over 10,000 starts in 0.04 s of
the processor, without this in 1.4 s. So the caches of the controllers do not see an
experiment that has ended, nor its Suggestion and trials; readers, such as the page, see the whole store. Before
anything of it is written, `show` gives it to the caches: trials first, the experiment last, so that no controller ever
sees an experiment without its trials.

Always seen are experiments in which something is left to do, or whose objects others need: unfinished ones, those that
have got a larger budget since they ended, those being deleted, those with active trials or jobs that are kept, those
that another one learns from, and those whose trials may bear the names of another one's.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from katib.engine.controllers.kinds import EXPERIMENT, SUGGESTION, TRIAL
from katib.engine.runtime.objects import Key, Kind, Object, ObjectList, ObjectStore, Watch
from katib.engine.runtime.search import SearchQuery, SortOrder
from katib.engine.stores.history import StoreWatch
from katib.engine.stores.sql import SqlStore
from katib.errors import NotFoundError, UnavailableError
from katib.model.conditions import has_ended
from katib.model.learned_experiments import learned_experiments
from katib.model.names import EXPERIMENT_LABEL
from katib.model.restarts import awaits_restart
from katib.model.trials import ACTIVE
from katib.model.types import Experiment, ResumePolicy

SHOW_SECONDS = 120.0
"""How long the caches may take to read the trials of one experiment."""

_LOOK_SECONDS = 0.02
_NUMBERED = re.compile(r".*-\d+")
_KINDS = frozenset({EXPERIMENT, SUGGESTION, TRIAL})


class EndedExperiments:
    """Knows which experiments the caches do not see."""

    def __init__(self, store: SqlStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._hidden: dict[Key, Experiment] = {}
        self._watches: dict[Kind, list[StoreWatch]] = {kind: [] for kind in _KINDS}
        self._is_cached: Callable[[Kind, Key], bool] = lambda _kind, _key: False

    def hide(self, is_cached: Callable[[Kind, Key], bool]) -> None:
        """Choose the experiments that the caches do not see. Before they are started.

        Args:
            is_cached: Returns whether an object is in the caches.
        """
        self._is_cached = is_cached
        experiments = list(map(Experiment.decode, self._store.list(EXPERIMENT).items))
        keyed = {Key(experiment.namespace, experiment.name): experiment for experiment in experiments}
        ended = {key: experiment for key, experiment in keyed.items() if self._may_be_hidden(experiment)}
        needed = {source for key, experiment in keyed.items() if key not in ended for source in _sources(experiment)}
        self._hidden = {key: experiment for key, experiment in ended.items() if key not in needed}

    def hidden(self) -> tuple[Experiment, ...]:
        """Return the experiments that the caches do not see, as they ended."""
        return tuple(self._hidden.values())

    def show(self, experiment: Key) -> None:
        """Give an experiment to the caches and return when they have it; at once when it is seen already.

        Raises:
            UnavailableError: The caches take too long.
        """
        found = self._hidden.get(experiment)  # without the lock, which is held while the caches read another one
        if found is None:
            return
        for source in _sources(found):
            if source != experiment:
                self.show_alone(source)
        self.show_alone(experiment)

    def show_alone(self, experiment: Key) -> None:
        """Do what `show` does without the experiments that this one learns from: enough for who learns from it."""
        with self._lock:
            if experiment not in self._hidden:
                return
            trials = self._store.list(TRIAL, experiment.namespace, labels={EXPERIMENT_LABEL: experiment.name}).items
            self._offer(TRIAL, trials)
            for kind in (SUGGESTION, EXPERIMENT):
                try:
                    self._offer(kind, (self._store.get(kind, experiment),))
                except NotFoundError:
                    continue
            self._hidden = {key: e for key, e in self._hidden.items() if key != experiment}

    def seen(self) -> ObjectStore:
        """Return the store as the caches see it."""
        return _Seen(self._store, self)

    def written(self) -> _Written:
        """Return the store for those who write on behalf of users: the caches see what they write."""
        return _Written(self._store, self)

    def visible(self, page: ObjectList) -> ObjectList:
        """Return those of some experiments or suggestions that the caches see."""
        return ObjectList(tuple(obj for obj in page.items if Key.of(obj) not in self._hidden), page.resource_version)

    def visible_trials(self, namespace: str | None) -> Iterator[ObjectList]:
        """Yield the trials that the caches see, a page at a time, one experiment after the other."""
        hidden = {str(key) for key in self._hidden}
        revision = ""
        for scope in self._store.scopes(TRIAL):
            space, _, name = scope.partition("/")
            if scope in hidden or namespace not in (None, space):
                continue
            for page in self._store.pages(TRIAL, space, labels={EXPERIMENT_LABEL: name}):
                revision = revision or page.resource_version
                yield ObjectList(page.items, revision, in_order=True)
        if not revision:
            yield ObjectList((), self._store.list(TRIAL, "-").resource_version)

    def follow(self, watch: StoreWatch) -> None:
        """Have a watch of the caches deliver what is shown later, too."""
        self._watches[watch.kind].append(watch)

    def _offer(self, kind: Kind, objects: tuple[Object, ...]) -> None:
        for watch in self._watches[kind]:
            watch.show(objects)
        pause = threading.Event()
        waited = 0.0
        for obj in reversed(objects):  # they come in order, so the last one is waited for and the others are there
            while not self._is_cached(kind, Key.of(obj)):
                if waited > SHOW_SECONDS:
                    raise UnavailableError(
                        f"{kind.kind} {Key.of(obj)}: is not read within {SHOW_SECONDS:g} s; try again"
                    )
                pause.wait(_LOOK_SECONDS)
                waited += _LOOK_SECONDS

    def _may_be_hidden(self, experiment: Experiment) -> bool:
        template, metadata = experiment.spec.trial_template, experiment.metadata
        if not has_ended(experiment.status.conditions) or awaits_restart(experiment):
            return False
        if metadata.deletion_timestamp is not None:
            return False
        if not metadata.finalizers or (template is not None and template.retain):
            return False
        if experiment.spec.resume_policy == ResumePolicy.LONG_RUNNING or _NUMBERED.fullmatch(experiment.name):
            return False
        scope = str(Key(experiment.namespace, experiment.name))
        active = self._store.search(SearchQuery(TRIAL, scope, frozenset(ACTIVE), SortOrder.CREATION, 1, ""))
        return active is not None and active.total == 0


def _sources(experiment: Experiment) -> tuple[Key, ...]:
    return tuple(Key(experiment.namespace, name) for name in learned_experiments(experiment))


class _View:
    """A store of which some calls do more; all others are passed on."""

    def __init__(self, store: SqlStore, ended: EndedExperiments) -> None:
        self._store, self._ended = store, ended
        self.get, self.list, self.search = store.get, store.list, store.search


class _Seen(_View):
    """Leaves out what is hidden where objects are listed."""

    def __init__(self, store: SqlStore, ended: EndedExperiments) -> None:
        super().__init__(store, ended)
        self.create, self.update, self.patch = store.create, store.update, store.patch
        self.update_status, self.delete = store.update_status, store.delete

    def pages(
        self, kind: Kind, namespace: str | None = None, *, labels: Mapping[str, str] | None = None
    ) -> Iterator[ObjectList]:
        if kind not in _KINDS or labels:
            yield from self._store.pages(kind, namespace, labels=labels)
        elif kind == TRIAL:
            yield from self._ended.visible_trials(namespace)
        else:
            yield from map(self._ended.visible, self._store.pages(kind, namespace))

    def watch(self, kind: Kind, since: str) -> Watch:
        watch = self._store.watch(kind, since)
        if kind in _KINDS:
            self._ended.follow(watch)
        return watch


class _Written(_View):
    """Shows an experiment to the caches before anything of it is written."""

    def __init__(self, store: SqlStore, ended: EndedExperiments) -> None:
        super().__init__(store, ended)
        self.pages, self.watch = store.pages, store.watch

    def create(self, obj: Object) -> Object:
        if Kind.of(obj) == EXPERIMENT:
            for source in _sources(Experiment.decode(obj)):
                self._ended.show_alone(source)
        return self._store.create(obj)

    def update(self, obj: Object) -> Object:
        self._show_owner(obj)
        return self._store.update(obj)

    def patch(self, obj: Object, changes: Mapping[str, Any]) -> Object:
        self._show_owner(obj)
        return self._store.patch(obj, changes)

    def update_status(self, obj: Object) -> Object:
        self._show_owner(obj)
        return self._store.update_status(obj)

    def create_whole(self, obj: Object) -> Object:
        self._show_owner(obj)
        return self._store.create_whole(obj)

    def patch_whole(self, obj: Object, changes: Mapping[str, Any]) -> Object:
        self._show_owner(obj)
        return self._store.patch_whole(obj, changes)

    def delete(self, kind: Kind, key: Key, *, uid: str | None = None) -> None:
        if kind in _KINDS:
            self._show_owner({**self._store.get(kind, key)})
        self._store.delete(kind, key, uid=uid)

    def _show_owner(self, obj: Object) -> None:
        kind, key = Kind.of(obj), Key.of(obj)
        if kind in (EXPERIMENT, SUGGESTION):
            self._ended.show(key)
        elif kind == TRIAL:
            name = (obj["metadata"].get("labels") or {}).get(EXPERIMENT_LABEL, "")
            self._ended.show(Key(key.namespace, name))
