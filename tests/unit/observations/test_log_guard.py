"""Who may do what with the observation log, over real gRPC on loopback.

Calls over loopback count as local, who may read everything; so a test that is about others says where it calls from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import grpc
import pytest

from katib.errors import AlreadyExistsError, ForbiddenError
from katib.wire.rpc import log_guard
from katib.wire.rpc._generated import api_pb2 as pb
from katib.wire.rpc.credentials import DbManagerCredentials
from katib.wire.rpc.db_manager_client import DbManagerClient
from katib.wire.rpc.log_guard import LogCaller, LogGuard, MemoryAccessList
from katib.wire.rpc.services import calls_over
from katib.wire.rpc.tokens import CallerRole, TokenClaims, TokenSigner
from tests.support.golden import Golden
from tests.support.observations import MemoryObservationLog, reading, serving_log

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
TOKENS = TokenSigner([KEY])


class World:
    """A guarded DB manager; `a` is a trial of the namespace `team`, `b` one of `others`."""

    def __init__(self, stack: ExitStack) -> None:
        self.log = MemoryObservationLog()
        guard = LogGuard(TOKENS, MemoryAccessList())
        self.server = stack.enter_context(serving_log(self.log, guard=guard))
        self._stack = stack

    def as_(self, token: str) -> DbManagerClient:
        client = DbManagerClient(self.server.address, credentials=DbManagerCredentials(token))
        return self._stack.enter_context(closing(client))

    def trial(self, name: str, namespace: str = "team") -> DbManagerClient:
        return self.as_(TOKENS.token_of(TokenClaims(CallerRole.TRIAL, namespace, name)))

    def reader(self, namespace: str = "team") -> DbManagerClient:
        return self.as_(TOKENS.token_of(TokenClaims(CallerRole.READER, namespace)))

    def controller(self, namespace: str = "team") -> DbManagerClient:
        return self.as_(TOKENS.token_of(TokenClaims(CallerRole.CONTROLLER, namespace)))

    def nobody(self) -> DbManagerClient:
        return self.as_("")


@pytest.fixture
def world() -> Iterator[World]:
    with ExitStack() as stack:
        world = World(stack)
        world.controller().begin("a")
        world.controller("others").begin("b")
        yield world


@pytest.fixture
def from_a_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have callers come from another machine."""
    monkeypatch.setattr(log_guard, "_LOOPBACK", ("nowhere",))


ONE = [reading("0.5")]


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(ForbiddenError) as caught:
        call()
    return str(caught.value).partition(": ")[2]


@pytest.mark.usefixtures("from_a_pod")
def test_nobody_gets_at_the_readings_of_a_trial_without_its_token(world: World) -> None:
    world.trial("a").report("a", ONE)
    callers = {
        "none": world.nobody(),
        "another trial": world.trial("b"),
        "same name, another namespace": world.trial("a", "others"),
        "reader of another namespace": world.reader("others"),
        "made up": world.as_("katib1:trial:team:a:" + "0" * 64),
        "another key": world.as_(TokenSigner([OTHER_KEY]).token_of(TokenClaims(CallerRole.TRIAL, "team", "a"))),
        "claims changed": world.as_(TOKENS.token_of(TokenClaims(CallerRole.TRIAL, "team", "b")).replace(":b:", ":a:")),
        "no token at all": world.as_("letmein"),
    }
    for name, caller in callers.items():
        for call in (
            lambda log=caller: log.report("a", ONE),
            lambda log=caller: log.read("a"),
            lambda log=caller: log.summarize("a", ["loss"]),
            lambda log=caller: log.delete("a"),
            lambda log=caller: log.begin("a"),
            lambda log=caller: log.end("a"),
        ):
            assert refused(call), name

    assert world.log.read("a") == ONE


def test_a_trial_that_has_ended_reports_no_more_until_another_one_begins(world: World, golden: Golden) -> None:
    log = world.trial("a")
    log.report("a", ONE)
    for _ in range(2):
        world.controller().end("a")

    golden(refused(lambda: log.report("a", ONE)))
    assert log.read("a") == ONE
    world.controller("others").end("b")
    world.controller().begin("a")
    log.report("a", ONE)
    assert log.read("a") == ONE


def test_the_end_of_a_trial_or_its_deletion_is_not_that_of_a_namesake(world: World) -> None:
    world.controller("others").end("a")
    world.trial("a").report("a", ONE)

    assert world.log.read("a") == ONE

    world.controller("others").delete("a")
    assert world.log.read("a") == ONE
    world.controller("team").delete("a")
    assert world.log.read("a") == []


def test_a_trial_without_token_that_has_ended_reports_no_more(world: World) -> None:
    world.controller().begin("open", reports_without_token=True)
    world.nobody().report("open", ONE)
    world.controller().end("open")

    assert "it has ended" in refused(lambda: world.nobody().report("open", ONE))


def test_a_trial_deletes_nothing_not_even_its_own(world: World, golden: Golden) -> None:
    log = world.trial("a")
    log.report("a", ONE)

    golden(refused(lambda: log.delete("a")))
    golden(refused(lambda: log.begin("a")))
    assert world.log.read("a") == ONE


@pytest.mark.usefixtures("from_a_pod")
def test_a_reader_reads_all_trials_of_its_namespace_and_reports_for_none(world: World) -> None:
    world.trial("a").report("a", ONE)
    reader = world.reader()

    assert reader.read("a") == ONE
    assert refused(lambda: reader.read("b"))
    assert refused(lambda: reader.report("a", ONE))
    assert world.reader("").read("a") == ONE


