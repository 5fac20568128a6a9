"""The table of leases, as several engines use it: on real files and locks."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from katib.places.machine.pods.leases import LeaseTable, card_ids, lease_directory
from katib.places.machine.pods.requests import Capacity, Lease, Limit, Request
from katib.places.machine.pods.tokens import Tokens
from tests.support.clock import VirtualClock

GIB = 2**30


class Machine:
    """Engines that share a table; time passes by `look`, which lets all of them look again."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = VirtualClock()
        self.tables: list[LeaseTable] = []
        self.planned: list[Callable[[], None]] = []

    def engine(self, capacity: Capacity, root: str = "/data") -> Tokens:
        table = LeaseTable(self.directory, capacity, lambda _descriptor: None, self.clock, Path(root))
        self.tables.append(table)
        return Tokens(capacity, table, lambda _seconds, call: self.planned.append(call), self.clock)

    def look(self, seconds: float = 0.5) -> None:
        self.clock.advance(seconds)
        planned, self.planned = self.planned, []
        for call in planned:
            call()


@pytest.fixture
def machine(leases: Path) -> Iterator[Machine]:
    machine = Machine(leases)
    yield machine
    for table in machine.tables:
        table.close()


def ask(tokens: Tokens, name: str, holder: str = "experiment a", **amounts: Any) -> list[Lease]:
    granted: list[Lease] = []
    tokens.ask(name, Request(**amounts), granted.append, holder=holder)
    return granted


def cores(*numbers: int, limits: tuple[Limit, ...] = (), gpus: tuple[str, ...] = ()) -> Capacity:
    return Capacity(Decimal(len(numbers)), Decimal(8 * GIB), gpus, frozenset(numbers), limits)


def limited(group: str) -> Capacity:
    return cores(0, 1, 2, 3, limits=(Limit(group, "cpu", Decimal(3)),))


FOUR = cores(0, 1, 2, 3)


def test_two_engines_never_hold_the_same_card(machine: Machine) -> None:
    capacity = cores(0, 1, gpus=("0", "1"))
    first, second = machine.engine(capacity, "/one"), machine.engine(capacity, "/two")
    (a,), (b,) = ask(first, "a", gpus=1), ask(second, "b", gpus=1)
    waiting = ask(second, "c", gpus=1)

    assert (a.gpus, b.gpus, waiting) == (("0",), ("1",), [])
    assert second.waiting_reason("c") == f"waits for 1 GPU: held by experiment a of process {os.getpid()} in /one"

    first.give_back(a)
    machine.look()

    assert waiting[0].gpus == ("0",)
    assert second.waiting_reason("c") == ""


def test_pods_share_a_card_by_one_number_and_others_find_it_taken(machine: Machine) -> None:
    capacity = cores(0, 1, gpus=("0", "1"))
    first, second = machine.engine(capacity, "/one"), machine.engine(capacity, "/two")
    halves = [lease for i in range(3) for lease in ask(first, f"half {i}", f"experiment {i}", gpus=1, share=2)]
    waiting = ask(second, "whole", gpus=1)

    assert [half.gpus for half in halves] == [("0",), ("0",), ("1",)]
    assert (waiting, first.free_gpus(), second.free_gpus()) == ([], (), ())

    third = ask(first, "third", gpus=1, share=3)
    (fourth,) = ask(first, "fourth", gpus=1, share=2) or [None]
    assert (third, fourth) == ([], None)  # the one before it in the queue needs a card that nobody has
    assert first.waiting_reason("third").startswith("waits for 1 GPU shared by 3; 0 of 2 GPU are free")

    first.withdraw("fourth")
    first.withdraw("third")
    first.give_back(halves[0])  # the table knows the card as that of its experiment
    machine.look()
    assert waiting == []
    first.give_back(halves[1])
    machine.look()

    assert waiting[0].gpus == ("0",)


def test_two_engines_never_hold_more_cpus_than_there_are(machine: Machine) -> None:
    first, second = machine.engine(FOUR, "/one"), machine.engine(FOUR, "/two")
    (held,) = ask(first, "a", cpu=Decimal(3))
    waiting, told = ask(second, "b", cpu=Decimal(2)), []
    second.ask("c", Request(cpu=Decimal(1)), lambda _lease: None, waits=lambda: told.append("c"))

    assert waiting == []
    assert second.waiting_reason("b") == f"waits for 2 cpu: held by experiment a of process {os.getpid()} in /one"
    assert second.waiting_reason("c") == ("waits for 1 cpu, 1 pod is ahead; the first " + second.waiting_reason("b"))

    first.give_back(held)
    machine.look()

    assert waiting


