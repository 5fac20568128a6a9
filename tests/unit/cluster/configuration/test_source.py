"""A broken edit of the KatibConfig never takes away what worked."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from katib.engine.runtime.objects import Key, Kind, Object
from katib.errors import ForbiddenError, KatibError, NotFoundError, UnavailableError
from katib.places.cluster.configuration.source import ConfigSource
from tests.support.clock import VirtualClock
from tests.support.golden import Golden
from tests.support.memory_store import MemoryStore


class File(MemoryStore):
    """A ConfigMap whose text is edited, goes away and comes back; time passes when the test says so."""

    def __init__(self, text: str) -> None:
        super().__init__(())
        self.key, self.text = "katib-config.yaml", text
        self.error: KatibError | None = None
        self.reads = 0
        self.slowly: Callable[[], object] = lambda: None
        self.clock = VirtualClock()
        self.source = ConfigSource(self, "kubeflow", self.clock, fresh_seconds=5)

    def get(self, kind: Kind, key: Key) -> Object:
        assert (kind.kind, str(key)) == ("ConfigMap", "kubeflow/katib-config")
        self.reads += 1
        self.slowly()
        if self.error is not None:
            raise self.error
        return {"data": {self.key: self.text}}

    def image(self) -> str:
        """Return what is in force after the text was looked at again."""
        self.clock.advance(5)
        entry = self.source().suggestion("tpe")
        return "" if entry is None else entry.image


def entry(image: str) -> str:
    return f"runtime: {{suggestions: [{{algorithmName: tpe, image: {image}}}]}}"


def test_an_edit_is_in_force_a_little_later() -> None:
    file = File(entry("old"))
    assert file.image() == "old"

    file.text = entry("new")

    assert file.source().suggestion("tpe").image == "old"  # type: ignore[union-attr]
    assert file.image() == "new"


def test_the_text_is_not_read_at_every_look() -> None:
    file = File(entry("old"))
    for _ in range(100):
        file.source()

    assert file.reads == 1


def test_a_broken_edit_keeps_the_last_good_one_and_is_reported_once(
    caplog: pytest.LogCaptureFixture, golden: Golden
) -> None:
    file = File(entry("old"))
    file.image()
    file.text = "runtime: {suggestions: [{algorithmName: tpe}]}"

    assert [file.image() for _ in range(3)] == ["old"] * 3
    assert caplog.messages == [f"KatibConfig is not usable: {file.source.trouble}"]
    golden(file.source.trouble)

    for good in ("old", "fixed"):
        file.text = entry(good)
        assert file.image() == good
        assert file.source.trouble == ""
        file.text = "]"
        file.image()
        assert file.source.trouble


def test_a_text_that_cannot_be_read_keeps_the_last_good_one(caplog: pytest.LogCaptureFixture) -> None:
    file = File(entry("old"))
    file.image()
    for error in (UnavailableError("away"), NotFoundError("gone"), ForbiddenError("no")):
        file.error = error
        assert file.image() == "old"

    assert [message.rpartition(": ")[2] for message in caplog.messages] == ["away", "gone", "no"]


@pytest.mark.parametrize("why", ["away", "not usable", "it has no key katib-config.yaml"])
def test_until_a_text_is_good_no_caller_learns_that_nothing_is_offered(why: str, golden: Golden) -> None:
    file = File("]")
    file.error = UnavailableError("away") if why == "away" else None
    if "key" in why:
        file.key = "another"

    with golden.raises(UnavailableError):
        file.source()

    file.key, file.text, file.error = "katib-config.yaml", entry("fixed"), None

    assert file.image() == "fixed"


def test_no_caller_waits_for_a_look_that_takes_long_while_there_is_a_good_one() -> None:
    file = File(entry("old"))
    file.source()
    begun, go_on = threading.Event(), threading.Event()
    file.slowly = lambda: (begun.set(), go_on.wait(60))
    file.clock.advance(5)
    looking = threading.Thread(target=file.source)
    looking.start()
    assert begun.wait(60)
    answered = threading.Event()
    asking = threading.Thread(target=lambda: (file.source(), answered.set()), daemon=True)
    asking.start()

    assert answered.wait(60)
    go_on.set()
    looking.join(60)
    asking.join(60)
