"""`katib init` and `katib convert`: an experiment file from five answers, or from the file of another tool."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

import click

from katib.doors.cli import options
from katib.errors import invalid, one_line
from katib.model.files.whole_files import write_named
from katib.service.drafting.batch_scripts import Batch, batch_notes, batch_of
from katib.service.drafting.config_files import values_of_config
from katib.service.drafting.experiments import (
    Metrics,
    Search,
    command_template,
    draft,
    executed_words,
    for_file,
    has_no_value,
    parse_parameter,
    words_of_line,
)
from katib.service.drafting.job_files import job_file_of, job_template, options_of_job, read_job
from katib.service.drafting.script_options import (
    ScriptOption,
    direction_of,
    is_shell_script,
    make_words,
    metrics_of_output,
    option_around,
    options_of_help,
    options_of_source,
    shell_command,
)

_FILE = "experiment.yaml"
_TRY_SECONDS = 60
_MOST_CHARACTERS = 1_000_000
_MOST_AT_ONCE = 4
_COMMENTS = {
    "  objective:": "What to optimize: a metric that the program prints as name=value or name: value.",
    "  algorithm:": "How values are chosen: `katib algorithms` lists all ways.",
    "  maxTrialCount:": "The budget: how many trials in all, and how many at once.",
    "  resumePolicy:": "FromVolume lets the experiment go on with a larger budget.",
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
@click.option("--command", "line", metavar="LINE", help="What trains once, such as 'python train.py'.")
@click.option("-p", "--param", "parameters", multiple=True, metavar="NAME=VALUES", help="As for katib tune.")
@click.option("--maximize", metavar="METRIC", help="The metric to maximize.")
@click.option("--minimize", metavar="METRIC", help="The metric to minimize.")
@click.option("--trials", type=click.IntRange(min=1), metavar="N", help="How many trials to run.  [default: 20]")
@click.option(
    "--file",
    default=Path(_FILE),
    show_default=True,
    type=options.HomePath(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The file to write.",
)
@click.option("-y", "--yes", is_flag=True, help="Ask nothing: take the flags, and what is found in the script.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def init(
    words: tuple[str, ...],
    line: str | None,
    parameters: tuple[str, ...],
    maximize: str | None,
    minimize: str | None,
    trials: int | None,
    file: Path,
    yes: bool,
    force: bool,
) -> int:
    """Write an experiment file from five answers: command, parameters, metric, direction and budget.

    The command may be a job's file, job.yaml. Parameters are found in the script, which declares them by argparse or
    click, in what its --help prints, in a configuration file that the command names, or in the options of the job. For
    the metric the command runs once, with the first value of each. Without a terminal, or with --yes, nothing is asked.
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
    command = _command_of(
        words, line or " ".join(words) or ask("Command that trains once", _found_command(), "-- COMMAND")
    )
    job = None
    if file_of_job := job_file_of(command):
        job = read_job(*options.read_file(file_of_job))
    batch = batch_of(command) or Batch(tuple(command))
    command = list(batch.command)
    configs = {} if job else _configs_of(command)
    found = [] if parameters else options_of_job(job) if job else [*_options_of(command), *_options_of_configs(configs)]
    texts = parameters or shlex.split(ask("Parameters", " ".join(map(str, found)), "-p NAME=VALUES"))
    space = [parse_parameter(text) for text in texts]
    if not job:
        command = _with_placeholders(command, space, configs)
    metric = (
        maximize
        or minimize
        or ask("Metric", next(iter([] if job else _metrics_of(command, space)), ""), "--maximize METRIC")
    )
    way = "maximize" if maximize else "minimize" if minimize else ask("Direction", direction_of(metric), "--minimize")
    if way not in ("maximize", "minimize"):
        raise invalid("direction", f"{way!r} is neither maximize nor minimize", "write one of these", "direction")
    count = trials or int(ask("Trials", "20", "--trials", check=click.IntRange(min=1).convert))
    search = Search({metric: way}, count, min(os.cpu_count() or 1, _MOST_AT_ONCE))
    if job:
        template = job_template(job, file_of_job, space, Metrics())
    else:
        template = command_template(command, space, Metrics(), batch=batch)
    for note in (*batch_notes(batch, counts=False), *template.notes):
        click.echo(f"note: {note}", err=True)
    _write(file, draft(template.name, search, space, template.template))
    click.echo(f"{file} is written; `katib run {shlex.quote(str(file))}` runs it")
    return 0


