"""A browser, a page that is watched, and a server to look at."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from katib.doors.rest.server import Server
from katib.doors.ui import ui_routes
from tests.support.browser import OPTUNA, Watched, open_browser, watch, why_not
from tests.support.tuning import MemoryTuningService

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

HERE = Path(__file__).parent
QUICK = "test_pages.py"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have all but one file run with the slow tests: a browser takes a second or two for each.

    A server of a test ends while its browser is still connected, and the event loop then complains of the connection.
    """
    for item in items:
        if item.path.parent != HERE:
            continue
        item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))
        if item.path.name != QUICK:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for the tests of a file."""
    if reason := why_not():
        pytest.skip(reason)
    with open_browser() as opened:
        yield opened


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """Cookies and settings of one test."""
    made = browser.new_context(viewport={"width": 1280, "height": 900})
    made.set_default_timeout(60_000)  # a busy machine takes long to draw
    yield made
    made.close()


@pytest.fixture
def page(context: BrowserContext) -> Page:
    """An empty page, watched by `watched`."""
    return context.new_page()


@pytest.fixture(autouse=True)
def watched(request: pytest.FixtureRequest) -> Iterator[Watched | None]:
    """What the page did; a test whose page writes errors or asks another machine fails at its end."""
    if "page" not in request.fixturenames:
        yield None
        return
    found = watch(request.getfixturevalue("page"))
    yield found
    found.check()


@pytest.fixture
def service() -> MemoryTuningService:
    """A tuning service in memory."""
    return MemoryTuningService()


@pytest.fixture
def root(service: MemoryTuningService) -> Iterator[str]:
    """The address of the list of experiments of a server that answers for `service`, with a slash at the end."""
    ui = partial(ui_routes, optuna_line=lambda: OPTUNA)
    with Server(service, host="127.0.0.1", port=0, ui=ui) as server:
        yield f"{server.url}/katib/"
