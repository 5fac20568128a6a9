"""What the sweeper of Hydra does: `hydra/sweeper=katib` (`hydra_plugins/katib_sweeper.py`).

The next trial is asked for as soon as a job ends. One job at a time runs in the program itself. Several at once are
processes: each slot is a process that was forked before this program had threads, and forks one for each of its jobs,
so that a job that is killed is a failed trial. Jobs report through a pipe (`katib.report`), which answers whether to
stop.
"""

from __future__ import annotations

import inspect
import logging
import multiprocessing
import signal
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from functools import partial
from itertools import count
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep
from omegaconf import OmegaConf

from katib.api.names import name_of_title
from katib.errors import KatibError, invalid, one_line
from katib.sdk import reporting, search
from katib.sdk.asking import AskedTrial, Experiment, StopTrial
from katib.sdk.creating import create
from katib.sdk.results import TuneResult
from katib.sdk.search import Parameter

if TYPE_CHECKING:
    from hydra_plugins.katib_sweeper import KatibSweeper

_LOG = logging.getLogger(__name__)
_FORKS = multiprocessing.get_context("fork")
_RESULTS = "optimization_results.yaml"
_LOOK_SECONDS = 1.0
"""How soon a search that is interrupted while it waits for a trial ends."""

Readings = Mapping[str, float]
Run = Callable[[Sequence[str], int], "Outcome"]
"""Runs a job with overrides, as the one of a number."""


class Space(NamedTuple):
    """What a sweep is about.

    Attributes:
        parameters: The search space by name.
        keys: How an override names each parameter, such as `+lr`.
        constants: Overrides of every job.
    """

    parameters: dict[str, Parameter]
    keys: dict[str, str]
    constants: list[str]

    def overrides(self, values: Mapping[str, Any]) -> list[str]:
        """Return the overrides of a job with these values."""
        return [*self.constants, *(f"{self.keys[name]}={value}" for name, value in values.items())]


class Outcome(NamedTuple):
    """How a job ended.

    Attributes:
        values: What it returned, by name of the metric; empty where its reports count.
        failure: Why it failed; empty where it did not.
    """

    values: Readings
    failure: str = ""


def search_with(sweeper: KatibSweeper, arguments: Sequence[str]) -> TuneResult:
    """Run a job for each trial until the experiment has ended; write what was found into the sweep's directory.

    Args:
        sweeper: Has been set up.
        arguments: Overrides of the command line, which go before those of `params`.

    Raises:
        InvalidError: The options or the search space make no experiment.
        KatibError: No trial has a value.
    """
    assert sweeper.hydra_context is not None
    assert sweeper.config is not None
    parser = OverridesParser.create(config_loader=sweeper.hydra_context.config_loader)
    lines = [f"{name}={text}" for name, text in sweeper.params.items()]
    space = space_of(parser.parse_overrides([*lines, *arguments]))
    sweeper.validate_batch_is_legal([space.constants])
    options = {**sweeper.options, **(sweeper.options["options"] or {})}
    del options["options"]
    if unknown := set(options) - set(inspect.signature(create).parameters):
        cause = f"katib.create has no argument {', '.join(sorted(unknown))}"
        raise invalid("hydra.sweeper.options", cause, "see its documentation", "hydra-options")
    options["name"] = options["name"] or name_of_title(f"{sweeper.config.hydra.job.name}-{uuid.uuid4().hex[:8]}")
    names = list(options["objectives"] or [options["objective"]])
    directory = Path(sweeper.config.hydra.sweep.dir)
    directory.mkdir(parents=True, exist_ok=True)
    OmegaConf.save(sweeper.config, directory / "multirun.yaml")

    def run(overrides: Sequence[str], index: int) -> Outcome:
        assert sweeper.launcher is not None
        (returned,) = sweeper.launcher.launch([overrides], initial_job_idx=index)
        try:
            return Outcome(values_of(returned.return_value, names))
        except StopTrial:
            return Outcome({})
        except Exception as error:  # noqa: BLE001 - whatever the job raises fails its trial
            _LOG.warning("job %d failed", index, exc_info=error)
            return Outcome({}, f"{type(error).__name__}: {error}")

    parallel = int(options["parallel"])
    slots = _forked(run, parallel) if parallel > 1 else []
    try:
        with create(parameters=space.parameters, **options) as experiment:
            _LOG.info("katib: experiment %s; katib ui %s shows it", experiment.name, experiment.name)
            if slots:
                _evaluate_at_once(sweeper, experiment, space, slots)
            else:
                _evaluate(sweeper, experiment, space, _Here(run), count())
            result = experiment.result()
    finally:
        for slot in slots:
            slot.close()
    _write(result, directory / _RESULTS)
    return result


