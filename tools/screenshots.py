"""Make the pictures of the page in docs/images, with the Chromium of the system.

`python -m tools.screenshots [NAME...]` makes all pictures, or those named. `--look DIRECTORY` makes pictures of every
page at two widths, light and dark, for a person who changes the page.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from katib.rest.server import Server
from katib.ui import ui_routes
from tests.support.browser import open_browser, why_not
from tools.shown_experiments import shown_service

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
LAPTOP, PHONE = (1366, 768), (360, 780)
HEIGHT = "document.documentElement.scrollHeight"


@dataclass(frozen=True, slots=True)
class Shot:
    """One picture: a page below the root, the size of the window, and what is scrolled to its top."""

    page: str
    size: tuple[int, int] = LAPTOP
    scheme: str = "light"
    top: str = ""


_DIGITS = "experiments/default/digits"
SHOTS = {
    "experiment": Shot(_DIGITS),
    "dark": Shot(_DIGITS, scheme="dark"),
}


def main(arguments: Sequence[str]) -> int:
    """Make pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SHOTS))
    parser.add_argument("--look", type=Path, metavar="DIRECTORY")
    asked = parser.parse_args(arguments)
    if unknown := set(asked.names) - set(SHOTS):
        parser.error(f"there is no picture {', '.join(sorted(unknown))}; there are {', '.join(SHOTS)}")
    if reason := why_not():
        print(reason, file=sys.stderr)
        return 1
    with Server(shown_service(), host="127.0.0.1", port=0, ui=ui_routes) as server, open_browser() as browser:
        root = f"{server.url}/katib/"
        if asked.look:
            look(browser, root, asked.look)
        else:
            for name in asked.names or SHOTS:
                shoot(browser, root, SHOTS[name], IMAGES / f"{name}.png")
    return 0


def shoot(browser: Browser, root: str, shot: Shot, path: Path, *, whole: bool = False) -> None:
    """Make one picture."""
    width, height = shot.size
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=shot.scheme)  # type: ignore[arg-type]  # a literal
    page.goto(root + shot.page)
    settle(page)
    if shot.top:
        page.locator(shot.top).first.evaluate("element => element.scrollIntoView({block: 'start'})")
        settle(page)
    if whole:  # figures are drawn where they are seen
        page.set_viewport_size({"width": width, "height": page.evaluate(HEIGHT)})
        settle(page, 2_500)
        page.set_viewport_size({"width": width, "height": page.evaluate(HEIGHT)})
    page.screenshot(path=path)
    print(f"{path}: {path.stat().st_size // 1024} KB")
    page.close()


LOOKED: dict[str, str] = {
    "list": "",
    "small": _DIGITS,
    "large": "experiments/default/resnet-sweep",
    "several": "experiments/default/edge-models",
    "running": "experiments/default/augmentation",
}


def look(browser: Browser, root: str, directory: Path) -> None:
    """Make pictures of pages whole, at two widths, light and dark."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, page in LOOKED.items():
        for scheme, size in (("light", LAPTOP), ("dark", PHONE), ("dark", LAPTOP), ("light", PHONE)):
            for tab in ("overview", "analysis") if page else ("",):
                shot = Shot(f"{page}?tab={tab}" if tab else page, size, scheme)
                shoot(browser, root, shot, directory / f"{name}{tab}-{size[0]}-{scheme}.png", whole=True)


def settle(page: Page, milliseconds: int = 1_500) -> None:
    """Wait until figures are drawn."""
    page.wait_for_load_state("load")
    page.wait_for_timeout(milliseconds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