def test_memory_is_shared_too(machine: Machine) -> None:
    first, second = (
        machine.engine(Capacity(Decimal(4), Decimal(100))),
        machine.engine(Capacity(Decimal(4), Decimal(100))),
    )
    ask(first, "a", memory=Decimal(60))

    assert ask(second, "b", memory=Decimal(60)) == []
    assert ask(machine.engine(Capacity(Decimal(4), Decimal(100))), "c", cpu=Decimal(1))


@pytest.mark.parametrize(
    ("one", "other", "fits"),
    [
        pytest.param(cores(0, 1), cores(2, 3), True, id="other cores"),
        pytest.param(cores(0, 1), cores(0, 1), False, id="the same cores"),
        pytest.param(cores(0, 1), FOUR, True, id="more cores"),
        pytest.param(cores(0, 1), cores(1, 2), False, id="one core in common"),
        pytest.param(limited("group"), limited("group"), False, id="a group's quota"),
        pytest.param(limited("group"), limited("another"), True, id="groups of their own"),
    ],
)
def test_engines_share_what_both_may_use(machine: Machine, one: Capacity, other: Capacity, fits: bool) -> None:
    ask(machine.engine(one), "a", cpu=Decimal(2))

    assert bool(ask(machine.engine(other), "b", cpu=Decimal(2))) == fits


def test_many_that_hold_a_little_are_counted_together(machine: Machine) -> None:
    for number in range(4):
        assert ask(machine.engine(FOUR), f"p{number}", cpu=Decimal(1))

    assert ask(machine.engine(FOUR), "one more", cpu=Decimal("0.5")) == []


def test_who_asked_first_is_served_first(machine: Machine) -> None:
    first, second, third = (machine.engine(FOUR) for _ in range(3))
    (held,) = ask(first, "a", cpu=Decimal(2))
    large = ask(second, "large", "experiment large", cpu=Decimal(4))
    machine.look()
    small = ask(third, "small", cpu=Decimal(2))

    assert (large, small) == ([], [])
    assert "asked for earlier by experiment large" in third.waiting_reason("small")

    first.give_back(held)
    machine.look()

    assert large
    assert small == []
    second.give_back(large[0])
    machine.look()
    assert small


def test_a_card_is_kept_for_who_asked_earlier_unless_another_does(machine: Machine) -> None:
    first = machine.engine(cores(0, 1, gpus=("0", "1")))
    (held,) = ask(first, "a", gpus=2)
    waiting = ask(machine.engine(cores(0, 1, gpus=("1",))), "b", gpus=1)
    machine.look()
    either = ask(machine.engine(cores(0, 1, gpus=("0", "1"))), "c", gpus=1)

    first.give_back(held)
    machine.look()

    assert (waiting[0].gpus, either[0].gpus) == (("1",), ("0",))


def test_an_engine_that_was_stopped_keeps_nobody_waiting(machine: Machine) -> None:
    first, stopped = machine.engine(FOUR), machine.engine(FOUR)
    ask(first, "a", cpu=Decimal(2))
    ask(stopped, "large", cpu=Decimal(4))
    machine.planned.clear()
    machine.look()
    third = ask(machine.engine(FOUR), "small", cpu=Decimal(2))
    assert third == []

    machine.look(seconds=11)

    assert third


def test_what_an_engine_held_is_free_when_it_left(machine: Machine) -> None:
    ask(machine.engine(FOUR), "a", cpu=Decimal(4))
    waiting = ask(machine.engine(FOUR), "b", cpu=Decimal(4))
    assert waiting == []

    machine.tables[0].close()
    machine.look()

    assert waiting


def test_a_table_that_was_cleaned_away_is_written_again(machine: Machine) -> None:
    first = machine.engine(FOUR)
    ask(first, "a", cpu=Decimal(2))
    for path in machine.directory.iterdir():
        path.unlink()
    ask(first, "b", cpu=Decimal(1))

    assert ask(machine.engine(FOUR), "c", cpu=Decimal(2)) == []