def space_of(overrides: Iterable[Override]) -> Space:
    """Return the search space and the constants of overrides; of two for one key the last counts.

    Raises:
        InvalidError: There is nothing to search.
    """
    space = Space({}, {}, [])
    last = {override.key_or_group: override for override in overrides}
    for name, override in last.items():
        if override.is_sweep_override():
            space.parameters[name] = parameter_of(override)
            space.keys[name] = override.get_key_element()
        else:
            space.constants.append(str(override.input_line))
    if not space.parameters:
        remedy = "give one, such as 'lr=tag(log, interval(1e-4, 1e-1))', here or in hydra.sweeper.params"
        raise invalid("overrides", "there is no parameter to search", remedy, "hydra-space")
    return space


def parameter_of(override: Override) -> Parameter:
    """Return the parameter that a sweep of Hydra's grammar is: an interval, a range or a choice."""
    sweep = override.value()
    if isinstance(sweep, IntervalSweep):
        log = "log" in sweep.tags
        if isinstance(sweep.start, int) and isinstance(sweep.end, int):
            return search.int(sweep.start, sweep.end, log=log)
        return search.double(float(sweep.start or 0), float(sweep.end or 0), log=log)
    if isinstance(sweep, RangeSweep):
        values = sorted(sweep.range())
        if values and all(isinstance(value, int) for value in values):
            return search.int(values[0], values[-1], step=abs(int(sweep.step)), log="log" in sweep.tags)
        if values:
            return search.double(values[0], values[-1], step=abs(float(sweep.step)))
        raise invalid(override.key_or_group, "the range is empty", "swap its bounds", "hydra-space")
    return search.categorical(override.sweep_string_iterator())


def values_of(returned: Any, names: Sequence[str]) -> Readings:
    """Return what a job returned by name: a number, several in the order of the objectives, or by name; None: nothing.

    Raises:
        TypeError: It is nothing of that kind.
    """
    if returned is None:
        return {}
    if isinstance(returned, Mapping):
        found = dict(returned)
    else:
        values = list(returned) if isinstance(returned, list | tuple) else [returned]
        if len(values) != len(names):
            raise TypeError(f"the function returned {len(values)} values; return one for each of {', '.join(names)}")
        found = dict(zip(names, values, strict=True))
    return {name: float(text) for name, text in reporting.metric_texts(found)}


# --- running jobs -----------------------------------------------------------------------------------------------------


class _Here:
    """Runs jobs in this program."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def run(self, overrides: Sequence[str], index: int, report: reporting.Receiver) -> Outcome:
        reporting.have_received_by(report)
        try:
            return self._run(overrides, index)
        finally:
            reporting.have_received_by(None)


class _Slot:
    """Runs jobs in processes, one after the other.

    Args:
        run: Runs one; called in its process.
        before: Slots that were made before: a fork closes the pipes that it inherits.
    """

    def __init__(self, run: Run, before: Sequence[_Slot]) -> None:
        self.pipe, theirs = _FORKS.Pipe()
        inherited = [*(slot.pipe for slot in before), self.pipe]
        self._process = _FORKS.Process(target=_fork_jobs, args=(theirs, inherited, run), name="katib-jobs")
        self._process.start()
        theirs.close()

    def run(self, overrides: Sequence[str], index: int, report: reporting.Receiver) -> Outcome | None:
        """Return how a job ended; None where `close` ended it."""
        with suppress(EOFError, OSError):
            self.pipe.send((overrides, index))
            while not isinstance(message := self.pipe.recv(), Outcome):
                self.pipe.send(_answered(report, *message))
            return message
        return None

    def close(self) -> None:
        """End the job that runs, if any."""
        self._process.terminate()
        self._process.join()
        self.pipe.close()


def _forked(run: Run, count: int) -> list[_Slot]:
    slots: list[_Slot] = []
    for _ in range(count):
        slots.append(_Slot(run, slots))
    return slots


def _fork_jobs(pipe: Connection, inherited: Sequence[Connection], run: Run) -> None:
    """Fork a process for each job that comes through a pipe, until it is closed. It has no threads."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the jobs, too: at Ctrl-C the program ends this process
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    for one in inherited:
        one.close()
    with suppress(EOFError, OSError):
        while True:
            overrides, index = pipe.recv()
            ours, theirs = _FORKS.Pipe()
            job = _FORKS.Process(target=_run_job, args=(theirs, (ours, pipe), run, overrides, index))
            job.start()
            theirs.close()
            try:
                outcome = _relayed(ours, pipe, job.sentinel)
            except BaseException:
                job.terminate()
                raise
            job.join()
            pipe.send(outcome or Outcome({}, f"its process ended with exit code {job.exitcode}"))


