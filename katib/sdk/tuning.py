"""`katib.tune`: tune a Python function on this machine."""

from __future__ import annotations

import os
import secrets
import shlex
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import structs

from katib.doors.rest.door import open_door
from katib.doors.rest.notes import Note, running_servers
from katib.engine.controllers.kinds import key_of
from katib.errors import InvalidError, KatibError, NotFoundError, invalid
from katib.model.features.repeats.feature import REPEATS
from katib.model.names import CHECKPOINTS_ANNOTATION, KEPT, WORKSPACE_ANNOTATION
from katib.model.types import API_VERSION, Experiment
from katib.places.machine import in_turn, open_engine
from katib.sdk.asking import Experiment as AskedExperiment
from katib.sdk.forking import evaluate
from katib.sdk.homes import ExperimentHome, ExperimentPlace, engine_here, say_what_is_waited_for
from katib.sdk.notebook import ProgressBar, in_notebook
from katib.sdk.payload import Payload, check_defaults, takes_mapping
from katib.sdk.python_words import check_arguments, shortened
from katib.sdk.results import TuneError, TuneResult, last_words, read_result
from katib.sdk.search import Parameter
from katib.sdk.spec import document_of, search_arguments, search_spec
from katib.sdk.warm import warm_slots
from katib.service.drafting import in_arguments, python_words, takes_its_arguments
from katib.service.explaining.lines import EventLines
from katib.service.explaining.progress import RunProgress, SilentLines, savings_of, with_remedy
from katib.service.tuning.repeating import ended_without_value
from katib.service.tuning.sentences import said_once
from katib.service.tuning.service import DEFAULT_NAMESPACE, Change, Json, RunExperiment, TuningService
from katib.service.tuning.states import state_of

if TYPE_CHECKING:
    from katib.places.machine import Engine

_CONTAINER = "function"
_FILE = 3
"""The path of the function's file in its command."""

_LEASE_SECONDS = 6.0
"""Lease of trials that this process evaluates: renewals cost nothing here, and the next run waits this long for the
trials of an interrupted one."""

_CHECK_SECONDS = 1.0
"""Pause between checks that the data directory is at its path."""

_LAST_CHANGES_SECONDS = 2.0
"""Timeout for the ends of the last trials once the experiment has ended."""


