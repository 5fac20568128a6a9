"""The laws of the work queue under any sequence of calls, with a clock that is moved by hand."""

from __future__ import annotations

import itertools

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from katib.engine.runtime.work_queue import WorkQueue
from katib.errors import Backoff
from tests.support.clock import VirtualClock

KEYS = st.sampled_from("abc")
DELAYS = st.sampled_from([0.0, 1.0, 2.0, 5.0])


class WorkQueueMachine(RuleBasedStateMachine):
    """A model of what is owed: which keys must come out now, which later, which are with a worker."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = VirtualClock()
        self.queue: WorkQueue[str] = WorkQueue(self.clock, retry=Backoff(1, 4))
        self.ready: list[str] = []
        self.again: set[str] = set()
        self.processing: set[str] = set()
        self.delayed: dict[str, tuple[float, int]] = {}  # moment, and number of the call, which orders equal moments
        self.order = itertools.count()
        self.failures = dict.fromkeys("abc", 0)

    def owe(self, key: str) -> None:
        if key in self.processing:
            self.again.add(key)
        elif key not in self.ready:
            self.ready.append(key)

    def owe_later(self, key: str, seconds: float) -> None:
        if seconds <= 0:
            self.owe(key)
        else:
            planned = (self.clock.monotonic() + seconds, next(self.order))
            self.delayed[key] = min(planned, self.delayed.get(key, planned))

    def owe_what_is_due(self) -> None:
        now = self.clock.monotonic()
        for key, (moment, _) in sorted(self.delayed.items(), key=lambda item: item[1]):
            if moment <= now:
                del self.delayed[key]
                self.owe(key)

    @rule(key=KEYS)
    def add(self, key: str) -> None:
        self.queue.add(key)
        self.owe(key)

    @rule(key=KEYS, seconds=DELAYS)
    def add_after(self, key: str, seconds: float) -> None:
        self.queue.add_after(key, seconds)
        self.owe_later(key, seconds)

    @rule(key=KEYS)
    def add_rate_limited(self, key: str) -> None:
        delay = self.queue.add_rate_limited(key)

        assert delay == min(4, 2 ** self.failures[key])
        self.failures[key] += 1
        self.owe_later(key, delay)

    @rule(key=KEYS)
    def forget(self, key: str) -> None:
        self.queue.forget(key)
        self.failures[key] = 0

    @rule(key=KEYS)
    def cancel(self, key: str) -> None:
        self.queue.cancel(key)
        self.delayed.pop(key, None)

    @rule(seconds=st.sampled_from([0.5, 1.0, 3.0]))
    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def get(self) -> None:
        key = self.queue.get(0)

        assert key == (self.ready.pop(0) if self.ready else None)
        assert key not in self.processing
        if key is not None:
            self.processing.add(key)

    @precondition(lambda self: self.processing)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.processing)))
        succeeded = data.draw(st.booleans())
        seconds = self.queue.done(key, succeeded=succeeded)
        self.processing.discard(key)
        self.failures[key] *= not succeeded
        if key in self.again:
            self.again.discard(key)
            self.owe(key)

        assert seconds == self.queue.seconds_to_next()

    @invariant()
    def the_length_is_what_is_owed_now(self) -> None:
        length = len(self.queue)
        self.owe_what_is_due()

        assert length == len(self.ready)

    def teardown(self) -> None:
        """In the end everything owed comes out: nothing is lost."""
        for key in sorted(self.processing):
            self.queue.done(key)
        self.clock.advance(100)
        came = set()
        while (owed := self.queue.get(0)) is not None:
            came.add(owed)
            self.queue.done(owed)

        assert came == {*self.ready, *self.again, *self.delayed}


TestWorkQueueLaws = WorkQueueMachine.TestCase
TestWorkQueueLaws.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