def _relayed(job: Connection, pipe: Connection, sentinel: int) -> Outcome | None:
    """Pass messages of a job on, and the answers back, until it ends; return how, or None where it did not say."""
    while True:
        ready = wait([job, pipe, sentinel])
        if pipe in ready:
            job.send(pipe.recv())
        elif job in ready:
            try:
                message = job.recv()
            except EOFError:
                return None
            if isinstance(message, Outcome):
                return message
            pipe.send(message)
        else:
            return None


def _answered(report: reporting.Receiver, readings: Readings, step: int | None) -> str:
    """Report for a job; return why it should stop, empty while it may go on."""
    try:
        report(readings, step)
    except StopTrial as stop:
        return str(stop)
    return ""


def _run_job(
    pipe: Connection,
    inherited: Sequence[Connection],
    run: Run,
    overrides: Sequence[str],
    index: int,
) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for one in inherited:
        one.close()

    def report(readings: Readings, step: int | None) -> None:
        pipe.send((readings, step))
        if stop := pipe.recv():
            raise StopTrial(stop)

    reporting.have_received_by(report)
    pipe.send(run(overrides, index))


def _evaluate(
    sweeper: KatibSweeper, experiment: Experiment, space: Space, runner: _Here | _Slot, numbers: Iterator[int]
) -> None:
    """Ask for trials and run a job for each, one after the other, until the experiment has ended.

    The trial of a job that Ctrl-C ends is asked for again, once its lease has ended.
    """
    while True:
        trial = experiment.ask(_LOOK_SECONDS)
        if trial is not None:
            overrides = space.overrides(trial.parameters)
            try:
                sweeper.validate_batch_is_legal([overrides])
                outcome = runner.run(overrides, next(numbers), partial(_report, trial))
            except Exception as error:
                trial.fail(one_line(error))
                raise
            if outcome is None:
                return
            _tell(trial, outcome)
        elif experiment.has_ended:
            return


def _evaluate_at_once(sweeper: KatibSweeper, experiment: Experiment, space: Space, slots: Sequence[_Slot]) -> None:
    """Do the same in all slots at once; what goes wrong in one of them ends all."""
    numbers = count()
    with ThreadPoolExecutor(len(slots)) as pool:
        work = [pool.submit(_evaluate, sweeper, experiment, space, slot, numbers) for slot in slots]
        try:
            for done in as_completed(work):
                done.result()
        except BaseException:
            for slot in slots:
                slot.close()
            raise


def _report(trial: AskedTrial, readings: Readings, step: int | None) -> None:
    trial.report(readings, step=step)


def _tell(trial: AskedTrial, outcome: Outcome) -> None:
    if trial.has_ended:
        return
    if outcome.failure:
        trial.fail(outcome.failure)
        return
    try:
        trial.tell(outcome.values)
    except KatibError as error:
        trial.fail(one_line(error))


def _write(result: TuneResult, path: Path) -> None:
    found: dict[str, Any] = {"name": "katib", "experiment": result.name}
    if result.pareto:
        found["solutions"] = [{"params": one.parameters, "values": one.values} for one in result.pareto]
    else:
        found |= {"best_params": result.best.parameters, "best_value": result.best.value}
    OmegaConf.save(OmegaConf.create(found), path)
    _LOG.info("katib: %s", result.reason)
