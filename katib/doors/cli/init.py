"""`katib init` and `katib convert`: an experiment file from five answers, or from the file of another tool."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click

from katib.doors.cli import options
from katib.errors import invalid, one_line
from katib.service.drafting import (
    Search,
    direction_of,
    draft,
    for_file,
    found_command,
    metrics_of_output,
    parse_parameter,
    program_of,
    typed_command,
)
from katib.service.tuning.service import Json

_FILE = "experiment.yaml"
_TRY_SECONDS = 60
_MOST_AT_ONCE = 4
_COMMENTS = {
    "  objective:": "What to optimize: a metric that the program prints as name=value or name: value.",
    "  algorithm:": "How values are chosen: `katib algorithms` lists all ways.",
    "  maxTrialCount:": "The budget: how many trials in all, and how many at once.",
    "  resumePolicy:": "FromVolume lets the experiment continue with a larger budget.",
    "  parameters:": "The search space: one entry for each parameter.",
    "  trialTemplate:": "What a trial runs; ${trialParameters.NAME} becomes the value of a parameter.",
}


@click.command(
    context_settings={"ignore_unknown_options": True},
    epilog=options.examples(
        "katib init",
        "katib init -p lr=1e-4..1e-1:log --maximize accuracy --yes -- python train.py",
        "katib init --minimize loss --yes job.yaml",
    ),
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@click.option("--command", "line", metavar="LINE", help="Command of one training run, such as 'python train.py'.")
@click.option("-p", "--param", "parameters", multiple=True, metavar="NAME=VALUES", help="As for katib tune.")
@click.option("--where", multiple=True, metavar="COMPARISON", help="As for katib tune.")
@click.option("--maximize", metavar="METRIC", help="The metric to maximize.")
@click.option("--minimize", metavar="METRIC", help="The metric to minimize.")
@click.option("--trials", type=click.IntRange(min=1), metavar="N", help="Number of trials to run.  [default: 20]")
@click.option(
    "--file",
    default=Path(_FILE),
    show_default=True,
    type=options.HomePath(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The file to write.",
)
@click.option("-y", "--yes", is_flag=True, help="Ask nothing: use the options and the values found in the script.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
def init(
    words: tuple[str, ...],
    line: str | None,
    parameters: tuple[str, ...],
    where: tuple[str, ...],
    maximize: str | None,
    minimize: str | None,
    trials: int | None,
    file: Path,
    yes: bool,
    force: bool,
) -> int:
    """Write an experiment file from five answers: command, parameters, metric, direction and budget.

    The command may be a job file, job.yaml. Parameters are found in the script, if it declares them by argparse or
    click, in its --help output, in a configuration file that the command names, or in the options of the job. To find
    the metric, the command runs once, with the first value of each. Without a terminal, or with --yes, nothing is
    asked.
    """
    if words:
        options.refuse_as_command(words[0])
    if words and line:
        raise click.UsageError(
            "--command contradicts the command behind --; leave one out", click.get_current_context()
        )
    if maximize and minimize:
        raise click.UsageError("--maximize contradicts --minimize; leave one out", click.get_current_context())
    if file.exists() and not force:
        raise invalid(str(file), "it is there already", "add --force, or choose another one with --file", "file-exists")
    ask = _Questions(may_ask=not yes and sys.stdin.isatty() and sys.stderr.isatty())
    line = line or " ".join(words) or ask("Command that trains once", found_command(), "-- COMMAND")
    program = program_of(typed_command(words, line), options.read_file)
    found = [] if parameters else program.options(lambda command: _output(command)[0])
    texts = parameters or shlex.split(ask("Parameters", " ".join(map(str, found)), "-p NAME=VALUES"))
    space = [parse_parameter(text) for text in texts]
    program, note = program.with_placeholders(space)
    space, today = program.with_defaults(space, where)
    for line in filter(None, (note, today)):
        click.echo(f"note: {line}", err=True)
    metric = (
        maximize
        or minimize
        or ask("Metric", "" if program.job else _metric_of(program.first_trial(space), space), "--maximize METRIC")
    )
    way = "maximize" if maximize else "minimize" if minimize else ask("Direction", direction_of(metric), "--minimize")
    if way not in ("maximize", "minimize"):
        raise invalid("direction", f"{way!r} is neither maximize nor minimize", "write one of these", "direction")
    count = trials or int(ask("Trials", "20", "--trials", check=click.IntRange(min=1).convert))
    search = Search({metric: way}, count, min(os.cpu_count() or 1, _MOST_AT_ONCE), where=where)
    template = program.template(space)
    for note in template.notes:
        click.echo(f"note: {note}", err=True)
    lines = _with_comments(draft(template.name, search, space, template.template), file)
    options.write_file(file, "\n".join(lines) + "\n", "--file")
    click.echo(f"{file} is written; `katib run {shlex.quote(str(file))}` runs it")
    return 0


class _Questions:
    """Asks at the terminal, or takes the values found."""

    def __init__(self, *, may_ask: bool) -> None:
        self._may_ask = may_ask

    def __call__(self, question: str, found: str, option: str, *, check: Callable[..., object] | None = None) -> str:
        """Return the answer to a question.

        Args:
            found: The default; empty if nothing was found.
            check: Raises for a wrong answer.

        Raises:
            InvalidError: Nothing was found, and there is no terminal to ask at.
        """
        if self._may_ask:
            answer: str = click.prompt(question, default=found or None, err=True)
        elif found:
            answer = found
        else:
            raise invalid(question.lower(), "is not found in the script or its output", f"give {option}", "init-answer")
        if check is not None:
            check(answer, None, click.get_current_context())
        return answer


def _metric_of(words: Sequence[str], space: Sequence[Json]) -> str:
    """Return the likeliest objective in a command's output; empty if it prints no metric."""
    click.echo(f"running it once to see what it prints: {shlex.join(words)}", err=True)
    output, failure = _output(words)
    found = metrics_of_output(output, [str(parameter["name"]) for parameter in space])
    if failure:
        click.echo(f"note: {failure}", err=True)
    elif not found:
        click.echo("note: it printed no line such as name=0.5", err=True)
    return next(iter(found), "")


