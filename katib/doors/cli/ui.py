"""`katib ui`: the page of a running server."""

from __future__ import annotations

import sys
import time
import webbrowser
from html import escape
from pathlib import Path
from urllib.parse import quote

import click

from katib.doors.cli import options
from katib.doors.optuna_storage.server import line_to_copy
from katib.doors.rest.notes import Note, account_directory, running_servers
from katib.doors.rest.sessions import new_ticket
from katib.errors import UnavailableError, invalid
from katib.model.files.whole_files import write_whole
from katib.model.names import name_of_title
from katib.service.tuning.service import DEFAULT_NAMESPACE


@click.command(
    epilog=options.examples(
        "katib ui", "katib ui my-experiment", "katib ui --print", "katib ui --server http://127.0.0.1:9000"
    ),
)
@click.argument("name", type=options.EXPERIMENT_NAME, required=False)
@click.option("--print", "print_only", is_flag=True, help="Print the link and open nothing.")
@click.option(
    "--server",
    envvar="KATIB_SERVER",
    metavar="URL",
    help="The server, if you run several.  [env: KATIB_SERVER]",
)
@options.namespace
@options.data_dir
def ui(name: str | None, print_only: bool, server: str | None, namespace: str | None, data_dir: Path | None) -> int:
    """Open the page of your running server in a browser, or that of one experiment.

    If you run no server and there is a data directory, one is started on it, as by `katib serve`, until you stop it.

    The link lets a browser in without a token, once and within ten minutes; the browser stays signed in after that.
    If the output is not a terminal, only --print prints it. Do not share the link: anyone with it can run commands as
    you.
    """
    directory, server = data_dir or options.default_data_dir(), options.server_meant(server)
    page = f"experiments/{namespace or DEFAULT_NAMESPACE}/{name_of_title(name)}" if name else ""
    notes = running_servers(directory, None if data_dir is not None else account_directory())
    if not notes and server is None and not print_only and options.has_data(directory):
        from katib.doors.cli.serve import serve_page

        return serve_page(directory, lambda link: _show(_noted(directory, data_dir, link), page))
    note = _chosen(notes, server, data_dir)
    if print_only:
        click.echo(_link(note, page))
    else:
        _show(note, page)
    return 0


def _show(note: Note, page: str) -> None:
    """Open a page in a browser, and report it."""
    link = _link(note, page)
    if _open(note, link):
        seen = f"opening the page of {note.url}; if no browser appears, "
    else:
        seen = "no browser can be opened from here; "
    is_shown = sys.stdout.isatty() or not note.link_key
    click.echo(
        f"{seen}open {'this link' if is_shown else 'the link of `katib ui --print`'} yourself{':' * is_shown}", err=True
    )
    if is_shown:
        click.echo(link)
    if note.directory is not None and (line := line_to_copy(note.directory)):
        click.echo(f"a study of Optuna is kept here, and shown there, with storage={line}", err=True)


def _noted(directory: Path, data_dir: Path | None, link: str) -> Note:
    """Return the note of the server that was just started here."""
    notes = running_servers(directory, None if data_dir is not None else account_directory())
    return next(note for note in notes if note.page == link)


def _link(note: Note, page: str) -> str:
    """Return a new one-time login link to a page."""
    link = note.page
    if note.link_key:
        link = f"{link.partition('?')[0]}?ticket={new_ticket(note.link_key, time.time())}"
    if not page:
        return link
    return f"{link}&page={quote(page, safe='')}" if "?" in link else f"{link}{page}"


def _chosen(notes: list[Note], server: str | None, data_dir: Path | None) -> Note:
    found = [note for note in notes if note.page and server in (None, note.url)]
    here = [note for note in found if note.directory == (data_dir or options.default_data_dir())]
    chosen = here or found
    if not chosen:
        which = f" at {server}" if server else f" on {data_dir}" if data_dir is not None else ""
        raise UnavailableError(f"no server of yours runs{which}; start one with `katib serve`")
    if len(chosen) > 1:
        urls = ", ".join(note.url for note in chosen)
        raise invalid("--server", f"several servers run: {urls}", "name one of them", "server-ambiguous")
    return chosen[0]


def _open(note: Note, link: str) -> bool:
    """Open the link in a browser; return whether there is one.

    Other accounts can see the arguments of a browser, so it gets a file that only this account can read.
    """
    path = note.opening_file
    if path is None:
        return False
    try:
        write_whole(path, _forwarding(link), is_private=True)
        return webbrowser.open(path.absolute().as_uri())
    except (OSError, webbrowser.Error):
        return False


def _forwarding(link: str) -> str:
    """Return a page that redirects to a link at once."""
    address = escape(link)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Katib</title>'
        '<meta name="referrer" content="no-referrer">'
        f'<meta http-equiv="refresh" content="0; url={address}"><p><a href="{address}">Open Katib</a></p></html>\n'
    )
