"""A tuning service with controllers behind it, all in memory, whose suggestion service is a fake."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from katib.api.algorithms import AlgorithmInfo
from katib.api.types import Trial
from katib.local.admission import HostCapacity
from katib.local.submission import LocalHome
from katib.runtime.objects import Object, ObjectStore
from katib.tuning.ports import CallersLog, Records
from katib.tuning.service import Diagnosis, RecordedEvent
from katib.tuning.stored_service import ObjectTuningService
from katib.tuning.submission import Gate, StoredObjects
from tests.support.controllers import FakeServices, World
from tests.support.faulty_store import FaultyStore
from tests.support.tuning import Catalog


class _Catalog(Catalog):
    """The algorithms of the fake service: one of them learns from trials."""

    def find(self, name: str, *, early_stopping: bool = False) -> AlgorithmInfo | None:
        learning = AlgorithmInfo("tpe", "Learns.", None)
        return learning if name == "tpe" else super().find(name, early_stopping=early_stopping)


class _Nothing:
    """A home without events, output and explanations."""

    def events_of(self, _kind: str, _namespace: str, _name: str) -> Sequence[RecordedEvent]:
        return ()

    def read(self, *_arguments: object, **_options: object) -> Iterator[bytes]:
        return iter(())

    def past_pods(self, _trial: Trial) -> Sequence[Object]:
        return ()

    def explain(self, _namespace: str, name: str) -> Diagnosis:
        return Diagnosis("Experiment", name, "", "")


@contextmanager
def over_controllers(services: FakeServices | None = None, *, plain: bool = False) -> Iterator[ObjectTuningService]:
    """Run controllers over a store in memory; yield the tuning service of that store.

    Args:
        services: Suggestion services.
        plain: Whether the store that users see does no more than every store, as that of a cluster.
    """
    with World(services=services) as world:
        yield service_of(world, FaultyStore(world.store) if plain else None)


def service_of(world: World, store: ObjectStore | None = None) -> ObjectTuningService:
    """Return a tuning service over the store of a world, or over this one around it."""
    nothing = _Nothing()
    return ObjectTuningService(
        Records(store or world.store, world.observations, nothing, nothing, CallersLog(world.observations)),
        Gate(_Catalog(), LocalHome(HostCapacity.detect()), StoredObjects(world.store)),
        nothing.explain,
        world.clock,
    )