@takes_its_arguments
def tune(
    function: Callable[..., Any],
    parameters: Mapping[str, Parameter | Any],
    *,
    objective: str = "objective",
    direction: str = "minimize",
    goal: float | None = None,
    objectives: Mapping[str, str] | None = None,
    goals: Mapping[str, float] | None = None,
    constraints: Mapping[str, tuple[float | None, float | None]] | None = None,
    max_trials: int = 20,
    repeats: int = 1,
    parallel: int | None = None,
    max_failed: int | None = None,
    algorithm: str = "auto",
    settings: Mapping[str, Any] | None = None,
    early_stopping: str | None = None,
    early_stopping_settings: Mapping[str, Any] | None = None,
    additional_metrics: Sequence[str] = (),
    strategy: str = "",
    where: Sequence[str] = (),
    initial_trials: Sequence[Mapping[str, Any]] = (),
    warm_start: Sequence[str] = (),
    name: str | None = None,
    data_dir: str | Path | None = None,
    preload: Sequence[str] | None = None,
    checkpoint: bool = False,
    restart: bool = False,
    verbose: bool = True,
) -> TuneResult:
    """Search for the best arguments of a function, each trial in a separate process.

    Args:
        function: Takes the parameters by name, or one mapping of them. Returns the objective, a mapping of metrics, or
            None when it calls `katib.report` itself. May be defined in a script or a notebook.
        parameters: Search space by name, created with `katib.search`; any other value is passed unchanged. The argument
            of an absent conditional parameter is not passed.
        objective: Name of the metric to optimize.
        direction: `minimize` or `maximize`.
        goal: Value of the objective that ends the search.
        objectives: Several objectives instead of one: the direction of each by name, such as
            `{"accuracy": "maximize", "seconds": "minimize"}`. The function returns or reports all of them.
        goals: Values of several objectives that end the search when one trial reaches all given ones.
        constraints: Bounds of metrics by name, such as `{"memory": (None, 8)}`: the best trial satisfies them.
        max_trials: Number of trials.
        repeats: The mean of up to so many trials is the value of a configuration, for functions with noise. A
            configuration that cannot be the best gets fewer. The environment variable KATIB_SEED differs in each.
        parallel: Number of parallel trials; by default the number of cores, at most 4.
        max_failed: Number of failed trials that ends the search as failed.
        algorithm: A suggestion algorithm; `katib algorithms` lists them, and `auto` chooses one of them.
        settings: Settings of the algorithm, such as `random_state`.
        early_stopping: An early stopping algorithm, such as `medianstop`.
        early_stopping_settings: Its settings.
        additional_metrics: Further metrics to keep.
        strategy: The value of a trial's readings: `min`, `max`, `latest`, `mean` or `mean(5)`; by default the best one.
        where: Comparisons of parameters that all trials satisfy, such as `["layers * units <= 4096"]`.
        initial_trials: Arguments to try first, a value for each parameter of the space.
        warm_start: Names of earlier experiments of the same data directory to learn from.
        name: Name of the experiment. Tuning again under the same name continues an unfinished one, or one whose
            `max_trials` was raised, with the present function. The failed trials of one that failed run again; any
            other that has ended is returned unchanged.
        data_dir: The data directory; by default $KATIB_HOME, else `.katib`. If `katib serve` works in it, that server
            runs the trials; while another program works in it, this one waits.
        preload: Modules to import once, such as `["sklearn"]`: each trial is then a fork of a process that has them and
            the function, and takes milliseconds to start. The trials' output is shown here and not kept.
        checkpoint: Give each trial a folder, `katib.checkpoint_dir()`, that stays the same until the experiment is
            deleted. A trial that is paused, or cut off by Ctrl-C or a crash, keeps its readings and continues from the
            files in that folder; with a `name`, when the same call is made again.
        restart: Run all of it again if there is one of this name, which is kept under a name with a number.
        verbose: Print a line for each trial; in a notebook, show a bar with the best value so far.

    Raises:
        InvalidError: The search space or the settings are invalid, with all errors at once.
        TerminalError: This process works in the data directory already, such as by `katib.create`.
        TuneError: The experiment failed, such as by too many failed trials, or no trial has a value.
        TypeError: The function can be called neither with the names nor with a mapping, or lacks the default of a
            conditional parameter.
    """
    search = search_arguments(locals())
    arguments = {**search, "max_trials": max_trials, "repeats": repeats, "parallel": parallel, "restart": restart}
    check_arguments(parameters, {**arguments, "preload": preload, "data_dir": data_dir})
    space = {key: value for key, value in parameters.items() if isinstance(value, Parameter)}
    constants = {key: value for key, value in parameters.items() if key not in space}
    takes_mapping(function, parameters)
    check_defaults(function, parameters)
    root = Path(data_dir or os.environ.get("KATIB_HOME") or ".katib")
    name = name or _fresh_name(function)
    payload = Payload(function, space, constants, tuple(objectives or [objective]))
    pickled = payload.pickled()
    file = root.absolute() / "functions" / f"{name}.pickle"
    experiment: Json = {
        "apiVersion": API_VERSION,
        "kind": "Experiment",
        "metadata": {"name": name, "annotations": {WORKSPACE_ANNOTATION: str(Path.cwd())}},
        "spec": {
            **search_spec(space, **search),
            "maxTrialCount": max_trials,
            "parallelTrialCount": min(parallel or min(os.cpu_count() or 1, 4), max(max_trials, 1)),
            "resumePolicy": "FromVolume",  # the budget may be raised, and meanwhile no service waits for that
        },
    }
    if checkpoint:
        experiment["metadata"]["annotations"][CHECKPOINTS_ANNOTATION] = KEPT
    if repeats != 1:
        experiment["metadata"]["annotations"] |= REPEATS.write(repeats)
    if preload is None:
        experiment["spec"]["trialTemplate"] = _template(payload, file)
    elif checkpoint:
        cause, remedy = "trials of preload run in no job, which is what keeps a folder", "leave out one of them"
        raise invalid("checkpoint", cause, remedy, "preload")
    elif unknown := [module for module in preload if find_spec(module.partition(".")[0]) is None]:
        raise invalid(
            "preload", f"{', '.join(unknown)} is not installed", "name modules that can be imported", "preload"
        )
    named = {**arguments, "parameters": space}
    with said_once(), python_words(), _submitted(root, experiment, named, file, pickled) as running:
        service, submitted, had_ended = running.service, running.experiment, running.had_ended
        url = running.url if preload is None else ""  # trials evaluated by this process end with it
        for note in (*_lists_of(constants), *running.notes) if verbose else ():
            sys.stderr.write(f"{note}\n")
        if verbose and url and not had_ended:
            sys.stderr.write(f"the server at {url} runs the trials; Ctrl-C stops the watching only\n")
        follow = partial(_follow, running, verbose=verbose)
        try:
            final = (
                follow()
                if preload is None or had_ended
                else _evaluated(service, submitted, payload, file, preload, follow)
            )
        except KeyboardInterrupt:
            _stop(running, name, root, url=url, verbose=verbose)
            raise
        place = ExperimentPlace(root.absolute())
        result = read_result(service, final, lambda key, text: space[key].value(text), place)
        if result.nothing or state_of(final) == "Failed":
            reason = f"{name}: {result.reason}{last_words(service, result.trials, place.namespace, result.reason)}"
            again = f"; nothing was run now: pass restart=True to run {name} again" if had_ended else ""
            raise TuneError(f"{result.nothing or reason}{again}")
        return result


