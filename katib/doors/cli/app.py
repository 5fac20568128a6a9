"""The `katib` command: the list of its commands, and the exit code for every way in which one can end."""

from __future__ import annotations

import difflib
import gc
import importlib
import os
import sys
from collections.abc import Sequence
from keyword import iskeyword
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from katib.wire.rpc import keep_connections_quiet

INTERRUPTED = 130
_BROKEN_PIPE = 141
_OBJECTS_BETWEEN_COLLECTIONS = 20_000  # Python's own 700 starts 150 collections during imports alone


class _Entry(NamedTuple):
    """The module of a command, and its line in the list of commands, which needs no import."""

    module: str
    summary: str


COMMANDS: dict[str, dict[str, _Entry]] = {
    "On this machine": {
        "init": _Entry("katib.doors.cli.init", "Write an experiment file from five answers."),
        "run": _Entry("katib.doors.cli.run.command", "Run an experiment here, to its end."),
        "tune": _Entry("katib.doors.cli.tune", "Tune a program from one line, without a file."),
        "confirm": _Entry("katib.doors.cli.confirm", "Run the best configurations again: how sure is the result?"),
        "watch": _Entry("katib.doors.cli.watch", "Follow a running experiment."),
        "serve": _Entry("katib.doors.cli.serve", "Run experiments here as a server."),
        "kubeconfig": _Entry("katib.doors.cli.about", "Print the line that points kubectl to a server here."),
        "ui": _Entry("katib.doors.cli.ui", "Open the page of a running server in a browser."),
        "mcp": _Entry("katib.doors.cli.mcp", "Offer experiments to an assistant, as tools of MCP."),
        "convert": _Entry(
            "katib.doors.cli.init", "Print the experiment file of a sweep of Weights & Biases, or of v1alpha3."
        ),
        "validate": _Entry("katib.doors.cli.submitting", "Check experiment files and store nothing."),
        "algorithms": _Entry("katib.doors.cli.algorithms", "List the algorithms and their settings."),
    },
    "Experiments of a server, a data directory or a cluster": {
        "apply": _Entry("katib.doors.cli.submitting", "Submit experiments, or resume or update them."),
        "get": _Entry("katib.doors.cli.get", "List experiments, trials or suggestions, or show one."),
        "describe": _Entry("katib.doors.cli.explaining", "Show an experiment or a trial in detail."),
        "why": _Entry("katib.doors.cli.explaining", "Explain why something does not progress, or how it ended."),
        "best": _Entry("katib.doors.cli.results", "Show the best trial of an experiment."),
        "trials": _Entry("katib.doors.cli.results", "List the trials of an experiment."),
        "metrics": _Entry("katib.doors.cli.metrics", "Show the metrics that a trial reported."),
        "plot": _Entry("katib.doors.cli.plot", "Write figures of an experiment to a file."),
        "export": _Entry("katib.doors.cli.export", "Write an experiment to one file, as its page or a table."),
        "import": _Entry("katib.doors.cli.importing", "Import the trials of another program."),
        "replay": _Entry("katib.doors.cli.replay", "Show what early stopping would have saved."),
        "logs": _Entry("katib.doors.cli.results", "Print the output of a trial."),
        "ask": _Entry("katib.doors.cli.asking", "Get a trial to evaluate yourself."),
        "tell": _Entry("katib.doors.cli.asking", "End a trial that you evaluated."),
        "trial": _Entry("katib.doors.cli.editing", "Add a trial by hand."),
        "budget": _Entry("katib.doors.cli.editing", "Change the number of trials, at once and in all."),
        "stop": _Entry("katib.doors.cli.editing", "Start no further trials of an experiment."),
        "tag": _Entry("katib.doors.cli.editing", "Set tags and notes of an experiment or a trial."),
        "pause": _Entry("katib.doors.cli.editing", "Pause a trial or an experiment: programs end, and continue later."),
        "resume": _Entry("katib.doors.cli.editing", "Resume a stopped or paused experiment or trial."),
        "delete": _Entry("katib.doors.cli.submitting", "Delete experiments with all their data."),
    },
    "On Kubernetes": {
        "controller": _Entry("katib.doors.cli.controller", "Run the controller of a cluster."),
        "db-manager": _Entry("katib.doors.cli.db_manager", "Serve the metrics of trials from a database."),
        "db-manager-key": _Entry("katib.doors.cli.installation", "Fetch the key of the DB manager's tokens."),
        "release-finalizers": _Entry(
            "katib.doors.cli.installation", "Release deleted experiments when the controller is gone."
        ),
    },
    "Other": {
        "completion": _Entry("katib.doors.cli.about", "Print a script that completes commands in your shell."),
        "version": _Entry("katib.doors.cli.about", "Print the version."),
    },
}

