"""Every command and option that a message of ours names exists as printed: a new one fails until it has a case here.

What such a command does is tested where it helps, with the real product: `tests/integration/test_run_again.py`,
`test_watch.py`, `test_ended_experiments.py`.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import click
import pytest

import katib
from katib.doors.cli.app import COMMANDS, cli

ROOT = Path(katib.__file__).parent
_COMMAND = re.compile(r"`(katib [^`]*)`")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")

EXAMPLES = {
    "katib {}": "katib run",
    "katib --help": "katib --help",
    "katib algorithms": "katib algorithms",
    "katib algorithms NAME": "katib algorithms tpe",
    "katib apply": "katib apply -f mine.yaml",
    "katib ask": "katib ask",
    "katib ask {}": "katib ask demo",
    "katib best {}": "katib best demo",
    "katib budget {} --max-trials {}{}": "katib budget demo --max-trials 20 -n team",
    "katib convert FILE": "katib convert sweep.yaml",
    "katib db-manager --key-file": "katib db-manager --key-file key.json",
    "katib db-manager-key": "katib db-manager-key --output key.json",
    "katib delete {}{}": "katib delete demo --context c",
    "katib confirm {}": "katib confirm demo",
    "katib confirm {} --repeats N": "katib confirm demo --repeats 9",
    "katib delete {}": "katib delete demo-confirm",
    "katib get -A": "katib get -A",
    "katib init FILE": "katib init job.yaml",
    "katib get trial {} -o json": "katib get trial demo-1 -o json",
    "katib logs {}{}": "katib logs demo-1 -n team",
    "katib logs TRIAL": "katib logs demo-1",
    "katib metrics TRIAL": "katib metrics demo-1",
    "katib metrics {}": "katib metrics demo-1.1",
    "katib pause {}{}": "katib pause demo --data-dir d",
    "katib release-finalizers": "katib release-finalizers",
    "katib resume {}": "katib resume demo",
    "katib resume {}{}": "katib resume demo-1 -n team",
    "katib run": "katib run",
    "katib run FILE": "katib run FILE",
    "katib run {}": "katib run demo.yaml",
    "katib run {}{}": "katib run demo.yaml --context c",
    "katib serve": "katib serve",
    "katib serve --data-dir {}": "katib serve --data-dir d",
    "katib serve --stop{}": "katib serve --stop --data-dir d",
    "katib serve{}": "katib serve --data-dir d",
    "katib stop NAME": "katib stop demo",
    "katib stop {}": "katib stop demo",
    "katib stop {}{}": "katib stop demo --data-dir d",
    "katib trial add": "katib trial add demo lr=0.1",
    "katib trials {}": "katib trials demo",
    "katib tune": "katib tune",
    "katib tune -p NAME=LOW..HIGH --minimize METRIC -- python {}": "katib tune -p x=1..2 --minimize y -- python a.py",
    "katib tune --timeout SECONDS": "katib tune --timeout 60 -p x=1..2 --minimize loss -- true",
    "katib ui": "katib ui",
    "katib ui --print": "katib ui --print",
    "katib validate FILE": "katib validate demo.yaml",
    "katib watch": "katib watch demo",
    "katib watch {}{}": "katib watch demo --data-dir d",
    "katib why {}": "katib why demo",
}
"""By command as a message writes it, `{}` for what is filled in: the command as it is printed."""

_WITHOUT_ARGUMENTS = {
    "katib ask",
    "katib run",
    "katib tune",
    "katib --help",
    "katib db-manager --key-file key.json",
    "katib db-manager-key --output key.json",
}
"""Names of commands in sentences, and those that need files which are not there."""

_OF_OTHER_PROGRAMS = {"--wait", "--lr", "--layers", "--opt", "--log", "--config", "--all", "--no-"}
"""Options of programs in examples."""


@cache
def texts() -> Sequence[tuple[str, str]]:
    """Return every text of the package that is not a docstring, `{}` for what is filled in, with its file."""
    return [text for path in sorted(ROOT.rglob("*.py")) if "_generated" not in path.parts for text in texts_of(path)]


def texts_of(path: Path) -> Iterator[tuple[str, str]]:
    source, place = path.read_text(), str(path.relative_to(ROOT))
    if "`katib " not in source and not _OPTION.search(source):
        return
    nodes = list(ast.walk(ast.parse(source)))
    skipped = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
            yield place, "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield place, node.value


def all_options() -> set[str]:
    context = click.Context(cli)
    commands = [cli.get_command(context, name) for section in COMMANDS.values() for name in section]
    params = (param for command in (cli, *filter(None, commands)) for param in command.params)
    return {opt for param in params for opt in (*param.opts, *param.secondary_opts)} | {"--help"}


def test_every_printed_command_has_a_case() -> None:
    printed = {command: place for place, text in texts() for command in _COMMAND.findall(text)}

    assert {command: place for command, place in printed.items() if command not in EXAMPLES} == {}, (
        "add to EXAMPLES what these look like"
    )


@pytest.mark.parametrize("line", sorted(set(EXAMPLES.values()) - _WITHOUT_ARGUMENTS))
def test_every_printed_command_is_one_that_can_be_typed(line: str) -> None:
    _, name, *arguments = shlex.split(line)
    command = cli.get_command(click.Context(cli), name)

    assert command is not None
    with command.make_context(name, arguments):  # raises for an option or an argument that there is not
        pass


def test_every_option_that_a_message_of_the_command_line_names_exists() -> None:
    known = all_options()
    named = {
        (place, option)
        for place, text in texts()
        if place.startswith(("cli/", "explaining/", "tuning/"))
        for option in _OPTION.findall(text)
    }

    assert sorted((place, option) for place, option in named if option not in known | _OF_OTHER_PROGRAMS) == []
