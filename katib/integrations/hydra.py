"""The implementation of Hydra's sweeper `hydra/sweeper=katib` (`hydra_plugins/katib_sweeper.py`).

With one job at a time it runs in the program itself; several at once are processes (`katib.sdk.forking`), forked before
this program has threads.
"""

from __future__ import annotations

import inspect
import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep
from omegaconf import OmegaConf

from katib.errors import invalid
from katib.model.names import name_of_title
from katib.sdk import reporting, search
from katib.sdk.asking import AskedTrial, StopTrial
from katib.sdk.creating import create
from katib.sdk.forking import CallOutcome, InProcessRunner, Readings, Runner, evaluate, forked_slots
from katib.sdk.results import TuneResult
from katib.sdk.search import Parameter
from katib.service.drafting import same_here

if TYPE_CHECKING:
    from hydra.plugins.launcher import Launcher
    from hydra.types import HydraContext
    from omegaconf import DictConfig

_LOG = logging.getLogger(__name__)
_RESULTS = "optimization_results.yaml"


class SweepSpace(NamedTuple):
    """The search space and constants of a sweep.

    Attributes:
        parameters: The search space by name.
        keys: Key of each parameter in overrides, such as `+lr`.
        constants: Overrides of every job.
    """

    parameters: dict[str, Parameter]
    keys: dict[str, str]
    constants: list[str]

    def overrides(self, values: Mapping[str, Any]) -> list[str]:
        return [*self.constants, *(f"{self.keys[name]}={value}" for name, value in values.items())]


class Sweep(Protocol):
    """The state of a sweeper that a sweep uses."""

    params: Mapping[str, Any]
    options: dict[str, Any]
    hydra_context: HydraContext | None
    config: DictConfig | None
    launcher: Launcher | None

    def validate_batch_is_legal(self, batch: Sequence[Sequence[str]]) -> None:
        """Raise an exception of Hydra if overrides do not fit the configuration."""


def search_with(sweeper: Sweep, arguments: Sequence[str]) -> TuneResult:
    """Run a job for each trial until the experiment has ended; write the result to the sweep's directory.

    Args:
        sweeper: A sweeper that has been set up.
        arguments: Overrides from the command line, which precede those of `params`.

    Raises:
        InvalidError: The options or the search space are invalid.
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
        ours = same_here("create()", min(unknown))
        remedy = f"use {ours}" if ours else "see its documentation"
        raise invalid("hydra.sweeper.options", cause, remedy, "hydra-options")
    options["name"] = options["name"] or name_of_title(f"{sweeper.config.hydra.job.name}-{uuid.uuid4().hex[:8]}")
    names = list(options["objectives"] or [options["objective"]])
    directory = Path(sweeper.config.hydra.sweep.dir)
    directory.mkdir(parents=True, exist_ok=True)
    OmegaConf.save(sweeper.config, directory / "multirun.yaml")

    def run(job: tuple[Sequence[str], int]) -> CallOutcome:
        assert sweeper.launcher is not None
        overrides, index = job
        (returned,) = sweeper.launcher.launch([overrides], initial_job_idx=index)
        try:
            return CallOutcome(values_of(returned.return_value, names))
        except StopTrial:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the job raises fails its trial
            _LOG.warning("job %d failed", index, exc_info=error)
            return CallOutcome({}, f"{type(error).__name__}: {error}")

    numbers = count()

    def job_of(trial: AskedTrial) -> tuple[Sequence[str], int]:
        overrides = space.overrides(trial.parameters)
        sweeper.validate_batch_is_legal([overrides])
        return overrides, next(numbers)

    parallel = int(options["parallel"])
    runners: Sequence[Runner] = forked_slots(run, parallel) if parallel > 1 else [InProcessRunner(run)]
    try:
        with create(parameters=space.parameters, **options) as experiment:
            _LOG.info("katib: experiment %s; katib ui %s shows it", experiment.name, experiment.name)
            evaluate(experiment, runners, job_of)
            result = experiment.result()
    finally:
        for runner in runners:
            runner.close()
    _write(result, directory / _RESULTS)
    return result


def space_of(overrides: Iterable[Override]) -> SweepSpace:
    """Return the search space and the constants of overrides; the last of two for one key counts.

    Raises:
        InvalidError: There is nothing to search.
    """
    space = SweepSpace({}, {}, [])
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
    """Return the parameter of an override in Hydra's sweep grammar: an interval, a range or a choice."""
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
    """Return a job's results by name: a number, several in the order of the objectives, or by name; None: no result.

    Raises:
        TypeError: It is of another kind.
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


def _write(result: TuneResult, path: Path) -> None:
    found: dict[str, Any] = {"name": "katib", "experiment": result.name}
    if result.pareto:
        found["solutions"] = [{"params": one.parameters, "values": one.values} for one in result.pareto]
    else:
        found |= {"best_params": result.best.parameters, "best_value": result.best.value}
    OmegaConf.save(OmegaConf.create(found), path)
    _LOG.info("katib: %s", result.reason)
