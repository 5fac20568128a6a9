"""`katib ui`: which server's page is opened, and that nobody else learns the link."""

from __future__ import annotations

import json
import stat
import sys
import time
import webbrowser
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from katib.doors.rest.notes import noted
from katib.doors.rest.sessions import Sessions
from tests.support.golden import Golden
from tests.unit.cli.conftest import Katib

LINK = "http://katib-0123456789abcdef.localhost:{port}/katib/open?ticket=t"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def run_server(stack: ExitStack, port: int, *directories: Path, page: str = LINK, link_key: str = "") -> None:
    """Leave the notes of a server, as it does while it runs."""
    url, page = f"http://127.0.0.1:{port}", page.format(port=port)
    stack.enter_context(noted(url, None, *directories, page=page, link_key=link_key))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a browser was asked to open."""
    asked: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: bool(asked.append(url) or True))
    return asked


def test_the_link_of_the_running_server_is_printed_from_any_directory(
    katib: Katib, running: ExitStack, tmp_path: Path
) -> None:
    run_server(running, 9000, tmp_path / "elsewhere", tmp_path / "state" / "katib")
    assert katib("ui", "--print") == (0, LINK.format(port=9000) + "\n", "")

    run_server(running, 8765, tmp_path / ".katib", link_key="key of this start")
    base, _, ticket = katib("ui", "--print").out.strip().partition("?ticket=")

    assert base == LINK.format(port=8765).partition("?")[0]
    assert Sessions(b"secret", "key of this start").use_ticket(ticket, time.time())


def test_the_browser_gets_a_file_that_only_this_account_reads_and_that_goes_with_the_server(
    katib: Katib, tmp_path: Path, opened: list[str]
) -> None:
    """Other accounts see the arguments of a browser."""
    with ExitStack() as stack:
        run_server(stack, 8765, tmp_path / ".katib")
        result = katib("ui")
        path = Path(opened[0].removeprefix("file://"))
        text, mode = path.read_text(), stat.S_IMODE(path.stat().st_mode)

    assert result.code == 0
    assert "ticket" not in opened[0]
    assert path == tmp_path / ".katib" / "open-8765.html"
    assert mode == 0o600
    assert f"url={LINK.format(port=8765)}" in text
    assert list((tmp_path / ".katib").iterdir()) == []


def test_where_no_browser_can_be_opened_the_link_is_printed(
    katib: Katib, running: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda _url: False)
    run_server(running, 8765, tmp_path / ".katib")
    result = katib("ui")

    assert (result.code, result.out) == (0, LINK.format(port=8765) + "\n")
    golden(result.err)


def test_no_server_that_runs_is_said_with_how_to_start_one(
    katib: Katib, opened: list[str], tmp_path: Path, golden: Golden
) -> None:
    result = katib("ui")

    assert (result.code, opened) == (1, [])
    golden(result.err)

    # another account may listen there now, in wait for the link
    note = {"url": "http://127.0.0.1:8765", "machine": "here", "tokenFile": None, "page": LINK.format(port=8765)}
    (tmp_path / ".katib" / "server-8765.json").write_text(json.dumps(note))

    assert katib("ui").code == 1
    assert opened == []


def test_the_server_of_the_data_directory_comes_first_and_of_several_one_is_named(
    katib: Katib, running: ExitStack, tmp_path: Path, golden: Golden
) -> None:
    account = tmp_path / "state" / "katib"
    run_server(running, 9001, tmp_path / "a", account)
    run_server(running, 9002, tmp_path / "b", account)
    unsure = katib("ui", "--print")
    named = katib("ui", "--print", "--server", "http://127.0.0.1:9002")
    by_directory = katib("ui", "--print", "--data-dir", str(tmp_path / "a"))
    run_server(running, 9003, tmp_path / ".katib", account)
    here = katib("ui", "--print")

    assert unsure.code == 2
    golden(unsure.err)
    assert [result.out for result in (named, by_directory, here)] == [
        LINK.format(port=port) + "\n" for port in (9002, 9001, 9003)
    ]


@pytest.mark.parametrize("is_terminal", [True, False], ids=["terminal", "file"])
def test_a_link_that_lets_in_is_printed_on_a_terminal_only(
    katib: Katib, running: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda _url: False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    run_server(running, 8765, tmp_path / ".katib", link_key="key of this start")
    result = katib("ui")

    assert ("?ticket=" in result.out + result.err, "`katib ui --print`" in result.err) == (is_terminal, not is_terminal)


@pytest.mark.parametrize("option", [("--data-dir", "nothing"), ("--server", "http://127.0.0.1:1")])
def test_a_server_that_does_not_run_is_not_replaced_by_another(
    katib: Katib, running: ExitStack, tmp_path: Path, option: tuple[str, str], golden: Golden
) -> None:
    run_server(running, 8765, tmp_path / "state" / "katib")
    result = katib("ui", "--print", *option)

    assert result.code == 1
    golden(result.err)


def test_a_server_without_a_page_is_not_opened(katib: Katib, running: ExitStack, tmp_path: Path) -> None:
    run_server(running, 8765, tmp_path / ".katib", page="")

    assert katib("ui", "--print").code == 1
