"""Create the pictures of the page in docs/images, with the Chromium of the system.

The experiment of README.md and the notebook are run for it, which takes a minute; the others are synthetic.

`python -m tools.screenshots [NAME...]` creates all pictures, or the named ones. `--look DIRECTORY` creates pictures of
whole pages at two widths, light and dark, for reviewing changes of the page.
"""

# ruff: noqa: S310, S603  # the developer's own programs and addresses

from __future__ import annotations

import argparse
import html
import json
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from base64 import b64decode, b64encode
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import numpy as np

from katib.doors.rest.server import Server
from katib.doors.ui import ui_routes
from katib.doors.ui.assets import PLOTLY, read_asset
from tests.support.browser import open_browser, why_not
from tests.support.ports import free_port
from tools.shown_experiments import shown_service

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

KATIB = str(Path(sys.executable).with_name("katib"))
EXAMPLE = "examples/digits/experiment.yaml"
IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
LAPTOP, PHONE = (1366, 768), (360, 780)
HEIGHT = "document.documentElement.scrollHeight"
PIXELS = """async (address) => {
  const image = new Image();
  image.src = address;
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height);
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const bytes = context.getImageData(0, 0, image.width, image.height).data;
  let text = "";
  for (let at = 0; at < bytes.length; at += 32768) text += String.fromCharCode(...bytes.subarray(at, at + 32768));
  return [image.width, image.height, btoa(text)];
}"""
MOST_COLOURS = 256


@dataclass(frozen=True, slots=True)
class Shot:
    """One picture.

    Attributes:
        page: Path below the root.
        size: Size of the window.
        scheme: Light or dark.
        keys: Keys pressed before.
        example: Whether the experiment is the one of README.md, which is run.
    """

    page: str
    size: tuple[int, int] = LAPTOP
    scheme: str = "light"
    keys: tuple[str, ...] = ()
    example: bool = False


_DIGITS = "experiments/default/digits"
SHOTS = {
    "experiment": Shot(_DIGITS, example=True),
    "dark": Shot("experiments/default/edge-models", scheme="dark"),
    "table": Shot("experiments/default/resnet-sweep?tab=trials&sort=loss", keys=("j", "x", "j", "j", "x")),
    "analysis": Shot("experiments/default/resnet-sweep?tab=analysis", size=(1366, 1030)),
    "list": Shot("", size=(1366, 560)),
    "phone": Shot(_DIGITS, size=PHONE, example=True),
}
NOTEBOOK = "notebook"
CELLS = (
    """import katib

def train(lr, layers, optimizer):
    return 1 / (1 + abs(lr - 0.02) * 20 + abs(layers - 3) / 9 + 0.1 * (optimizer == "sgd"))

result = katib.tune(
    train,
    {
        "lr": katib.search.double(1e-4, 1e-1, log=True),
        "layers": katib.search.int(1, 6),
        "optimizer": katib.search.categorical(["adam", "sgd"]),
    },
    objective="accuracy", direction="maximize", max_trials=24, parallel=4, name="notebook",
)""",
    "result.plots.history()",
)
PAPER = """<style>body { font: 14px system-ui, sans-serif; margin: 16px 24px } pre { background: #f6f8fa;
border: 1px solid #d0d7de; padding: 10px 14px; font: 13px/1.45 ui-monospace, monospace }</style>"""
LOOKED = {
    "list": "",
    "small": _DIGITS,
    "large": "experiments/default/resnet-sweep",
    "several": "experiments/default/edge-models",
    "running": "experiments/default/augmentation",
}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join((*SHOTS, NOTEBOOK)))
    parser.add_argument("--look", type=Path, metavar="DIRECTORY")
    asked = parser.parse_args(arguments)
    names = asked.names or [*SHOTS, NOTEBOOK]
    if unknown := set(names) - {*SHOTS, NOTEBOOK}:
        parser.error(f"there is no picture {', '.join(sorted(unknown))}; there are {', '.join(SHOTS)}, {NOTEBOOK}")
    if reason := why_not():
        print(reason, file=sys.stderr)
        return 1
    with ExitStack() as stack:
        server = stack.enter_context(Server(shown_service(), host="127.0.0.1", port=0, ui=ui_routes))
        browser = stack.enter_context(open_browser())
        root = f"{server.url}/katib/"
        if asked.look:
            look(browser, root, asked.look)
            return 0
        for name in names:
            path = IMAGES / f"{name}.png"
            if name == NOTEBOOK:
                shoot_notebook(browser, path)
            else:
                shoot(browser, example_root(stack) if SHOTS[name].example else root, SHOTS[name], path)
            shrink(browser, path)
            print(f"{path.relative_to(IMAGES.parent.parent)}: {path.stat().st_size // 1024} KB")
    return 0


