"""The tools of `katib mcp`: calls of the tuning service with concise answers.

An assistant pays for every word that it reads: tables are not aligned, curves have few points, and `tell` returns the
next trial with its answer.
"""

from __future__ import annotations

import functools
import inspect
import json
import platform
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from mcp.server import MCPServer
from mcp.server.mcpserver import Image
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from msgspec import structs

from katib.doors.cli import columns
from katib.doors.cli.confirm import sentences, table_lines
from katib.doors.cli.explaining import diagnosis_lines, parameter_lines
from katib.errors import KatibError, NotFoundError, one_line
from katib.model.algorithms import AlgorithmInfo
from katib.model.names import EXPERIMENT_LABEL, WORKSPACE_ANNOTATION
from katib.model.types import Experiment, Trial
from katib.model.version import __version__
from katib.service.drafting import Program, Search, draft, next_name, parse_parameter
from katib.service.tuning.reading import (
    algorithm_words,
    assignments_of,
    duration_of,
    metric_values,
    objective_text,
    objective_words,
    parameters_of,
    pareto_words,
    short,
    typed_value,
    with_comparison,
)
from katib.service.tuning.service import (
    Confirm,
    Confirmation,
    ExplainObject,
    GetConfirmation,
    Json,
    ListAlgorithms,
    Pause,
    PausedExperiment,
    State,
    TrialOrder,
    TuningService,
)
from katib.service.tuning.states import failure_of, is_completed, last_condition, state_of
from katib.service.tuning.verbs import A, Verb

F = TypeVar("F", bound=Callable[..., Any])

_INSTRUCTIONS = (
    "Hyperparameter tuning. An experiment searches parameters; its trials are evaluated by a command that it runs, "
    "or by you: ask for parameters, evaluate them, tell the value."
)
_LEASE_SECONDS = 3_600.0
"""How long an assistant may take for a trial."""
_WAIT_SECONDS = 20.0
_LOOK_SECONDS = 0.5
_MOST_ROWS, _MOST_LINES, _MOST_POINTS = 50, 100, 12
_SOURCE = "katib mcp"


def server_of(service: TuningService, namespace: str, *, writes: bool) -> MCPServer:
    """Return the server of the reading tools, or of all.

    Args:
        service: Answers the requests.
        namespace: Namespace of the experiments.
        writes: Whether to include tools that change something.
    """
    server = MCPServer("katib", version=__version__, instructions=_INSTRUCTIONS, log_level="WARNING")
    tools = Tools(service, namespace)
    for tool in tools.reading:
        server.add_tool(_explained(tool), annotations=ToolAnnotations(read_only_hint=True), structured_output=False)
    for tool in tools.writing if writes else ():
        hints = ToolAnnotations(destructive_hint=tool == tools.stop)
        server.add_tool(_explained(tool), annotations=hints, structured_output=False)
    for verb, words in _VERBS.items():
        if writes or not verb.rest.may_change:
            hints = ToolAnnotations(read_only_hint=not verb.rest.may_change)
            tool = verb_tool(verb, words, service, namespace)
            server.add_tool(_explained(tool), annotations=hints, structured_output=False)
    return server


def _explained(function: F) -> F:
    """Return a tool whose errors are one line, with a remedy."""

    @functools.wraps(function)
    def tool(*args: Any, **kwargs: Any) -> Any:
        try:
            answer = function(*args, **kwargs)
            return answer if isinstance(answer, str | Image) else "\n".join(answer)
        except KatibError as error:
            raise ToolError(one_line(error)) from None

    return tool  # type: ignore[return-value]  # called as the function is


