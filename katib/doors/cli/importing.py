"""`katib import`: trials stored by another program, as an experiment that can continue."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from katib.doors.cli import options
from katib.model.wording import counted

if TYPE_CHECKING:
    from katib.model.types import Experiment
    from katib.service.tuning.service import EndedTrial, Json, TuningService

_MOST_TRIALS, _MOST_READINGS = 500, 20_000
"""Limits of one request."""
_LOOK_SECONDS = 0.05
_PATIENCE_SECONDS = 600.0
_RESTART_SECONDS = 10.0
"""For an ended experiment to restart with a larger budget."""


@click.command(
    "import",
    epilog=options.examples(
        "katib import study.db",
        "katib import journal.log mine --study digits --more 50",
        "katib import ~/ray_results/train_2026-08-01 mine --maximize accuracy",
        "katib import mlruns mine --minimize loss -p lr=1e-5..1e-1:log -p layers",
        "katib import runs.csv mine --minimize loss -p lr -p layers",
    ),
)
@click.argument("source")
@click.argument("name", required=False, type=options.EXPERIMENT_NAME)
@click.option(
    "--study", metavar="NAME", default="", help="Name of the Optuna study or MLflow experiment, if there are several."
)
@click.option("--minimize", multiple=True, metavar="METRIC", help="The metric that was minimized.")
@click.option("--maximize", multiple=True, metavar="METRIC", help="The metric that was maximized.")
@click.option(
    "-p",
    "--param",
    "parameters",
    multiple=True,
    metavar="NAME[=VALUES]",
    help="A parameter, with values as for `katib tune`; may be repeated.  [default: as the trials have them]",
)
@click.option("--more", default=0, type=click.IntRange(min=0), help="Number of further trials to allow.")
@click.option("--algorithm", default="auto", show_default=True, metavar="NAME", help="Algorithm for further trials.")
@click.option("--dry-run", is_flag=True, help="Print the experiment instead of importing it.")
@options.connection
def import_(
    source: str,
    name: str | None,
    study: str,
    minimize: tuple[str, ...],
    maximize: tuple[str, ...],
    parameters: tuple[str, ...],
    more: int,
    algorithm: str,
    dry_run: bool,
    target: options.Target,
) -> None:
    """Import the trials of another program as an experiment with its history.

    SOURCE is the database or journal file of an Optuna study, a result directory of Ray Tune, a database, a directory
    mlruns or the address of a tracking server of MLflow, or a table as CSV or JSON. Values, curves, states and times of
    its trials are kept, and the experiment can continue here: --more adds trials to its budget. Importing the same
    source again adds the new trials.
    """
    from katib.doors.cli.connection import connect
    from katib.model.yaml_text import dump_yaml
    from katib.service.drafting import slug
    from katib.service.histories.reading import read_source
    from katib.service.histories.records import history_of
    from katib.service.tuning.states import is_completed

    objectives = options.objectives(maximize, minimize)
    chosen = _parameters(parameters)
    found = read_source(source, study=study, objectives=objectives, parameters=[entry["name"] for entry in chosen])
    name = name or slug(found.name) or "imported"
    if dry_run:
        history = history_of(found, objectives, chosen, source)
        click.echo(dump_yaml(history.experiment(name, algorithm=algorithm, more=more)), nl=False)
        return
    with connect(target, read_only=False, starts=True, creates=True) as (service, namespace):
        earlier = _earlier(service, namespace, name)
        if earlier is not None:
            objectives, chosen = _search_of(earlier)
        history = history_of(found, objectives, chosen, source)
        if earlier is None:
            document = history.experiment(name, algorithm=algorithm, more=more)
            service.submit(json.dumps(document), source=source, namespace=namespace)
            trials = list(history.trials)
        else:
            trials = _new(service, namespace, name, history.trials)
            budget = earlier.spec.max_trial_count
            if budget is not None and (trials or more):
                service.edit(namespace, name, max_trial_count=budget + len(trials) + more)
                _once(service, namespace, name, lambda found: not is_completed(found), _RESTART_SECONDS)
        for batch in _batches(trials):
            service.add_ended_trials(namespace, name, tuple(batch))
        experiment = _settled(service, namespace, name)
        best = service.best(namespace, name)
    for line in _lines(experiment, len(trials), found.title, history.left_out, found.unfinished):
        click.echo(line)
    if best is not None:
        from katib.service.tuning.reading import objective_text, parameters_of

        click.echo(f"Best trial: {best.name} with {objective_text(best)} ({parameters_of(best)})")
    click.echo(f"Next: katib ui {name}{target.choice}, {_way_on(experiment)}")


def _parameters(texts: Sequence[str]) -> list[Json]:
    """Return the parameters given by the user, some without values."""
    from katib.service.drafting import parse_parameter

    return [parse_parameter(text) if "=" in text else {"name": text} for text in texts]


def _earlier(service: TuningService, namespace: str, name: str) -> Experiment | None:
    """Return the experiment of that name; None if there is none."""
    from katib.errors import NotFoundError, invalid
    from katib.model.trials import is_asked
    from katib.model.types import Experiment

    try:
        found = service.get(Experiment, namespace, name)
    except NotFoundError:
        return None
    if not is_asked(found):
        cause = "it is there, and its trials run as jobs"
        raise invalid(f"experiment {name}", cause, "import under another name", "ask-template")
    return found


def _search_of(experiment: Experiment) -> tuple[dict[str, str], list[Json]]:
    """Return the objectives and the parameters of an existing experiment, which the trials have to fit."""
    objective, spec = experiment.spec.objective, experiment.encode()["spec"]
    terms = () if objective is None else objective.terms
    return {term.name: str(term.type) for term in terms}, list(spec["parameters"])


def _new(service: TuningService, namespace: str, name: str, trials: Sequence[EndedTrial]) -> list[EndedTrial]:
    from katib.service.tuning.ended_trials import name_of_ended
    from katib.service.tuning.trial_pages import each_trial

    there = {trial.name for trial in each_trial(service, namespace, name)}
    return [trial for trial in trials if name_of_ended(namespace, name, trial.id) not in there]


def _batches(trials: Sequence[EndedTrial]) -> Iterator[list[EndedTrial]]:
    batch: list[EndedTrial] = []
    readings = 0
    for trial in trials:
        if batch and (len(batch) == _MOST_TRIALS or readings + len(trial.readings) > _MOST_READINGS):
            yield batch
            batch, readings = [], 0
        batch.append(trial)
        readings += len(trial.readings)
    if batch:
        yield batch


def _settled(service: TuningService, namespace: str, name: str) -> Experiment:
    """Return the experiment once the controllers have processed all of its trials."""
    from katib.service.tuning.states import completed_count

    def is_settled(found: Experiment) -> bool:
        total, budget = service.trials(namespace, name, limit=1).total, found.spec.max_trial_count
        over = budget is None or total < budget or bool(found.status.completion_time)
        return completed_count(found) >= total and over

    return _once(service, namespace, name, is_settled)


def _once(
    service: TuningService,
    namespace: str,
    name: str,
    holds: Callable[[Experiment], bool],
    seconds: float = _PATIENCE_SECONDS,
) -> Experiment:
    """Return the experiment once the condition holds, or as it is after the timeout."""
    from katib.model.types import Experiment

    deadline = time.monotonic() + seconds
    while True:
        found = service.get(Experiment, namespace, name)
        if holds(found) or time.monotonic() > deadline:
            return found
        time.sleep(_LOOK_SECONDS)


def _lines(experiment: Experiment, added: int, title: str, left_out: Sequence[str], unfinished: int) -> Iterator[str]:
    from katib.service.tuning.states import completed_count

    total = completed_count(experiment)
    has = f"; it has {total:,} now" if total != added else ""
    yield f"experiment/{experiment.name}: {counted(added, 'trial')} of {title} imported{has}"
    if left_out:
        yield f"{len(left_out):,} left out, such as {left_out[0]}; -p NAME=VALUES names the parameters to keep"
    if unfinished:
        yield f"{unfinished:,} left out that {'has' if unfinished == 1 else 'have'} not ended"


def _way_on(experiment: Experiment) -> str:
    from katib.service.tuning.states import is_completed

    if is_completed(experiment):
        return "and the same import with --more 20 to continue"
    return f'and to continue katib.open("{experiment.name}").resume() in Python, or `katib ask` of a server'
