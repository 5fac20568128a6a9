"""Who may look, as a real browser does it: its own rules about cookies, links, frames and scripts decide."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from katib.doors.cli.ui import _forwarding
from katib.doors.rest.server import Server
from katib.doors.ui import ui_routes
from katib.model.types import Experiment
from katib.service.tuning.service import Diagnosis
from tests.support.browser import WIDTHS, Watched, serious_violations, sideways_scroll
from tests.support.hostile import hostile_service
from tests.support.tuning import MemoryTuningService, document
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

TOKEN = "correct horse battery staple"
PAGE = "experiments/default/demo"


@pytest.fixture
def service() -> MemoryTuningService:
    made = MemoryTuningService()
    made.submit(document("demo"), source="demo.yaml")
    made.play("default", "demo")
    made.explain("default", Diagnosis("Experiment", "demo", "Succeeded", "All trials have ended."))
    return made


@pytest.fixture(autouse=True)
def _servers_go_before_the_browser(watched: Watched | None) -> None:
    """It may still ask for an icon then."""
    if watched is not None:
        watched.expected.append("net::ERR_")


@contextmanager
def guarded(service: MemoryTuningService, port: int = 0) -> Iterator[Server]:
    with Server(service, host="127.0.0.1", port=port, token=TOKEN, ui=ui_routes) as server:
        yield server


def root_of(server: Server) -> str:
    """Return the address of the first page under the name that the link gives the server."""
    return server.page.partition("open?")[0]


class Elsewhere:
    """A server of another account on another port: it keeps what it is sent and shows what it was given."""

    def __init__(self) -> None:
        self.cookies: list[str] = []
        self.html = ""
        told = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                told.cookies.append(self.headers.get("cookie") or "")
                self.send_response(200)
                self.send_header("content-type", "text/html")
                self.end_headers()
                self.wfile.write(f"<!doctype html><title>elsewhere</title>{told.html}".encode())

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    made = Elsewhere()
    yield made
    made.close()


def test_the_link_leaves_the_address_bar_and_no_script_sees_the_cookie(
    service: MemoryTuningService, page: Page
) -> None:
    with guarded(service) as server:
        page.goto(server.page)

        assert page.url == root_of(server)
        assert page.title() == "Experiments - Katib"
        assert page.evaluate("document.cookie") == ""
        assert [cookie["name"] for cookie in page.context.cookies()] == [f"katib-{server.port}"]


def test_the_file_of_the_command_opens_the_page(service: MemoryTuningService, page: Page, tmp_path: Path) -> None:
    """Chromium takes the way from a file for one from another site, and keeps the cookie back until we ask again."""
    path = tmp_path / "open.html"
    with guarded(service) as server:
        path.write_text(_forwarding(server.page))
        page.goto(path.as_uri())
        page.wait_for_url(root_of(server))

        assert page.title() == "Experiments - Katib"


def test_a_link_of_another_site_opens_the_page_for_who_is_signed_in(
    service: MemoryTuningService, page: Page, elsewhere: Elsewhere
) -> None:
    with guarded(service) as server:
        page.goto(server.page)
        elsewhere.html = f'<a href="{root_of(server)}{PAGE}">here</a>'
        page.goto(f"http://127.0.0.1:{elsewhere.port}/")
        page.get_by_text("here").click()
        eventually(lambda: page.title() == "demo - Katib")  # a condition in a string would be code to the page


def test_another_port_of_this_machine_never_sees_the_cookie(
    service: MemoryTuningService, page: Page, elsewhere: Elsewhere
) -> None:
    """Browsers send cookies to all ports of a host; nobody knows the host that ours belongs to."""
    with guarded(service) as server:
        page.goto(server.page)
        for host in ("127.0.0.1", "localhost", "katib.localhost"):
            page.goto(f"http://{host}:{elsewhere.port}/")

    assert set(elsewhere.cookies) == {""}


def test_a_page_of_another_site_neither_reads_nor_changes_anything(
    service: MemoryTuningService, page: Page, elsewhere: Elsewhere, watched: Watched
) -> None:
    watched.expected += ["status of 403", "Framing", "frame-ancestors", "CORS policy"]
    with guarded(service) as server:
        page.goto(server.page)
        root = root_of(server)
        elsewhere.html = f'<iframe src="{root}{PAGE}"></iframe>'
        page.goto(f"http://127.0.0.1:{elsewhere.port}/")
        base = f"{root}api/v1/namespaces/default/experiments/demo"
        seen = page.evaluate(
            """async ([base, deletion]) => {
              const attempt = (address, options) => fetch(address, { credentials: "include", ...options })
                .then((answer) => answer.type === "opaque" ? "opaque" : answer.status, () => "refused");
              return [
                await attempt(base), await attempt(base, { mode: "no-cors" }),
                await attempt(base, { method: "DELETE" }),
                await attempt(deletion, { method: "POST", mode: "no-cors", body: "{}" }),
              ];
            }""",
            [base, f"{root}create_experiment/"],
        )
        frame = page.frames[-1]

        assert seen == ["refused", "opaque", "refused", "opaque"]
        assert "demo" not in frame.content()
        assert service.get(Experiment, "default", "demo").name == "demo"
        assert len(service.experiments()) == 1


def test_who_is_signed_in_stays_so_when_the_server_starts_again_and_the_old_link_is_void(
    service: MemoryTuningService, page: Page, watched: Watched
) -> None:
    watched.expected.append("status of 401")
    with guarded(service) as server:
        page.goto(server.page)
        port, old_link = server.port, server.page
    with guarded(service, port) as server:
        page.goto(root_of(server) + PAGE)
        title = page.title()
        page.context.clear_cookies()  # a browser that is signed in comes in by any link
        page.goto(old_link)
        cause = page.get_by_role("alert").inner_text()

    assert title == "demo - Katib"
    assert cause.startswith("This link is not valid any more")


def test_the_token_opens_the_page_that_was_asked_for_and_signing_out_closes_it(
    service: MemoryTuningService, page: Page, watched: Watched
) -> None:
    watched.expected.append("status of 401")
    with guarded(service) as server:
        page.goto(f"{server.url}/katib/{PAGE}")
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        page.get_by_text("That is not the token of this server.").wait_for()
        page.get_by_label("Token").fill(TOKEN)
        page.keyboard.press("Enter")
        page.wait_for_url(f"{server.url}/katib/{PAGE}")
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_url(f"{server.url}/katib/sign-in")

        assert page.context.cookies() == []
        page.goto(f"{server.url}/katib/{PAGE}")
        assert page.title() == "Sign in - Katib"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_way_in_keeps_nobody_out(service: MemoryTuningService, page: Page, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # mypy widens the literal
    page.set_viewport_size({"width": WIDTHS["phone"], "height": 780})
    with guarded(service) as server:
        page.goto(f"{server.url}/katib/sign-in")
        page.wait_for_load_state("load")

        assert serious_violations(page) == []
        assert sideways_scroll(page) == 0
        assert page.evaluate("document.activeElement.id") == "token"


def test_what_is_not_there_says_so(root: str, page: Page, watched: Watched) -> None:
    watched.expected.append("status of 404")
    page.goto(f"{root}experiments/default/ghost")
    page.wait_for_load_state("load")

    assert page.get_by_role("alert").inner_text() == 'experiment "ghost" is not in namespace default'
    assert serious_violations(page) == []


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("#/experiment/default/demo", "experiments/default/demo"),
        ("?ns=default#/experiment/default/demo/", "experiments/default/demo"),
        ("#/experiment/demo/trial/demo-0000", "trials/default/demo-0000"),
        ("?ns=default#/experiment/demo/trial/demo-0000", "trials/default/demo-0000"),
        ("#/new", "new"),
    ],
)
def test_links_to_katibs_page_lead_to_ours(root: str, page: Page, watched: Watched, link: str, expected: str) -> None:
    watched.expected.append("status of 404")  # pages that are asked for here need not be there yet
    page.goto(root + link)
    page.wait_for_url(root + expected)


@pytest.mark.parametrize("link", ["#/experiment/default", "#/experiment/a/b/c/d", "#main", "#/experiment/%ff/x"])
def test_other_links_stay(root: str, page: Page, link: str) -> None:
    page.goto(root + link)
    page.locator("body[data-live]").wait_for()

    assert page.url.partition("#")[0] == root


def test_a_script_in_a_name_a_value_or_a_message_is_text(page: Page, watched: Watched) -> None:
    watched.expected.append("status of 404")  # pages that are asked for here need not be there yet
    service = hostile_service()
    paths = (f"{PAGE}?tab=analysis", "trials/default/demo-0000", "compare?trial=default/demo-0000", PAGE)
    with Server(service, host="127.0.0.1", port=0, ui=ui_routes) as server:
        for path in paths:
            page.goto(f"{server.url}/katib/{path}")
            if path == PAGE:
                page.locator('[data-figure="history"] .chart canvas').first.wait_for()

            assert page.evaluate("window.hacked") is None, path
            assert page.locator("img[src=x]").count() == 0, path
        page.goto("about:blank")  # which ends its streams