def verb_tool(
    verb: type[Verb[A]], words: Callable[[A], Iterable[str]], service: TuningService, namespace: str
) -> Callable[..., Iterable[str]]:
    """Return a tool for a verb.

    Args:
        verb: Its fields without the namespace are the arguments; the first paragraph of its docstring is the
            description.
        words: Returns the lines of an answer.
        service: Answers the requests.
        namespace: Namespace of all requests.
    """
    fields = [field for field in structs.fields(verb) if field.name != "namespace"]
    fixed = {"namespace": namespace} if len(fields) < len(verb.__struct_fields__) else {}

    def tool(**arguments: Any) -> Iterable[str]:
        return words(service.call(verb(**fixed, **arguments)))

    def parameter(field: structs.FieldInfo) -> inspect.Parameter:
        kind = get_args(field.type)[0] if get_origin(field.type) is Annotated else field.type
        default = inspect.Parameter.empty if field.required else field.default
        return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)

    tool.__name__, tool.__doc__ = verb.verb, (verb.__doc__ or "").partition("\n\n")[0]
    tool.__signature__ = inspect.Signature(list(map(parameter, fields)))  # type: ignore[attr-defined]  # of any function
    tool.__annotations__ = {}
    return tool


class Tools:
    """Tools of an assistant. It reads the docstrings."""

    def __init__(self, service: TuningService, namespace: str) -> None:
        self._service = service
        self._namespace = namespace

    @property
    def reading(self) -> tuple[Callable[..., Any], ...]:
        """The tools that change nothing."""
        return (
            self.experiments,
            self.experiment,
            self.trials,
            self.trial,
            self.compare,
            self.figure,
            self.watch,
        )

    @property
    def writing(self) -> tuple[Callable[..., Any], ...]:
        """The tools that change something."""
        return (self.start, self.submit, self.ask, self.report, self.tell, self.stop)

    # --- reading ------------------------------------------------------------------------------------------------------

    def experiments(self) -> Iterator[str]:
        """List the newest experiments: name, state, trials done of all, best value, age."""
        found = list(self._service.experiments(self._namespace))
        for experiment in found[: -_MOST_ROWS - 1 : -1]:
            cells = columns.cells_of(experiment)
            yield " ".join(cells[heading] for heading in columns.EXPERIMENT if cells[heading])
        yield f"{len(found)} experiments"

    def experiment(self, name: str) -> Iterator[str]:
        """Describe an experiment: progress, objective, best trial, algorithm and search space."""
        found = self._get(name)
        yield _progress(found)
        yield f"{objective_words(found)}; {algorithm_words(found.spec.algorithm)}"
        yield from self._best(found)
        yield from parameter_lines(found.spec.parameters)

    def trials(
        self, experiment: str, order: TrialOrder = "objective", state: State | Literal[""] = "", limit: int = 10
    ) -> Iterator[str]:
        """List trials, by default the best first: name, state, objective, parameters.

        Args:
            experiment: Its name.
            order: objective, age, duration or name.
            state: Only those in this state, such as Running, Succeeded, EarlyStopped or Failed.
            limit: Maximum number, up to 50.
        """
        states = (state,) if state else ()
        limit = max(1, min(limit, _MOST_ROWS))
        page = self._service.trials(self._namespace, experiment, states=states, order=order, limit=limit)
        yield from map(_row, page.items)
        yield f"{len(page.items)} of {page.total} trials"

    def trial(self, name: str, lines: int = 10) -> Iterator[str]:
        """Show a trial: parameters, metrics, its curve as step:value, and the last lines of its output."""
        found = self._service.get(Trial, self._namespace, name)
        yield f"{name} {state_of(found)} {duration_of(found)} {failure_of(found)}".rstrip()
        yield parameters_of(found, whole=True)
        yield " ".join(f"{metric}={value}" for metric, value in metric_values(found))
        curve = self._service.curve(self._namespace, name, points=_MOST_POINTS)
        if len(curve) > 1:
            yield " ".join(f"{'' if point.step is None else point.step}:{short(point.value)}" for point in curve)
        with suppress(NotFoundError):  # trials of callers have no output
            chunks = self._service.logs(self._namespace, name, tail_lines=max(0, min(lines, _MOST_LINES)))
            yield from b"".join(chunks).decode(errors="replace").splitlines()

    def compare(self, trials: list[str]) -> Iterator[str]:
        """Compare trials: their results, and the parameters in which they differ."""
        found = [self._service.get(Trial, self._namespace, name) for name in trials]
        values = [assignments_of(trial) for trial in found]
        names = dict.fromkeys(name for one in values for name in one)
        differ = [name for name in names if len({one.get(name) for one in values}) > 1]
        for trial, one in zip(found, values, strict=True):
            shown = " ".join(f"{name}={short(one.get(name, '-'))}" for name in differ)
            yield f"{trial.name} {state_of(trial)} {objective_text(trial) or '-'} {duration_of(trial)} {shown}"
        same = [f"{name}={short(values[0][name])}" for name in names if name not in differ and values]
        yield f"the same: {' '.join(same) or 'nothing'}"

    def figure(self, experiment: str, figure: str = "history") -> Image:
        """Draw a figure of an experiment, such as history, importances, parallel, slice, contour or pareto."""
        from katib.figures.data import FigureOptions as FigureChoice
        from katib.figures.files import figure_bytes
        from katib.figures.pictures import pictures_of
        from katib.figures.reading import read_experiment

        data = read_experiment(self._service, self._namespace, experiment)
        (picture,) = pictures_of(self._service, data, [figure], FigureChoice(), strict=True)
        assert picture.figure is not None
        return Image(data=figure_bytes(picture.figure, "png"), format="png")

    def watch(self, experiment: str, seconds: float = _WAIT_SECONDS) -> Iterator[str]:
        """Wait until an experiment has ended, for at most this many seconds (up to 50), and return its progress."""
        deadline = time.monotonic() + min(seconds, 50.0)
        while not is_completed(found := self._get(experiment)) and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        yield _progress(found)
        yield from self._best(found)

    # --- writing ------------------------------------------------------------------------------------------------------

    def start(
        self,
        parameters: list[str],
        metric: str,
        direction: Literal["minimize", "maximize"],
        command: str = "",
        name: str = "",
        trials: int = 20,
        parallel: int = 1,
        algorithm: str = "auto",
        early_stopping: str = "",
        goal: float | None = None,
        where: list[str] | None = None,
    ) -> str:
        """Start a search. Without a command you evaluate its trials, by ask and tell.

        Args:
            parameters: Such as lr=1e-5..0.1:log, layers=1..4, x=0..1:step=0.25 or opt=adam,sgd.
            metric: Name of the objective; a command prints it as lines like loss=0.25.
            direction: minimize or maximize.
            command: Run for each trial, with {lr} in place of the value of lr.
            name: Name of the experiment; generated if empty.
            trials: Number of trials.
            parallel: Number of trials at once.
            algorithm: One of the tool algorithms.
            early_stopping: Stops hopeless trials, such as median or asha.
            goal: The value of the metric that ends the search.
            where: Comparisons of parameters that all trials satisfy, such as layers * units <= 4096.
        """
        space = [parse_parameter(text) for text in parameters]
        latest = {"metricStrategies": [{"name": metric, "value": "latest"}]}
        search = Search(
            {metric: direction},
            trials,
            parallel,
            algorithm,
            early_stopping=early_stopping,
            goal=goal,
            where=where or (),
        )
        program = Program((command,))
        space = program.with_defaults(space, where or ())[0] if command else space
        made = program.template(space) if command else None
        taken = [one.name for one in self._service.experiments(self._namespace)]
        name = name or next_name(made.name if made else "search", taken)
        experiment = draft(name, search, space, made.template if made else {})
        if command:
            experiment["metadata"]["annotations"] = {WORKSPACE_ANNOTATION: str(Path.cwd())}
        else:
            del experiment["spec"]["trialTemplate"]
            experiment["spec"]["objective"] |= latest  # the told value counts, whatever was reported before
        return self._submitted(json.dumps(experiment))

    def submit(self, yaml: str) -> str:
        """Submit an Experiment of Katib as YAML, or change the budget of the one of that name."""
        return self._submitted(yaml)

    def ask(self, experiment: str) -> str:
        """Get a trial to evaluate, of an experiment without a command: its name and its parameters."""
        return self._asked(self._get(experiment))

    def report(self, trial: str, values: dict[str, float], step: int | None = None) -> str:
        """Report readings of a trial that you evaluate, such as once per epoch; the answer tells whether to stop."""
        answer = self._service.report(self._namespace, trial, values, step=step, request_id=_new_id())
        return f"stop: {answer.stop}; tell it" if answer.stop else "continue"

    def tell(
        self, trial: str, values: dict[str, float] | None = None, failed: str = "", ask_next: bool = True
    ) -> Iterator[str]:
        """End a trial that you asked for, and get the next one.

        Args:
            trial: Its name.
            values: The metric by name; omitted: the reported value.
            failed: Why it has no value.
            ask_next: Whether to return the next trial.
        """
        found = self._service.get(Trial, self._namespace, trial)
        self._service.tell(self._namespace, trial, values or {}, failure=failed or None, request_id=_new_id())
        experiment = self._get(found.metadata.labels.get(EXPERIMENT_LABEL, ""))
        first = self._service.trials(self._namespace, experiment.name, order="objective", limit=1)
        best = "".join(f", the best {one.name} {objective_text(one) or '-'}" for one in first.items)
        yield f"told; {first.total} trials{best}"
        if ask_next:
            yield self._asked(experiment)

    def stop(self, experiment: str) -> str:
        """Start no further trials of an experiment; running ones continue."""
        return _progress(self._service.edit(self._namespace, experiment, stopped=True))

    # --- parts of answers ---------------------------------------------------------------------------------------------

    def _get(self, experiment: str) -> Experiment:
        return self._service.get(Experiment, self._namespace, experiment)

    def _best(self, experiment: Experiment) -> Iterable[str]:
        if experiment.status.pareto_set is not None:
            return [with_comparison(f"Pareto set: {pareto_words(experiment)}", experiment)]
        best = self._service.best(self._namespace, experiment.name)
        return [with_comparison(f"best: {_row(best)}", experiment)] if best is not None else []

    def _submitted(self, document: str) -> str:
        submission = self._service.submit(document, source=_SOURCE, namespace=self._namespace)
        notices = "".join(f"; {notice}" for notice in submission.notices)
        return f"{submission.experiment.name} {submission.outcome}{notices}"

    def _asked(self, experiment: Experiment) -> str:
        given = self._service.ask(
            self._namespace,
            experiment.name,
            request_id=_new_id(),
            client=f"mcp-{platform.node()}"[:63],
            lease_seconds=_LEASE_SECONDS,
            wait_seconds=_WAIT_SECONDS,
        )
        if given.trial is None:
            return f"no trial: {given.reason}"
        types = {one.name: one.parameter_type for one in experiment.spec.parameters}
        return f"{given.trial.name} {json.dumps(_typed(types, assignments_of(given.trial)), ensure_ascii=False)}"