class _Running(NamedTuple):
    """A submitted experiment, and its service.

    Attributes:
        service: The service that runs it.
        experiment: The stored experiment.
        url: Address of the server; empty for an engine.
        had_ended: Whether it had ended before and is left unchanged.
        notes: Notes about an earlier experiment, a sentence each.
        is_shared: Whether the service continues when this search ends.
        engine: The engine, if it belongs to this process.
    """

    service: TuningService
    experiment: Experiment
    url: str = ""
    had_ended: bool = False
    notes: tuple[str, ...] = ()
    is_shared: bool = False
    engine: Engine | None = None


@contextmanager
def _submitted(
    root: Path, experiment: Json, arguments: Mapping[str, Any], file: Path, pickled: bytes
) -> Iterator[_Running]:
    """Submit an experiment to the server of its data directory, else to a new engine of this process."""
    with ExitStack() as opened:
        if shared := opened.enter_context(engine_here(root.absolute())):
            running = _taken(shared.service, experiment, arguments, file, pickled)
            yield running._replace(is_shared=True, engine=shared)
            return

        def open_() -> Note | Engine:
            note = next(iter(running_servers(root)), None)
            return note or opened.enter_context(open_engine(data_dir=root, own_process=False))

        home = in_turn(open_, partial(say_what_is_waited_for, root))
        if isinstance(home, Note):
            from katib.doors.rest.client import HttpTuningService

            service = opened.enter_context(HttpTuningService(home.url, home.token))
            yield _taken(service, experiment, arguments, file, pickled)._replace(url=home.url)
            return
        running = _taken(home.service, experiment, arguments, file, pickled)
        home.start_for(key_of(running.experiment))
        with open_door(home.service, root):
            yield running._replace(engine=home)