def test_a_name_that_is_taken_in_another_namespace_is_refused_until_its_trial_is_gone(world: World) -> None:
    world.trial("a").report("a", ONE)
    with pytest.raises(AlreadyExistsError, match="a trial of this name in another namespace has the log"):
        world.controller("others").begin("a")
    assert world.log.read("a") == ONE

    world.controller("team").delete("a")
    world.controller("others").begin("a")
    world.trial("a", "others").report("a", ONE)


def test_beginning_anew_empties_the_log(world: World) -> None:
    world.trial("a").report("a", ONE)
    world.controller().begin("a")

    assert world.log.read("a") == []


@pytest.mark.usefixtures("from_a_pod")
def test_a_trial_may_be_opened_to_reports_without_token_and_no_further(world: World) -> None:
    world.controller().begin("a", reports_without_token=True)
    world.nobody().report("a", ONE)

    assert world.log.read("a") == ONE
    assert refused(lambda: world.nobody().read("a"))
    assert refused(lambda: world.nobody().delete("a"))
    assert refused(lambda: world.nobody().report("b", ONE))


@pytest.mark.usefixtures("from_a_pod")
def test_a_trial_may_be_opened_to_readers_without_token_and_no_further(world: World) -> None:
    world.controller().begin("a", reads_without_token=True)
    world.trial("a").report("a", ONE)

    assert world.nobody().read("a") == ONE
    assert refused(lambda: world.nobody().report("a", ONE))


def test_whoever_came_through_a_forwarded_port_reads_and_does_nothing_else(world: World) -> None:
    world.trial("a").report("a", ONE)
    with grpc.insecure_channel(world.server.address) as channel:  # as the official SDK calls
        stub: Any = calls_over(channel, pb)
        reply = stub.GetObservationLog(pb.GetObservationLogRequest(trial_name="a"))

    assert [entry.metric.value for entry in reply.observation_log.metric_logs] == ["0.5"]
    assert refused(lambda: world.nobody().report("a", ONE))


@pytest.mark.parametrize(
    ("peer", "is_local"),
    [
        ("ipv4:127.0.0.1:50000", True),
        ("ipv6:[::1]:50000", True),
        ("ipv6:%5B::1%5D:50000", True),
        ("ipv4:127.0.0.6:50000", False),
        ("ipv4:127.0.0.11:50000", False),
        ("ipv4:10.0.0.7:50000", False),
        ("ipv6:[fd00::1]:50000", False),
        ("", False),
    ],
)
def test_only_the_pod_itself_is_local_and_not_the_proxy_of_a_mesh(peer: str, *, is_local: bool) -> None:
    class Context:
        def peer(self) -> str:
            return peer

        def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
            return ()

    assert LogCaller.of(Context()).is_local is is_local


def test_a_refusal_says_what_to_configure_and_the_controller_can_ask_for_it(world: World) -> None:
    cause = refused(lambda: world.nobody().report("a", ONE))

    assert cause.startswith("trial a: ")
    assert "sendsToken: false" in cause
    assert "runtime.metricsCollectors" in cause
    assert world.controller().refusal_of("a") == cause
    assert world.controller().refusal_of("b") == ""
    world.controller().begin("a")
    assert world.controller().refusal_of("a") == ""


def test_refusals_are_forgotten_when_there_are_many(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_guard, "MAX_REFUSALS", 2)
    for name in ("x", "y", "z"):
        refused(lambda name=name: world.nobody().report(name, ONE))

    assert [bool(world.controller().refusal_of(name)) for name in ("x", "y", "z")] == [False, True, True]


def test_a_log_from_before_tokens_belongs_to_whoever_names_its_trial(world: World) -> None:
    world.log.report("old", ONE)

    assert world.trial("old").read("old") == ONE
    assert world.reader().read("old") == ONE


def test_a_key_is_replaced_while_trials_run() -> None:
    """The new key signs, and tokens of the old one are good until it is taken out."""
    old, both, new = TokenSigner([OTHER_KEY]), TokenSigner([KEY, OTHER_KEY]), TokenSigner([KEY])
    running, later = (tokens.token_of(TokenClaims(CallerRole.TRIAL, "team", "a")) for tokens in (old, both))

    assert running != later
    assert (
        both.claims_of(running)
        == both.claims_of(later)
        == new.claims_of(later)
        == TokenClaims(CallerRole.TRIAL, "team", "a")
    )
    assert new.claims_of(running) is None


@pytest.mark.parametrize("token", ["", ":", "katib1", "katib1:trial:team:a:", "é:x", "a" * 9000])
def test_what_is_no_token_is_none(token: str) -> None:
    assert TOKENS.claims_of(token) is None


def test_neither_keys_nor_tokens_are_printed() -> None:
    token = TOKENS.token_of(TokenClaims(CallerRole.TRIAL, "team", "a"))

    assert KEY.decode() not in repr(TOKENS)
    assert token not in repr(DbManagerCredentials(token))


def test_a_db_manager_without_a_key_asks_nobody() -> None:
    log = MemoryObservationLog()
    credentials = DbManagerCredentials("whatever")
    with serving_log(log) as server, closing(DbManagerClient(server.address, credentials=credentials)) as client:
        client.begin("a")
        client.report("a", ONE)
        assert client.read("a") == ONE

        client.delete("a")
        assert log.read("a") == []