def _algorithm_lines(infos: Iterable[AlgorithmInfo]) -> list[str]:
    return [f"{one.name}{' (early stopping)' if one.early_stopping else ''}: {one.summary}" for one in infos]


def _paused_lines(answer: PausedExperiment) -> list[str]:
    return [_progress(answer.experiment), f"{len(answer.trials)} trials with it"]


def _confirmation_lines(found: Confirmation | None) -> Iterable[str]:
    if found is None:
        return ["not confirmed: the tool confirm runs its best configurations again"]
    return [f"{found.confirmed_by} {found.state}", *table_lines(found), *sentences(found)]


_VERBS: Mapping[type[Verb[Any]], Callable[[Any], Iterable[str]]] = {
    ExplainObject: diagnosis_lines,
    ListAlgorithms: _algorithm_lines,
    GetConfirmation: _confirmation_lines,
    Confirm: _confirmation_lines,
    Pause: _paused_lines,
}
"""Verbs that become tools unchanged, with the lines of their answers."""


def _typed(types: Mapping[str, str], texts: Mapping[str, str]) -> Json:
    return {name: typed_value(types.get(name, ""), text) for name, text in texts.items()}


def _progress(experiment: Experiment) -> str:
    condition = last_condition(experiment)
    return f"{experiment.name} {state_of(experiment)} {columns.progress_of(experiment)}: {condition.message}"


def _row(trial: Trial) -> str:
    return f"{trial.name} {state_of(trial)} {objective_text(trial) or '-'} {parameters_of(trial)}"


def _new_id() -> str:
    return uuid.uuid4().hex