def _output(command: Sequence[str]) -> tuple[str, str]:
    """Return the combined output of a command, as trials have it, and the cause of its failure, if any."""
    wide = {**os.environ, "COLUMNS": "500", "NO_COLOR": "1", "TERMINAL_WIDTH": "500"}  # keeps help from wrapping
    try:
        done = subprocess.run(  # noqa: S603 - the user's own command
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_TRY_SECONDS,
            check=False,
            env=wide,
        )
    except subprocess.TimeoutExpired as error:
        return (error.stdout or b"").decode(errors="replace"), f"it was ended after {_TRY_SECONDS} s"
    except (OSError, ValueError) as error:
        return "", f"it cannot run: {one_line(error)}"
    output = done.stdout.decode(errors="replace")
    if not done.returncode:
        return output, ""
    lines = output.strip().splitlines()
    return output, f"it failed with exit code {done.returncode}" + (f": {lines[-1].strip()[:200]}" if lines else "")


def _with_comments(experiment: Json, path: Path) -> Iterator[str]:
    """Yield the lines of an experiment file."""
    from katib.model.yaml_text import dump_yaml

    yield f"# Made by katib init. Run it with: katib run {shlex.quote(str(path))}"
    for line in dump_yaml(for_file(experiment, path)).splitlines():
        if comment := next((words for start, words in _COMMENTS.items() if line.startswith(start)), ""):
            yield f"  # {comment}"
        yield line


@click.command(
    epilog=options.examples(
        "katib convert sweep.yaml > experiment.yaml",
        "katib convert v1alpha3.yaml > experiment.yaml",
    ),
)
@click.argument("source")
def convert(source: str) -> None:
    """Print the experiment file of a sweep of Weights & Biases, or of an Experiment of v1alpha3.

    Of an Experiment of kubeflow.org/v1alpha3, the Go template becomes a trialSpec with placeholders.

    Of a sweep, its parameters, method, metric, run_cap, early_terminate and command are kept. The program has to print
    its metric, or to report it: trials do not support wandb.log.
    """
    from katib.model.yaml_text import dump_yaml
    from katib.service.drafting import experiment_of_sweep, experiments_of_v1alpha3

    text, name = options.read_file(source)
    if objects := experiments_of_v1alpha3(text, name):
        click.echo("---\n".join(map(dump_yaml, objects)), nl=False)
        return
    experiment = experiment_of_sweep(text, name)
    click.echo(dump_yaml(experiment), nl=False)
    metric = experiment["spec"]["objective"]["objectiveMetricName"]
    way = f"the program prints {metric}=NUMBER or calls katib.report"
    click.echo(f"note: {metric} is read where {way}; wandb.log is not read", err=True)