def _taken(
    service: TuningService, experiment: Json, arguments: Mapping[str, Any], file: Path, pickled: bytes
) -> _Running:
    """Submit an experiment to a service, with the function in its file; see `_submitted`."""
    name = experiment["metadata"]["name"]
    _keep_path(service, experiment, name)
    document = document_of(experiment)
    try:
        service.validate(document, source=name)
        earlier = file.read_bytes() if file.exists() else None
        Payload.save(file, pickled)
        try:
            outcome = _run(service, document, name, restart=arguments["restart"])
        except InvalidError:
            if earlier is None:
                file.unlink()
            else:
                Payload.save(file, earlier)
            raise
    except InvalidError as error:
        raise in_arguments(error, arguments) from None
    stored, ways, notes = outcome.experiment, outcome.ways, outcome.notes
    if ways is not None:
        more = f"for more trials raise max_trials above {stored.status.trials}, " if ways.may_have_more else ""
        again = "for all of it again pass restart=True or another name"
        notes = (f"{name} had ended before, so nothing was run now; {more}{again}",)
    return _Running(service, stored, had_ended=ways is not None, notes=notes)


def _keep_path(service: TuningService, experiment: Json, name: str) -> None:
    """Use the path of the function's file in the stored experiment, whose data directory may have moved."""
    with suppress(NotFoundError, LookupError, TypeError):
        found = service.get(Experiment, DEFAULT_NAMESPACE, name).encode()
        there, here = (_command_of(one) for one in (found, experiment))
        if Path(there[_FILE]).name == Path(here[_FILE]).name:
            here[_FILE] = there[_FILE]


