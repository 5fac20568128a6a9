"""Many pages of one browser: they share a connection, so none keeps another from being answered."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from tests.support.tuning import MemoryTuningService, condition, document, make_trial
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

RUNS = condition("Running", "TrialRunning", "Trial is running", at=100)
ADDRESSES = ("experiments/default/demo?tab=trials", "trials/default/demo-run", "")
HIDE = """(hidden) => {
    Object.defineProperty(Document.prototype, "hidden", { configurable: true, get: () => hidden });
    document.dispatchEvent(new Event("visibilitychange"));
}"""


@pytest.fixture
def service(service: MemoryTuningService) -> MemoryTuningService:
    service.submit(document("demo"), source="demo.yaml")
    service.play("default", "demo")
    service.put(make_trial("demo-run", RUNS, index=10, x="0.7"))
    service.write_log("default", "demo-run", b"one\n")
    return service


@pytest.mark.parametrize("hidden", [False, True], ids=["visible", "hidden"])
def test_ten_open_pages_leave_the_eleventh_its_answer(
    root: str, service: MemoryTuningService, context: BrowserContext, page: Page, hidden: bool
) -> None:
    others = [context.new_page() for _ in range(10)]
    for number, other in enumerate(others):
        if hidden:
            other.add_init_script(f"({HIDE})(true)")
        other.goto(root + ADDRESSES[number % len(ADDRESSES)], wait_until="domcontentloaded", timeout=20_000)
    page.goto(root + ADDRESSES[1], wait_until="domcontentloaded", timeout=20_000)
    page.get_by_text("1 line.").wait_for()
    service.write_log("default", "demo-run", b"two\n")

    for one in (page, *([] if hidden else others[1::3])):
        one.get_by_text("2 lines.").wait_for()


def test_a_hidden_page_follows_nothing_and_catches_up_when_it_is_seen(
    root: str, service: MemoryTuningService, page: Page
) -> None:
    page.goto(root + ADDRESSES[1])
    page.get_by_text("1 line.").wait_for()
    page.evaluate(HIDE, True)
    streams = {"katib-stream", "trial default/demo-run"}
    eventually(lambda: not streams & {thread.name for thread in threading.enumerate()}, "its streams to end")
    service.write_log("default", "demo-run", b"two\n")
    page.evaluate(HIDE, False)

    page.get_by_text("2 lines.").wait_for()
