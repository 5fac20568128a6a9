"""Tables of trials while they are read."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

from katib.api.types import Experiment
from katib.rest.streams import Closing
from katib.tuning.service import Change
from katib.ui.live import table_events
from katib.ui.tables import LiveTable
from tests.support.tuning import MemoryTuningService, condition, document, make_trial
from tests.support.waiting import eventually

TRIALS = 2_000


class SlowService(MemoryTuningService):
    """A service whose opening listing stops in its middle until it is let go on."""

    def __init__(self) -> None:
        super().__init__()
        self.submit(document("demo", trials=TRIALS), source="demo.yaml")
        self.go_on = threading.Event()

    def changes(self, namespace: str, experiment: str, *, since: str = "", **_options: Any) -> Iterator[Change]:
        if since:
            threading.Event().wait(1)
            return
        yield Change("ADDED", self.get(Experiment, namespace, experiment).encode())
        for index in range(TRIALS):
            if index == TRIALS // 2:
                self.go_on.wait(30)
            trial = make_trial(f"demo-{index:04d}", condition("Succeeded"), index=index)
            yield Change("ADDED", trial.encode(), "end" if index == TRIALS - 1 else "")


def test_a_table_that_is_still_read_shows_what_is_there_and_notifies_a_few_times() -> None:
    service, closing, noticed = SlowService(), Closing(), list[int]()
    table = LiveTable(service, "default", "demo", closing)
    end = table.watch(lambda: noticed.append(1))

    eventually(lambda: table.snapshot(wait_seconds=0.1).trials.names.size == TRIALS // 2)
    partial = table.snapshot()
    service.go_on.set()
    whole = table.snapshot(wait_seconds=30)
    end()
    closing.begin()

    assert not partial.complete
    assert whole.complete
    assert len(whole.trials) == TRIALS
    assert whole.version > partial.version
    assert len(noticed) < TRIALS / 10


def test_a_table_that_is_made_later_has_later_versions() -> None:
    service, closing = SlowService(), Closing()
    service.go_on.set()

    first = LiveTable(service, "default", "demo", closing).snapshot(wait_seconds=30)
    second = LiveTable(service, "default", "demo", closing).snapshot(wait_seconds=30)
    closing.begin()

    assert first.complete
    assert second.version > first.version


def test_the_stream_of_a_table_that_was_given_up_ends_so_that_the_page_gets_another() -> None:
    service, closing = MemoryTuningService(), Closing()
    service.submit(document("demo"), source="demo.yaml")
    table = LiveTable(service, "default", "demo", closing)
    table.snapshot(wait_seconds=30)
    table.give_up()

    async def read() -> list[bytes]:
        return [part async for part in table_events(table, closing)]

    assert any(part.startswith(b"event: change") for part in asyncio.run(asyncio.wait_for(read(), 60)))