def _command_of(experiment: Json) -> list[str]:
    template = experiment["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]
    command: list[str] = template["spec"]["containers"][0]["command"]
    return command


def _run(service: TuningService, document: str, name: str, *, restart: bool) -> RunExperiment:
    """Submit an experiment; if the one of its name failed, its failed trials run again: the function may be fixed."""
    with suppress(NotFoundError):
        found = service.get(Experiment, DEFAULT_NAMESPACE, name)
        if not restart and state_of(found) == "Failed":
            try:
                outcome = service.run(document, source=name, retry_failed=True)
            except InvalidError:  # its search has changed
                restart = ended_without_value(found)
            else:
                return structs.replace(outcome, notes=(f"{name} had failed, so its failed trials run again",))
    outcome = service.run(document, source=name, restart=restart)
    if outcome.ways is not None and any(change.startswith("spec.") for change in outcome.ways.changes):
        service.submit(document, source=name)  # refuses it field by field
    return outcome


def _stop(running: _Running, name: str, root: Path, *, url: str, verbose: bool) -> None:
    """Stop an interrupted search, unless a server continues it, and print how to continue."""
    again = f"the same call with name={name!r}"
    if url:
        way = f"the server at {url} continues; `katib stop {name}{_option_of(root)}` stops it, {again} watches it again"
    else:
        way = f"interrupted: what {name} has found is kept in {root}; {again} continues from there"
        if running.is_shared:  # other experiments of this process use the engine, which would continue it
            with suppress(KatibError):
                running.service.edit(DEFAULT_NAMESPACE, name, stopped=True)
            way += "; trials that run now continue to their ends"
    if verbose:
        sys.stderr.write(f"{way}\n")


def _lists_of(constants: Mapping[str, Any]) -> Iterator[str]:
    """Yield a note for each constant that looks like choices."""
    for key, value in constants.items():
        if isinstance(value, list) and len(value) > 1 and all(isinstance(v, str | bool | None) for v in value):
            text = shortened(value)
            yield f'parameters["{key}"]: each trial gets {text}; to search it, write katib.search.categorical({text})'


def _option_of(root: Path) -> str:
    """Return the option for commands to find a data directory, after a blank; empty if they find it without."""
    is_default = root == Path(os.environ.get("KATIB_HOME") or ".katib")
    is_found = is_default and not os.environ.get("KATIB_CONTEXT") and not os.environ.get("KATIB_SERVER")
    return "" if is_found else f" --data-dir {shlex.quote(str(root))}"


def _fresh_name(function: Callable[..., Any]) -> str:
    words = "".join(c if c.isascii() and c.isalnum() else "-" for c in getattr(function, "__name__", "").lower())
    stem = words.strip("-0123456789")[:24].strip("-") or "tune"
    return f"{stem}-{secrets.token_hex(3)}"


def _template(payload: Payload, file: Path) -> Json:
    words = payload.words(lambda name: f"${{trialParameters.{name}}}")
    container = {
        "name": _CONTAINER,
        "image": "python",
        "command": [sys.executable, "-m", "katib.sdk.trial", str(file), *words],
    }
    return {
        "primaryContainerName": _CONTAINER,
        "trialParameters": [{"name": name, "reference": name} for name in payload.parameters],
        "trialSpec": {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "spec": {
                "backoffLimit": 0,  # a function that raised once raises again
                "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
            },
        },
    }


def _evaluated(
    service: TuningService,
    stored: Experiment,
    payload: Payload,
    file: Path,
    preload: Sequence[str],
    follow: Callable[[], Experiment],
) -> Experiment:
    """Have a warm process evaluate the trials of an experiment; return it when it has ended."""
    slots = warm_slots(file, preload, stored.spec.parallel_trial_count or 1)
    place = ExperimentPlace(file.parent.parent)
    experiment = AskedExperiment(
        ExperimentHome(service, ExitStack()),
        stored,
        lambda key, text: payload.parameters[key].value(text),
        place,
        lease_seconds=_LEASE_SECONDS,
    )
    followed: list[Experiment] = []

    def show() -> None:
        with suppress(KatibError):  # of an interrupted search
            followed.append(follow())

    showing = threading.Thread(target=show, name="katib-tune", daemon=True)
    try:
        with experiment:
            showing.start()
            evaluate(experiment, slots, lambda trial: trial.parameters)
            if not experiment.has_ended:
                modules = ", ".join(preload)
                raise TuneError(f"{stored.name}: the process that imports {modules} has ended; its output says why")
            showing.join()
    finally:
        for slot in slots:
            slot.close()
    return followed[0] if followed else service.get(Experiment, stored.namespace, stored.name)


def _follow(running: _Running, *, verbose: bool) -> Experiment:
    service, experiment = running.service, running.experiment
    progress = RunProgress(experiment, datetime.now(UTC))
    with _display(progress, verbose=verbose) as display:
        # The experiment's own changes may overtake those of its trials, which are then read directly.
        last = partial(service.changes, DEFAULT_NAMESPACE, experiment.name, timeout_seconds=_LAST_CHANGES_SECONDS)
        for changes in (partial(_changes, running), last):
            for change in changes():
                for moment in progress.observe(change):
                    display.tell(with_remedy(moment, service))
                if progress.finished and (changes is not last or progress.all_reported):
                    break
            if progress.all_reported:
                break
    if verbose and (savings := savings_of(service, progress.experiment)):
        sys.stdout.write(f"{savings}\n")
    return progress.experiment


def _changes(running: _Running) -> Iterator[Change]:
    """Yield the changes of an experiment; from an engine of this process while it has its data directory."""
    patience, place = None if running.engine is None else _CHECK_SECONDS, ""
    while True:
        changes = running.service.changes(
            DEFAULT_NAMESPACE, running.experiment.name, timeout_seconds=patience, since=place
        )
        for change in changes:
            place = change.cursor or place
            yield change
        if running.engine is not None:
            running.engine.check_directory()


def _display(progress: RunProgress, *, verbose: bool) -> EventLines | ProgressBar | SilentLines:
    if not verbose:
        return SilentLines()
    return ProgressBar(progress) if in_notebook() else EventLines(progress, sys.stdout)