_OF_OTHERS = {
    "agent": "run",
    "annotate": "tag",
    "config": "kubeconfig",
    "create": "apply",
    "dashboard": "ui",
    "edit": "budget",
    "events": "describe",
    "label": "tag",
    "list": "get",
    "ls": "get",
    "optimize": "tune",
    "patch": "budget",
    "ps": "get",
    "scale": "budget",
    "show": "describe",
    "status": "get",
    "submit": "apply",
    "suspend": "pause",
    "sweep": "convert",
    "wait": "watch",
}
"""Commands of kubectl and other tools, and our counterparts."""

_EPILOG = """\b
Start with an experiment file:
  katib run experiment.yaml         run it here and watch
  katib best my-experiment          show the result
  katib why my-experiment           why it waits, or how it ended
"""


class _ReaderLeftError(Exception):
    """The reader of standard output has closed it; click's own exit code for the error would be 1."""


class _Commands(click.Group):
    """A group that imports a command when it is called, and suggests one for a misspelled name."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - the signature is click's
        return [name for section in COMMANDS.values() for name in section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        """Import a command: the function of its name in its module, with an underscore appended to a Python keyword."""
        for section in COMMANDS.values():
            if cmd_name in section:
                module = importlib.import_module(section[cmd_name].module)
                attribute = cmd_name.replace("-", "_")
                command: click.Command = getattr(module, f"{attribute}_" if iskeyword(attribute) else attribute)
                return command
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or suggest the one that was probably meant."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            near = [_OF_OTHERS[name]] if name in _OF_OTHERS else []
            near = near or difflib.get_close_matches(name, self.list_commands(ctx), n=1)
            remedy = f"did you mean `katib {near[0]}`?" if near else "`katib --help` lists all commands"
            raise click.UsageError(f'there is no command "{name}"; {remedy}')
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Raises _ReaderLeftError if its output is not read to the end."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _ReaderLeftError from error

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the names of commands without importing any."""
        entries = {name: entry for section in COMMANDS.values() for name, entry in section.items()}
        names = [CompletionItem(name, help=entries[name].summary) for name in entries if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        """Write the list of commands without importing any."""
        for title, section in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl([(name, entry.summary) for name, entry in section.items()], col_max=18)


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from katib.doors.cli.about import version

        ctx.invoke(version)
        ctx.exit()


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=_EPILOG,
)
@click.option(
    "-V",
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version.",
)
def cli() -> None:
    """Tune hyperparameters: run experiments on this machine, or use a server that runs them."""


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 succeeded, 1 failed, 2 bad input, 130 interrupted.

    Args:
        args: Arguments, if called from another program; None takes those of this process, which is the command.
    """
    if args is not None:
        return _run(list(args))
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, as by `>&-`; the next opened file would get its number
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115 - until the process ends
    try:
        return _run(sys.argv[1:])
    finally:
        gc.freeze()  # an ending process needs no last collection


def _run(typed: list[str]) -> int:
    keep_connections_quiet(os.environ)
    try:
        result: Any = cli.main(args=typed, prog_name="katib", standalone_mode=False, obj=typed)
        sys.stdout.flush()
    except click.UsageError as error:
        from katib.doors.cli import failures

        return failures.show_usage(error)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except (_ReaderLeftError, BrokenPipeError):
        # The reader has seen enough. Buffered output must not fail again while Python shuts down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except Exception as error:  # noqa: BLE001 - the last wall: everything ends in an exit code and a readable line
        from katib.doors.cli import failures

        return failures.show(error)
    return result if isinstance(result, int) else 0