class _Questions:
    """Asks at the terminal, or takes what was found."""

    def __init__(self, *, may_ask: bool) -> None:
        self._may_ask = may_ask

    def __call__(self, question: str, found: str, option: str, *, check: Callable[..., object] | None = None) -> str:
        """Return the answer to a question.

        Args:
            question: What to ask.
            found: What is taken where nothing else is said; empty: nothing was found.
            option: The option that answers it.
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


def _command_of(words: Sequence[str], line: str) -> list[str]:
    """Return a command that was given as words or in one line; a script of Python gets its interpreter."""
    command = list(words) if len(words) > 1 else words_of_line(line)
    is_script = len(command) == 1 and command[0].endswith(".py") and " " not in command[0]
    return ["python", *command] if is_script and not os.access(command[0], os.X_OK) else command


def _found_command() -> str:
    """Return a command for the one script of this directory that declares options, or that is there at all."""
    scripts = sorted(Path().glob("*.py"))
    declaring = [path for path in scripts if options_of_source(_text(path))]
    chosen = declaring or scripts
    return f"python {chosen[0]}" if len(chosen) == 1 else ""


def _options_of(command: Sequence[str]) -> list[ScriptOption]:
    """Return what may be tuned of a command: all that its words do not set yet."""
    script = next((Path(word) for word in command if word.endswith(".py") and Path(word).is_file()), None)
    found = options_of_source(_text(script)) if script is not None else []
    if not found:
        found = options_of_help(_output([*command, "--help"])[0])
    return [option for option in found if option.flag not in command]


def _once(command: Sequence[str], space: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what a command executes with the first value of each parameter."""
    values = {one["name"]: (one["feasibleSpace"].get("list") or [one["feasibleSpace"].get("min")])[0] for one in space}
    words = [re.sub(r"\{config:([^{}]+)\}", r"\1", word) for word in executed_words(command)]
    return [re.sub(r"\{([\w.-]+)\}", lambda found: str(values.get(found[1], found[0])), word) for word in words]


def _metrics_of(command: Sequence[str], space: Sequence[Mapping[str, Any]]) -> list[str]:
    words = [word for word in _once(command, space) if word]
    click.echo(f"running it once to see what it prints: {shlex.join(words)}", err=True)
    output, failure = _output(words)
    found = metrics_of_output(output, [str(parameter["name"]) for parameter in space])
    if failure:
        click.echo(f"note: {failure}", err=True)
    elif not found:
        click.echo("note: it printed no line such as name=0.5", err=True)
    return found


def _output(command: Sequence[str]) -> tuple[str, str]:
    """Return what a command prints, as far as it runs, and why it did not end well; empty if it did."""
    wide = {**os.environ, "COLUMNS": "500", "NO_COLOR": "1", "TERMINAL_WIDTH": "500"}  # help is not wrapped
    try:
        done = subprocess.run(  # noqa: S603 - the user's own command
            command, capture_output=True, timeout=_TRY_SECONDS, check=False, stdin=subprocess.DEVNULL, env=wide
        )
    except subprocess.TimeoutExpired as error:
        return (error.stdout or b"").decode(errors="replace"), f"it was ended after {_TRY_SECONDS} s"
    except (OSError, ValueError) as error:
        return "", f"it cannot run: {one_line(error)}"
    output = done.stdout.decode(errors="replace")
    if not done.returncode:
        return output, ""
    lines = (done.stderr.decode(errors="replace").strip() or output.strip()).splitlines()
    return output, f"it failed with exit code {done.returncode}" + (f": {lines[-1].strip()[:200]}" if lines else "")


