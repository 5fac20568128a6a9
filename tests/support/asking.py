"""A tuning service with controllers behind it, all in memory, whose suggestion service is a fake."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from katib.engine.runtime.objects import Object, ObjectStore
from katib.model.algorithms import AlgorithmInfo
from katib.model.types import Trial
from katib.places.cluster.access.events import ClusterEventReader
from katib.places.cluster.access.facts import KatibComponents
from katib.places.cluster.access.metrics import MetricsAccess
from katib.places.cluster.access.tuning_service import ClusterNamespaces, ServingHome, make_tuning_service
from katib.places.cluster.pods.logs import ClusterOutput
from katib.places.machine.admission import HostCapacity
from katib.places.machine.submission import LocalHome
from katib.service.tuning.ports import CallersLog, Records
from katib.service.tuning.service import Diagnosis, RecordedEvent, TuningService
from katib.service.tuning.stored_service import ObjectTuningService
from katib.service.tuning.submission import Gate, StoredObjects
from katib.wire.rpc.credentials import NO_CREDENTIALS, DbManagerCredentials
from katib.wire.rpc.db_manager import serve_db_manager
from katib.wire.rpc.log_guard import LogGuard, MemoryAccessList
from katib.wire.rpc.tokens import MIN_KEY_BYTES, CallerRole, TokenClaims, TokenSigner
from tests.support.cluster import KeptLogs, events_in, no_forward
from tests.support.controllers import FakeServices, World
from tests.support.faulty_store import FailOn, FaultyStore
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
        Records(store or world.store, world.observations, nothing, lambda: nothing, CallersLog(world.observations)),
        Gate(_Catalog(), LocalHome(HostCapacity.detect()), StoredObjects(world.store)),
        nothing.explain,
        world.clock,
    )


@contextmanager
def over_cluster(fail_on: FailOn = lambda _call: None, *, has_key: bool = True) -> Iterator[TuningService]:
    """Run controllers as above; yield the tuning service of a cluster over their store, with a real DB manager.

    Args:
        fail_on: What calls of the user's store meet.
        has_key: Whether the user may read the key of the installation.
    """
    tokens = TokenSigner([b"k" * MIN_KEY_BYTES])

    def signed(role: CallerRole, namespace: str) -> DbManagerCredentials:
        return DbManagerCredentials(tokens.token_of(TokenClaims(role, namespace)))

    with World() as world, ExitStack() as stack:
        guard = LogGuard(tokens, MemoryAccessList(), trusts_loopback=False)
        server = serve_db_manager(world.observations, "127.0.0.1:0", guard=guard)
        stack.callback(lambda: server.stop(0))
        store, clock = FaultyStore(world.store, fail_on), world.clock
        writing = partial(signed, CallerRole.CONTROLLER) if has_key else lambda _namespace: NO_CREDENTIALS
        core = KatibComponents("kubeflow", store)
        access = MetricsAccess(
            server.address, store, core.namespace, no_forward, clock, partial(signed, CallerRole.READER), writing
        )
        yield make_tuning_service(
            store,
            stack.enter_context(access),
            ClusterEventReader(events_in(store), store),
            ClusterOutput(store, KeptLogs()),
            ClusterNamespaces(store, "default", core),
            ServingHome(),
            core,
            clock,
        )
