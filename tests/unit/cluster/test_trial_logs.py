"""The controller's side of the observation log: in whose name it asks, and what it tells the DB manager of a trial."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from katib.engine.controllers.ports import TrialReport
from katib.errors import ForbiddenError, InvalidError, UnavailableError
from katib.model.configuration import read_configuration
from katib.model.metrics import LogAccess
from katib.model.types import AlgorithmSpec, CollectorSpec, MetricsCollectorSpec, ObjectMeta, Suggestion, SuggestionSpec
from katib.places.cluster.configuration.models import KatibConfig
from katib.places.cluster.leader.trial_logs import DbManagerTrialLogs
from katib.wire.rpc.credentials import NO_CREDENTIALS
from katib.wire.rpc.db_manager import serve_db_manager
from katib.wire.rpc.db_manager_client import DbManagerClient, DbManagerConnection
from katib.wire.rpc.log_guard import LogGuard, MemoryAccessList
from katib.wire.rpc.tokens import CallerRole, TokenClaims, TokenSigner
from tests.support.observations import MemoryObservationLog, reading
from tests.support.planning import observed, trial

KEY = b"k" * 32
CONFIG = """
runtime:
  metricsCollectors:
    - {kind: StdOut, image: ours}
    - {kind: TensorFlowEvent, image: katibs, sendsToken: false}
    - {kind: Push, sendsToken: false}
  earlyStoppings:
    - {algorithmName: medianstop, image: ours}
    - {algorithmName: theirs, image: katibs, sendsToken: false}
"""


class World:
    """A guarded DB manager, and the logs of trials as a controller sees them."""

    def __init__(self) -> None:
        self.log = MemoryObservationLog()
        self.guard = LogGuard(TokenSigner([KEY]), MemoryAccessList())
        self.server = serve_db_manager(self.log, "127.0.0.1:0", guard=self.guard)
        self.connection = DbManagerConnection.to(self.server.address, NO_CREDENTIALS)
        self.client = DbManagerClient(self.connection)
        self.leads = True
        self.stopping = "medianstop"

    def logs(self, key: bytes = KEY, config: str = CONFIG) -> DbManagerTrialLogs:
        read: KatibConfig = read_configuration(KatibConfig, config, "katib-config")
        client = DbManagerClient(
            self.connection,
            token_of=lambda namespace: TokenSigner([key]).token_of(TokenClaims(CallerRole.CONTROLLER, namespace)),
        )
        return DbManagerTrialLogs(client, lambda: read, lambda _key: self._suggestion(), lambda: self.leads)

    def _suggestion(self) -> Suggestion:
        spec = SuggestionSpec(early_stopping=AlgorithmSpec(algorithm_name=self.stopping))
        return Suggestion(metadata=ObjectMeta(name="demo", namespace="default"), spec=spec)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.client.close()
    world.server.stop(0)


@pytest.mark.parametrize(
    ("kind", "stopping", "expected"),
    [
        ("StdOut", "medianstop", LogAccess("default")),
        ("File", "unknown", LogAccess("default")),
        ("TensorFlowEvent", "medianstop", LogAccess("default", reports_without_token=True)),
        ("Push", "medianstop", LogAccess("default", reports_without_token=True)),
        ("StdOut", "theirs", LogAccess("default", reads_without_token=True)),
    ],
)
def test_only_what_the_configuration_names_is_open(world: World, kind: str, stopping: str, expected: LogAccess) -> None:
    world.stopping = stopping
    spec = MetricsCollectorSpec(collector=CollectorSpec(kind=kind))
    world.logs().begin(trial("a", metrics_collector=spec))

    assert world.guard.access.find("a") == expected


def test_what_was_reported_is_what_the_trial_gets(world: World) -> None:
    demo = trial("a")
    world.logs().begin(demo)
    world.log.report("a", [reading("0.5")])

    assert world.logs().summarize(demo) == TrialReport(observed("0.5"))
    world.logs().delete(demo)
    assert world.log.read("a") == []


def test_a_status_is_stored_once_and_not_where_a_collector_reports(world: World) -> None:
    posted, collected = trial("a"), trial("b")
    first, same, theirs = (reading("0.5", second=at, step=3) for at in (1, 2, 3.5))
    second = reading("0.4", second=4, step=4)
    for demo in (posted, collected):
        world.logs().begin(demo)
    world.log.report("b", [theirs])
    for status in (first, same, second):
        world.logs().take_status(posted, [status])
        world.logs().take_status(collected, [status])

    assert world.log.read("a") == [first, second]
    assert world.log.read("b") == [theirs]


def test_a_trial_whose_log_has_ended_reports_no_more(world: World) -> None:
    demo = trial("a")
    world.logs().begin(demo)
    world.logs().end(demo)
    with pytest.raises(ForbiddenError, match="it has ended"):
        trial_client(world).report("a", [reading("0.5")])

    assert world.log.read("a") == []


@pytest.mark.parametrize("write", ["begin", "end", "delete", "take_status"])
def test_without_leadership_writes_are_refused(world: World, write: str) -> None:
    demo, logs = trial("a"), world.logs()
    logs.begin(demo)
    world.log.report("a", [reading("0.5")])
    world.leads = False

    with pytest.raises(UnavailableError):
        getattr(logs, write)(demo, *([()] if write == "take_status" else []))
    assert logs.summarize(demo) == TrialReport(observed("0.5"))


def trial_client(world: World) -> DbManagerClient:
    return world.client.speaking_as(TokenSigner([KEY]).token_of(TokenClaims(CallerRole.TRIAL, "default", "a")))


def test_a_refused_report_explains_a_trial_without_metrics(world: World) -> None:
    demo = trial("a")
    world.logs().begin(demo)
    with pytest.raises(ForbiddenError):
        world.client.report("a", [reading("0.5")])

    assert "set sendsToken: false" in world.logs().summarize(demo).refusal


def test_a_trial_whose_name_another_namespace_has_is_refused_with_a_remedy(world: World) -> None:
    world.guard.begin("a", LogAccess("others"))

    with pytest.raises(InvalidError) as caught:
        world.logs().begin(trial("a"))
    assert str(caught.value) == (
        "metadata.name: a trial of this name in another namespace has readings; give the experiment another name"
    )


@pytest.mark.parametrize("call", ["begin", "end"])
def test_a_db_manager_with_another_key_is_waited_for_and_named(world: World, call: str) -> None:
    with pytest.raises(UnavailableError, match="restart both, so that they use one key"):
        getattr(world.logs(key=b"o" * 32), call)(trial("a"))
