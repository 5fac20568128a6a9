"""A real browser for tests: the system's Chromium, driven by Playwright and watched for what a page must not do."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

OPTUNA = 'GrpcStorageProxy(host="unix:/home/me/<work>/.katib/optuna.sock", port=13000)'
"""What the pages have Optuna's users copy."""
WIDTHS = {"phone": 360, "tablet": 800, "desktop": 1440}
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_LOCAL = frozenset({"127.0.0.1", "localhost", ""})


def chromium() -> str:
    """Return the path of the browser; empty where there is none."""
    return next((found for name in _NAMES if (found := shutil.which(name))), "")


def why_not() -> str:
    """Return why no browser can be driven here; empty where one can."""
    try:
        import playwright  # noqa: F401
    except ImportError:
        return "playwright is not installed"
    return "" if chromium() else "there is no Chromium; install Debian's package chromium"


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Give a browser."""
    from playwright.sync_api import sync_playwright

    sandbox = [] if os.geteuid() else ["--no-sandbox"]  # Chromium has none for root
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium(), args=["--disable-dev-shm-usage", *sandbox])
        try:
            yield browser
        finally:
            browser.close()


@dataclass(slots=True)
class Watched:
    """What a page did that it must not do.

    Attributes:
        errors: Of its scripts, and what it wrote to the console as an error.
        foreign: Addresses of other machines that it asked.
        expected: Parts of messages that a test causes on purpose.
    """

    errors: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)

    def check(self) -> None:
        """Raise if it did anything of that."""
        errors = [error for error in self.errors if not any(part in error for part in self.expected)]
        assert not errors, f"errors in the browser: {errors}"
        assert not self.foreign, f"requests that leave the machine: {self.foreign}"


def watch(page: Page) -> Watched:
    """Watch a page from now on."""
    watched = Watched()
    page.on("pageerror", lambda error: watched.errors.append(str(error)))
    page.on(
        "console",
        lambda message: (
            watched.errors.append(f"{message.text} {message.location}") if message.type == "error" else None
        ),
    )
    page.on("request", lambda request: _note(request.url, watched.foreign))
    return watched


def _note(url: str, foreign: list[str]) -> None:
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme in ("http", "https", "ws", "wss") and host not in _LOCAL and not host.endswith(".localhost"):
        foreign.append(url)


def serious_violations(page: Page) -> list[str]:
    """Return what axe-core finds on a page that keeps people from using it, a line each.

    Landmarks of one name count, too: a screen reader lists them, and they cannot be distinguished.
    """
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [
        f"{violation['id']}: {node['html'][:200]} ({violation['help']})"
        for violation in found
        if violation["impact"] in ("serious", "critical") or violation["id"] == "landmark-unique"
        for node in violation["nodes"]
    ]


def sideways_scroll(page: Page) -> int:
    """Return how many pixels a page is wider than its window; 0 where nobody has to scroll sideways."""
    wider: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return wider