def test_an_engine_leases_alone_where_the_table_cannot_be_used(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    machine.directory.parent.mkdir(exist_ok=True)
    machine.directory.touch()
    tokens = machine.engine(cores(0, 1, gpus=("0",)))

    (lease,) = ask(tokens, "a", gpus=1)
    tokens.give_back(lease)

    assert lease.gpus == ("0",)
    assert ask(tokens, "b", gpus=1)
    assert [record.message for record in caplog.records] == ["Cards and CPUs cannot be shared with other engines"]


@pytest.mark.parametrize("content", [b"", b"?" * 100, struct.pack("!II", 2, zlib.crc32(b"{}")) + b"{}"])
def test_what_another_version_writes_is_no_reason_to_stop(machine: Machine, content: bytes) -> None:
    ask(machine.engine(FOUR), "a", cpu=Decimal(4))
    next(machine.directory.glob("*-*.lock")).write_bytes(content)

    assert ask(machine.engine(FOUR), "b", cpu=Decimal(1))


def test_free_cards_are_those_that_no_engine_holds(machine: Machine) -> None:
    capacity = cores(0, gpus=("0", "1", "2"))
    first, second = machine.engine(capacity), machine.engine(capacity)
    ask(first, "a", gpus=1)
    ask(second, "b", gpus=1)

    assert first.free_gpus() == second.free_gpus() == ("2",)


def test_a_pod_is_told_when_its_reason_changes_and_not_at_every_look(machine: Machine) -> None:
    first, second, third = (machine.engine(FOUR) for _ in range(3))
    (held,) = ask(first, "a", "experiment a", cpu=Decimal(1))
    ask(third, "c", "experiment c", cpu=Decimal(1))
    reasons: list[str] = []
    second.ask(
        "b", Request(cpu=Decimal(4)), lambda _lease: None, waits=lambda: reasons.append(second.waiting_reason("b"))
    )
    machine.look()
    machine.look()
    assert ["experiment a" in reason for reason in reasons] == [True]

    first.give_back(held)
    machine.look()
    machine.look()

    assert ["experiment a" in reason for reason in reasons] == [True, False]


def test_no_file_is_made_before_something_is_leased(machine: Machine) -> None:
    tokens = machine.engine(FOUR)
    ask(tokens, "a")
    tokens.withdraw("a")

    assert not machine.directory.exists()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, f"/tmp/katib-{os.getuid()}/leases"),
        ({"KATIB_LEASES": "/shared", "TMPDIR": "/x", "XDG_RUNTIME_DIR": "/y"}, "/shared"),
        ({"KATIB_LEASES": "/shared", "KATIB_TRIAL_DIR": "/trial"}, "/trial/leases"),
    ],
    ids=["default", "given", "in a trial"],
)
def test_where_the_table_is(environment: dict[str, str], expected: str) -> None:
    assert str(lease_directory(environment)) == expected


def test_a_card_is_the_same_by_its_number_and_its_uuid(tmp_path: Path) -> None:
    for slot, uuid in (("0000:01:00.0", "GPU-aaaa-1"), ("0000:02:00.0", "GPU-aabb-2")):
        (tmp_path / slot).mkdir()
        (tmp_path / slot / "information").write_text(f"Model: \t\t A card\nGPU UUID: \t {uuid}\n")

    assert card_ids(("0", "1", "GPU-aabb", "GPU-aa", "MIG-1", "7"), tmp_path) == {
        "0": "GPU-aaaa-1",
        "1": "GPU-aabb-2",
        "GPU-aabb": "GPU-aabb-2",
        "GPU-aa": "GPU-aa",
        "MIG-1": "MIG-1",
        "7": "7",
    }


def test_what_a_pod_holds_that_outlived_its_engine_is_held_by_the_next_engine(machine: Machine) -> None:
    held: list[int] = []  # by the guard
    capacity = cores(0, 1, gpus=("0", "1"))
    first = LeaseTable(machine.directory, capacity, lambda fd: held.append(os.dup(fd)), machine.clock, Path("/data"))
    request = Request(cpu=Decimal(1), gpus=1)
    (lease,) = ask(Tokens(capacity, first, lambda *_: None, machine.clock), "a", cpu=Decimal(1), gpus=1)
    other = machine.engine(capacity, "/other")

    first.close(leaves=True)

    waiting = ask(other, "b", "experiment b", cpu=Decimal(2))
    assert waiting == []
    second = LeaseTable(machine.directory, capacity, lambda _fd: None, machine.clock, Path("/data"))
    second.take_over(held)
    tokens = Tokens(capacity, second, lambda *_: None, machine.clock)
    kept = tokens.keep(request, lease.gpus, "experiment a")
    assert kept == Lease(request, lease.gpus, "experiment a")
    assert tokens.free_gpus() == tuple(card for card in ("0", "1") if card not in lease.gpus)
    machine.look()
    assert waiting == []
    assert "held by experiment a" in other.waiting_reason("b")

    tokens.give_back(kept)
    second.flush()
    machine.look()
    assert [found.request.cpu for found in waiting] == [2]
    second.close()


def test_a_pod_that_has_more_than_there_is_now_keeps_it_and_others_wait() -> None:
    tokens = Tokens(cores(0))
    kept = tokens.keep(Request(cpu=Decimal(3), gpus=1), ("gone",))
    waiting = ask(tokens, "b", cpu=Decimal(1))

    assert kept.gpus == ()
    assert waiting == []
    tokens.give_back(kept)
    assert len(waiting) == 1