@cache
def example_root(stack: ExitStack) -> str:
    """Run the experiment of README.md, and return the root of its pages while the stack is open."""
    data = stack.enter_context(tempfile.TemporaryDirectory())
    subprocess.run([KATIB, "run", EXAMPLE, "--data-dir", data], check=True, stdout=subprocess.DEVNULL)
    port = free_port()
    server = subprocess.Popen([KATIB, "serve", "--data-dir", data, "--no-token", "--port", str(port)])
    stack.callback(server.wait)
    stack.callback(server.terminate)
    root = f"http://127.0.0.1:{port}"
    while True:
        with suppress(OSError), urlopen(f"{root}/healthz"):
            return f"{root}/katib/"
        time.sleep(0.2)


def shoot(browser: Browser, root: str, shot: Shot, path: Path, *, whole: bool = False) -> None:
    """Create one picture, of the window or of the whole page."""
    width, height = shot.size
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=shot.scheme)  # type: ignore[arg-type]  # a literal
    page.goto(root + shot.page)
    settle(page)
    for key in shot.keys:
        page.keyboard.press(key)
    if whole:  # figures are drawn when they are visible
        page.set_viewport_size({"width": width, "height": page.evaluate(HEIGHT)})
        settle(page)
        page.set_viewport_size({"width": width, "height": page.evaluate(HEIGHT)})
    page.screenshot(path=path)
    page.close()


def settle(page: Page, milliseconds: int = 4_000) -> None:
    """Wait until figures are drawn."""
    page.wait_for_load_state("load")
    page.wait_for_timeout(milliseconds)


def look(browser: Browser, root: str, directory: Path) -> None:
    """Create pictures of whole pages, at two widths, light and dark."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, page in LOOKED.items():
        for scheme, size in (("light", LAPTOP), ("dark", PHONE), ("dark", LAPTOP), ("light", PHONE)):
            for tab in ("overview", "analysis") if page else ("",):
                shot = Shot(f"{page}?tab={tab}" if tab else page, size, scheme)
                shoot(browser, root, shot, directory / f"{name}{tab}-{size[0]}-{scheme}.png", whole=True)


def shoot_notebook(browser: Browser, path: Path) -> None:
    """Run a notebook, and create a picture of its cells and outputs."""
    import nbclient
    import nbformat

    sources = ("import sys; sys.modules['ipywidgets'] = None", *CELLS)  # a bar as HTML, which a picture can show
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    with tempfile.TemporaryDirectory() as directory:
        nbclient.NotebookClient(book, timeout=300, resources={"metadata": {"path": directory}}).execute()
    page = browser.new_page(viewport={"width": 900, "height": 860})
    cells = (
        f"<pre>{html.escape(cell.source)}</pre>{''.join(map(output_html, cell.outputs))}" for cell in book.cells[1:]
    )
    page.set_content(PAPER + "".join(cells))
    page.add_script_tag(content=read_asset(PLOTLY).body.decode())
    page.evaluate(
        "document.querySelectorAll('[data-figure]').forEach((element) => {"
        "const { data, layout } = JSON.parse(element.dataset.figure); Plotly.newPlot(element, data, layout); })"
    )
    settle(page, 1_000)
    page.screenshot(path=path)
    page.close()


def output_html(output: Any) -> str:
    data = output.get("data", {})
    if figure := data.get("application/vnd.plotly.v1+json"):
        return f'<div data-figure="{html.escape(json.dumps(figure))}"></div>'
    return str(data.get("text/html", ""))


def shrink(browser: Browser, path: Path) -> None:
    """Write a picture with a palette of its most frequent colours, a third as large."""
    page = browser.new_page()
    address = f"data:image/png;base64,{b64encode(path.read_bytes()).decode()}"
    width, height, text = page.evaluate(PIXELS, address)
    page.close()
    pixels = np.frombuffer(b64decode(text), dtype=np.uint8).reshape(-1, 4)[:, :3].astype(np.int64)
    colours, inverse, counts = np.unique(
        pixels @ np.array([65_536, 256, 1]), return_inverse=True, return_counts=True, axis=0
    )
    parts = np.stack((colours >> 16, colours >> 8 & 255, colours & 255), axis=1)
    palette = parts[_spread(parts, counts)]
    nearest = np.concatenate(
        [((block[:, None] - palette) ** 2).sum(axis=2).argmin(axis=1) for block in np.array_split(parts, 64)]
    )
    rows = nearest[inverse].astype(np.uint8).reshape(height, width)
    lines = b"".join(b"\0" + row.tobytes() for row in rows)
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"PLTE", palette.astype(np.uint8).tobytes()), (b"IDAT", zlib.compress(lines, 9)))
    body = b"".join(_chunk(kind, data) for kind, data in (*chunks, (b"IEND", b"")))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)


def _spread(parts: Any, counts: Any) -> Any:
    """Return representative colours: the most frequent of each small part of the colour space."""
    order = np.argsort(-counts, kind="stable")
    for size in range(1, 65):
        cells = (parts[order] // size) @ np.array([65_536, 256, 1])
        first = np.sort(np.unique(cells, return_index=True)[1])
        if len(first) <= 4 * MOST_COLOURS:
            break
    return order[first[:MOST_COLOURS]]


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
