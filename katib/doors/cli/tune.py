"""`katib tune`: an experiment from one line."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from katib.doors.cli import options
from katib.doors.cli.run import again
from katib.doors.cli.run.command import RunOptions, run_anywhere, run_options
from katib.errors import FieldError, InvalidError, invalid
from katib.model.loading import FileText, with_annotations
from katib.model.names import WORKSPACE_ANNOTATION
from katib.model.templates.claims import with_claims
from katib.model.types import Experiment
from katib.model.validation.update import without_placement
from katib.service.drafting import (
    Program,
    Search,
    draft,
    few_combinations,
    for_file,
    latest,
    next_name,
    parse_metrics,
    parse_parameter,
    program_of,
)
from katib.service.tuning.service import DEFAULT_NAMESPACE, Json

_MOST_AT_ONCE = 4


@click.command(
    context_settings={"ignore_unknown_options": True},
    epilog=options.examples(
        "katib tune -p lr=1e-5..1e-1:log -p layers=1..4 -p optimizer=adam,sgd --maximize accuracy \\",
        "    -- python train.py --lr {lr} --layers {layers} --opt {optimizer}",
        "katib tune -p lr=1e-5..1e-1:log --minimize loss -- python train.py --config {config:conf/train.yaml}",
        "katib tune -p x=-3.0..3.0 --minimize loss --trials 50 -- python train.py --config {parameters}",
        "katib tune -p lr=0.001..0.1:log --minimize loss --metrics json -- python train.py {lr} --log {metrics}",
        "katib tune -p lr=0.001..0.1:log --minimize loss --context production -- job.yaml",
    ),
)
@click.option(
    "-p",
    "--param",
    "parameters",
    multiple=True,
    required=True,
    metavar="NAME=VALUES",
    help="A parameter, such as lr=1e-5..0.1:log, layers=1..4, x=0..1:step=0.25 or opt=adam,sgd. May be repeated.",
)
@click.option(
    "--where",
    multiple=True,
    metavar="COMPARISON",
    help="A comparison of parameters that all trials satisfy, such as 'layers * units <= 4096'. May be repeated.",
)
@click.option("--maximize", multiple=True, metavar="METRIC", help="A metric to maximize; several may be given.")
@click.option("--minimize", multiple=True, metavar="METRIC", help="A metric to minimize; several may be given.")
@click.option("--trials", default=20, show_default=True, type=click.IntRange(min=1), help="Number of trials to run.")
@click.option(
    "--parallel", type=click.IntRange(min=1), help="Number of trials at once.  [default: one per core, at most 4]"
)
@click.option(
    "--timeout", type=options.Duration(), metavar="DURATION", help="A trial that takes longer fails: 90s, 10m."
)
@click.option("--goal", type=float, metavar="NUMBER", help="The value of the metric that ends the search.")
@click.option(
    "--strategy",
    metavar="NAME",
    default="",
    help="Summary of the readings: min, max, latest, mean or mean(5).  [default: the best one]",
)
@click.option("--algorithm", default="auto", show_default=True, metavar="NAME", help="One of `katib algorithms`.")
@click.option("--early-stopping", metavar="NAME", default="", help="Stop hopeless trials: medianstop, asha, ...")
@click.option(
    "--metrics",
    default="stdout",
    show_default=True,
    metavar="SOURCE",
    help="Source of metrics: stdout (lines with name=value or name: value), json:FILE or tensorboard:DIR.",
)
@click.option(
    "--metrics-format",
    multiple=True,
    metavar="REGEX",
    help="How printed metrics look: an RE2 expression with a group for the name and one for the value. "
    "May be repeated.  [default: name=value and name: value]",
)
@click.option("--name", metavar="NAME", help="Name of the experiment.  [default: that of the script, and a number]")
@click.option(
    "--save", type=options.HomePath(dir_okay=False, path_type=Path), metavar="FILE", help="Write the experiment file."
)
@click.option("--dry-run", is_flag=True, help="Check, and print the experiment file instead of running it.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
@run_options
def tune(
    parameters: tuple[str, ...],
    where: tuple[str, ...],
    maximize: tuple[str, ...],
    minimize: tuple[str, ...],
    trials: int,
    parallel: int | None,
    timeout: float | None,
    goal: float | None,
    strategy: str,
    algorithm: str,
    early_stopping: str,
    metrics: str,
    metrics_format: tuple[str, ...],
    name: str | None,
    save: Path | None,
    dry_run: bool,
    command: tuple[str, ...],
    shared: RunOptions,
) -> int:
    """Tune a program: search the values of its parameters, each trial a run of the command.

    In the command, {lr} stands for the value of the parameter lr, {config:FILE} for a copy of a configuration file with
    values in place of its own, {parameters} for a JSON file with all values, {trial} for the name of the trial, {seed}
    for a seed of its own, and {metrics} for the file or directory that --metrics reads. Values are in the environment
    as well: KATIB_PARAM_LR. The program prints its metrics as name=value or name: value.

    The command may be a job file, job.yaml: the values replace those of its options, such as --lr. With --on slurm, it
    may be an sbatch command, or a batch script: its options apply to each trial. With --context, a Kubernetes cluster
    runs the job of such a file, and this command watches it.

    Only the data directory is written to; --save writes the file for `katib run`. After Ctrl-C the same command
    continues. If all trials failed and the program changed since, it runs them again. With --server, that server runs
    it, with the files of its machine, and this command watches it.

    The exit code is 0 if the experiment succeeded, 1 if it failed, 2 if the arguments are invalid, 3 if it has ended,
    the program changed since and no option chooses what to do, 130 after Ctrl-C.
    """
    target = shared.prepare()
    options.refuse_as_command(command[0])
    _check_namespace(shared.namespace)
    space = _parsed(parameters)
    source = parse_metrics(metrics, metrics_format)
    program = program_of(command, options.read_file)
    in_slurm = shared.slurm is not None or shared.server is not None
    _check_place(program, in_cluster=bool(shared.cluster), in_slurm=in_slurm)
    space, today = program.with_defaults(space, where)
    seconds = None if timeout is None else math.ceil(timeout)
    template = program.template(space, source, timeout_seconds=seconds, in_slurm=in_slurm, slurm=shared.slurm or ())
    search = Search(
        objectives=_objectives(maximize, minimize),
        max_trials=trials,
        parallel=parallel or min(os.cpu_count() or 1, _MOST_AT_ONCE),
        algorithm=algorithm,
        early_stopping=early_stopping,
        strategy=strategy,
        goal=goal,
        where=where,
    )
    earlier = [] if name else _experiments(target)
    experiment = draft(name or "", search, space, template.template, source)
    if not name:
        experiment["metadata"]["name"] = _name_beside(earlier, experiment, template.name)
    file = shared.complete(FileText(json.dumps(experiment), again.COMMAND_LINE))
    if not shared.quiet:
        for note in (*template.notes, *filter(None, [today, few_combinations(space, trials)])):
            click.echo(f"note: {note}", err=True)
    if save or dry_run:
        _save(file, save)
    file = with_claims(file, shared.claim)
    if dry_run:
        return _checked(file, shared.namespace)
    if not shared.cluster:
        file = with_annotations(file, {WORKSPACE_ANNOTATION: str(Path.cwd())})
    wanted = again.Wanted(file, shared.namespace, shared.choice, form=shared.form, quiet=shared.quiet, drafted=True)
    return run_anywhere(wanted, target, again.Here(shared.data_dir, slurm=shared.slurm, detach=shared.detach))


def _parsed(texts: Sequence[str]) -> list[Json]:
    """Return the parameters. Raises InvalidError with all errors."""
    found: list[Json] = []
    errors: list[FieldError] = []
    for text in texts:
        try:
            found.append(parse_parameter(text))
        except InvalidError as error:
            errors += error.errors
    if errors:
        raise InvalidError(errors)
    return found


def _check_namespace(namespace: str | None) -> None:
    """Refuse a number passed to `-n`, which was meant for `--trials`."""
    if (namespace or "").isdecimal():
        raise click.UsageError(f"-n {namespace} is a namespace; for {namespace} trials, write --trials {namespace}")


def _objectives(maximize: Sequence[str], minimize: Sequence[str]) -> dict[str, str]:
    if not (maximize or minimize):
        raise click.UsageError("which metric? Add --maximize METRIC or --minimize METRIC", click.get_current_context())
    return options.objectives(maximize, minimize)


def _check_place(program: Program, *, in_cluster: bool, in_slurm: bool) -> None:
    """Refuse a command whose program exists on this machine only, and `sbatch` without Slurm."""
    if in_cluster and program.job is None:
        remedy = "give the file of a job whose image has them, as `-- job.yaml`"
        raise invalid("command", "a cluster has neither this program nor its files", remedy, "command")
    if program.batch.submits and not in_slurm:
        cause, remedy = "sbatch submits a job of Slurm", "add --on slurm, or leave sbatch out to run the script here"
        raise invalid("command", cause, remedy, "batch-script")


def _checked(file: FileText, namespace: str | None) -> int:
    """Check an experiment file locally; return the exit code."""
    from katib.places.machine import validate_document

    try:
        notices = validate_document(file, source=file.source, namespace=namespace)
    except InvalidError as error:
        return again.wrong(error, file.source)
    for notice in notices:
        click.echo(f"note: {notice}", err=True)
    return 0


def _experiments(target: options.Target) -> Sequence[Experiment]:
    """Return the experiments of a cluster, of a server or of a data directory."""
    namespace = target.namespace or DEFAULT_NAMESPACE
    if target.cluster or target.server is not None:
        from katib.doors.cli.connection import connect

        with connect(target, read_only=True, creates=True) as opened:
            return opened.service.experiments(opened.namespace)
    directory = target.data_dir or options.default_data_dir()
    if not options.has_data(directory):
        return []
    from katib.places.machine import open_offline

    return [e for e in open_offline(directory).experiments() if e.namespace == namespace]


def _name_beside(earlier: Sequence[Experiment], experiment: Json, stem: str) -> str:
    """Return the name of this program's newest experiment if its spec is the same, else the next free one."""
    found = latest(stem, earlier)
    if found is not None and _holds(found.encode()["spec"], without_placement(experiment["spec"])):
        return found.name
    return next_name(stem, (one.name for one in earlier))


def _holds(stored: Any, drafted: Any) -> bool:
    """Return whether a stored spec, with defaults and perhaps another budget, matches this draft."""
    if isinstance(drafted, dict):
        kept = drafted.keys() - {"maxTrialCount", "parallelTrialCount"}
        return isinstance(stored, dict) and all(key in stored and _holds(stored[key], drafted[key]) for key in kept)
    if isinstance(drafted, list):
        return isinstance(stored, list) and len(stored) == len(drafted) and all(map(_holds, stored, drafted))
    return bool(stored == drafted)


def _save(file: FileText, path: Path | None) -> None:
    from katib.model.yaml_text import dump_yaml

    (experiment,) = file.documents
    data = experiment.data if path is None else for_file(experiment.data, path)
    text = f"# Drafted by: {options.typed_line()}\n{dump_yaml(data)}"
    if path is None:
        click.echo(text, nl=False)
        return
    options.write_file(path, text, "--save")
