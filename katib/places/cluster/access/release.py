"""Removes finalizers from deleted experiments and trials after the controller was uninstalled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from katib.engine.controllers.kinds import EXPERIMENT, TRIAL
from katib.engine.runtime.objects import Key, Kind, Object, ObjectStore
from katib.errors import ConflictError, KindNotInstalledError, NotFoundError, TerminalError
from katib.model.names import EXPERIMENT_FINALIZER, TRIAL_FINALIZER
from katib.places.cluster.access.facts import CONTROLLER, is_controller_at_work
from katib.places.cluster.client import open_connection
from katib.places.cluster.environment import core_namespace
from katib.places.cluster.services.plan import DEPLOYMENT
from katib.places.cluster.store import KubernetesStore

_FINALIZERS = {EXPERIMENT: EXPERIMENT_FINALIZER, TRIAL: TRIAL_FINALIZER}
_ATTEMPTS = 5


@contextmanager
def open_cluster_store(kubeconfig: Path | None, context: str | None) -> Iterator[ObjectStore]:
    """Open the objects of a cluster, even if some of Katib's definitions are already deleted."""
    with open_connection(kubeconfig, context) as connection:
        yield KubernetesStore(connection)


def require_no_controller(store: ObjectStore) -> None:
    """Raise if a controller is running: it removes finalizers itself, and also cleans up.

    Raises:
        TerminalError: A controller runs, or its absence cannot be verified.
    """
    namespace = core_namespace()
    with suppress(NotFoundError):
        store.get(DEPLOYMENT, Key(namespace, CONTROLLER))
        if is_controller_at_work(store, namespace):
            raise TerminalError(
                f"the controller in namespace {namespace} is at work and cleans up deleted objects; wait for it, "
                "or give --force"
            )


def release(store: ObjectStore) -> Iterator[str]:
    """Release every Experiment and Trial that is being deleted; yield each as `experiment NAMESPACE/NAME`.

    Trials of such an experiment are deleted with it. Other objects are not changed.
    """
    for experiment in _deleted(store, EXPERIMENT):
        for trial in _objects(store, TRIAL, owner_uid=experiment["metadata"]["uid"]):
            with suppress(NotFoundError):
                store.delete(TRIAL, Key.of(trial), uid=trial["metadata"]["uid"])
            yield from _let_go(store, trial)
        yield from _let_go(store, experiment)
    for trial in _deleted(store, TRIAL):
        yield from _let_go(store, trial)


def _deleted(store: ObjectStore, kind: Kind) -> list[Object]:
    found = _objects(store, kind)
    return [obj for obj in found if "deletionTimestamp" in obj["metadata"] and _is_held(obj)]


def _objects(store: ObjectStore, kind: Kind, *, owner_uid: str | None = None) -> tuple[Object, ...]:
    with suppress(KindNotInstalledError):  # its definition was deleted, with all its objects
        return store.list(kind, owner_uid=owner_uid).items
    return ()


def _is_held(obj: Object) -> bool:
    return _FINALIZERS[Kind.of(obj)] in (obj["metadata"].get("finalizers") or ())


def _let_go(store: ObjectStore, obj: Object) -> Iterator[str]:
    """Remove Katib's finalizer only."""
    kind, key, uid = Kind.of(obj), Key.of(obj), obj["metadata"]["uid"]
    for attempt in range(_ATTEMPTS):
        try:
            found = store.get(kind, key)
            if found["metadata"]["uid"] != uid or not _is_held(found):
                return
            others = [name for name in found["metadata"]["finalizers"] if name != _FINALIZERS[kind]]
            store.patch(found, {"metadata": {"finalizers": others}})
        except NotFoundError:
            return
        except ConflictError:
            if attempt == _ATTEMPTS - 1:
                raise
            continue
        yield f"{kind.kind.lower()} {key}"
        return