def _text(path: Path) -> str:
    """Return the beginning of a file, which may be large; empty where there is none."""
    try:
        with path.open(errors="replace") as file:
            return file.read(_MOST_CHARACTERS) if path.is_file() else ""
    except (OSError, ValueError):
        return ""


def _configs_of(command: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the values by key of each configuration file that a command names."""
    paths = [word.rpartition("=")[2].removeprefix("{config:").removesuffix("}") for word in command]
    return {path: values for path in paths if (values := values_of_config(path))}


def _options_of_configs(configs: Mapping[str, Mapping[str, str]]) -> list[ScriptOption]:
    """Return the keys of configuration files that have numbers."""
    keys = [(key, value) for values in configs.values() for key, value in values.items()]
    found = [(key, option_around(key.rpartition(".")[2], value)) for key, value in keys]
    return [replace(option, flag=key) for key, option in found if option is not None]


def _with_placeholders(
    command: Sequence[str], space: Sequence[Mapping[str, Any]], configs: Mapping[str, Mapping[str, str]]
) -> list[str]:
    """Return a command in which every parameter stands: in a configuration file, or as an option that is added."""
    flags = {str(parameter["name"]) for parameter in space if has_no_value(dict(parameter))}
    line, words, left = " ".join(command), list(command), {str(parameter["name"]): None for parameter in space}
    for path, values in configs.items():
        held = [name for name in left if any(key == name or key.endswith(f".{name}") for key in values)]
        if held:
            left = {name: None for name in left if name not in held}
            words = [f"{w.removesuffix(path)}{{config:{path}}}" if w.rpartition("=")[2] == path else w for w in words]
    unnamed = [name for name in left if f"{{{name}}}" not in line]
    if not unnamed or len(words) == 1 != len(words[0].split()):
        return words
    if PurePath(words[0]).name == "make":
        return words + make_words(_text(Path("Makefile")), unnamed)
    texts = [_text(Path(word)) for word in words]
    for place, (word, text) in enumerate(zip(words, texts, strict=True)):
        if text and is_shell_script(word, text):
            return shell_command(words, place, text, unnamed)
    added = [word for name in unnamed for word in ((f"--{name}",) if name not in flags else ()) + (f"{{{name}}}",)]
    if not all(any(f"--{name}" in text for text in texts) for name in unnamed):
        note = f"`{' '.join(added)}` is added to the command; where the program takes it otherwise, write it there"
        click.echo(f"note: {note}", err=True)
    return words + added


def _write(path: Path, experiment: dict[str, object]) -> None:
    """Write an experiment file with comments."""
    from katib.model.yaml_text import dump_yaml

    lines = ["# Made by katib init. Run it with: katib run " + shlex.quote(str(path))]
    for line in dump_yaml(for_file(experiment, path)).splitlines():
        comment = next((words for start, words in _COMMENTS.items() if line.startswith(start)), "")
        lines += [f"  # {comment}", line] if comment else [line]
    try:
        write_named(path, "\n".join(lines) + "\n")
    except OSError as error:
        cause = (error.strerror or str(error)).lower()
        raise invalid(str(path), cause, "choose another one with --file", "file-unwritable") from error


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
    its metric, or to report it: trials know nothing of wandb.log.
    """
    from katib.model.yaml_text import dump_yaml
    from katib.service.drafting.old_experiments import old_experiments
    from katib.service.drafting.sweeps import experiment_of_sweep

    text, name = options.read_file(source)
    if objects := old_experiments(text, name):
        click.echo("---\n".join(map(dump_yaml, objects)), nl=False)
        return
    experiment = experiment_of_sweep(text, name)
    click.echo(dump_yaml(experiment), nl=False)
    metric = experiment["spec"]["objective"]["objectiveMetricName"]
    way = f"the program prints {metric}=NUMBER or calls katib.report"
    click.echo(f"note: {metric} is read where {way}; wandb.log is not read", err=True)
