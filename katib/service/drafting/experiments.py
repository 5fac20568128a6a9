"""Experiments drafted from a command line or a function, without a hand-written file.

`-p lr=1e-5..1e-1:log` becomes a parameter, `python train.py --lr {lr}` a trial template, and both an Experiment that
`katib run` would accept from a file unchanged.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, Final

from katib.errors import invalid
from katib.model.files.directories import SHELL_SUFFIXES
from katib.model.names import DRAFTED_IMAGE, MAX_EXPERIMENT_NAME, SLURM_OPTIONS_ANNOTATION, WORKSPACE_ANNOTATION
from katib.model.types import API_VERSION, Experiment
from katib.model.wording import shown
from katib.service.drafting.batch_scripts import Batch, option_words
from katib.service.drafting.config_files import filled_config, read_config
from katib.service.drafting.script_options import FLAG

Json = dict[str, Any]

CONTAINER: Final = "main"
PARAMETERS_DIRECTORY: Final = "/etc/katib"
_PARAMETERS_NAME: Final = "parameters.json"
PARAMETERS_FILE: Final = f"{PARAMETERS_DIRECTORY}/{_PARAMETERS_NAME}"
"""Path that replaces `{parameters}`: on one machine, a file of each trial's own."""

METRICS_FILE: Final = "/var/log/katib/metrics.jsonl"
METRICS_DIRECTORY: Final = "/var/log/katib/events"
_ANNOTATION = "katib.kubeflow.org/parameters"
_SCRIPTS: Final = SHELL_SUFFIXES | {".py", ".R", ".jl", ".js"}
_RESERVED = ("parameters", "trial", "metrics")
_FACTS: Final = {"trial": "${trialSpec.Name}", "seed": "${trialSpec.Seed}"}
"""Placeholders for properties of the trial, with their references; a parameter named `seed` takes precedence."""
_WITHOUT_EMPTY_WORDS: Final = 'for w do shift; [ -z "$w" ] || set -- "$@" "$w"; done; exec "$@"'
"""Executes its arguments without the empty ones, which are flags that are off."""
_CONFIG = re.compile(r"(?<!\$)\{config:([^{}]+)\}")
_PLACEHOLDER = re.compile(r"(?<!\$)\{\{([A-Za-z_][\w.-]*)\}\}|(?<!\$)\{([A-Za-z_][\w.-]*)\}")
_NAME = re.compile(r"[A-Za-z_][\w.-]*\Z")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_BUILT_IN: Final = frozenset({"cd", "export", "source", ".", "module", "ulimit", "eval"})
_OPERATORS: Final = frozenset({"|", "||", "&&", "2>&1"})
_INTEGER = re.compile(r"[+-]?\d+\Z")
_RANGE = re.compile(r"(?P<low>[^.:]*(?:\.[^.:]+)?)\.\.(?P<high>[^:]*)(?P<options>(?::.*)?)\Z")
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_OTHER_RANGE = re.compile(rf"(?P<low>{_NUMBER})\s*[-\u2013:;\u2026 ]\s*(?P<high>{_NUMBER})(?P<log>:log)?\Z")
_LIST_OPTION = re.compile(r":(?=(?:default|prior)=|(?:categorical|discrete)(?::|\Z))")
_PRIOR_WORDS = {"prior": "center", "factor": "factor", "width": "width"}
_SYNTAX = "write NAME=LOW..HIGH, NAME=LOW..HIGH:log or NAME=A,B,C"


def parse_parameter(text: str) -> Json:
    """Return the entry of `spec.parameters` for `NAME=VALUES`.

    `1..4` are whole numbers, `1e-5..0.1` and `0.0..1.0` real ones; `:log` spreads values over orders of magnitude,
    `:step=0.5` gives their distance, `:double` and `:int` the type. `16,32,64` are numbers in their order, `adam,sgd`
    are choices without one, as are numbers with `:categorical`. `flag` is an option without a value, such as `--amp`
    for `amp=flag`, that is present or absent. `:default=VALUE` is the value in use today, `on` or `off` for a flag.
    `:prior=VALUE` is the value believed to be best, `:factor=3` or `:width=0.1` how far off it may be.

    Raises:
        InvalidError: The text has another form.
    """
    name, equals, values = text.partition("=")
    where = f"-p {name or text}"
    if not equals or not values:
        raise invalid(where, "has no values", _SYNTAX, "parameter-syntax")
    if not _NAME.match(name):
        raise invalid(where, f"{name!r} is not a name", "use letters, digits, _ and -", "parameter-name")
    if name in _RESERVED:
        raise invalid(where, f"{{{name}}} has a meaning of its own", "choose another name", "parameter-name")
    if values.split(":")[0] == FLAG:
        return {"name": name, **_flag(where, name, values)}
    found = _RANGE.match(values)
    return {"name": name, **(_range(where, found) if found else _list(where, values))}


def for_file(experiment: Json, path: Path) -> Json:
    """Return an experiment to write into a file, whose commands still start in the current directory."""
    here, folder = Path.cwd(), path.resolve().parent
    if folder == here:
        return experiment
    workspace = os.path.relpath(here, folder) if folder.is_relative_to(here) else str(here)
    metadata = experiment["metadata"]
    annotations = {**(metadata.get("annotations") or {}), WORKSPACE_ANNOTATION: workspace}
    return {**experiment, "metadata": {**metadata, "annotations": annotations}}


def few_combinations(parameters: Sequence[Json], trials: int) -> str:
    """Return a warning if a range of whole numbers leaves fewer combinations than trials; else empty."""
    count, ranges = 1, []
    for parameter in parameters:
        space = parameter["feasibleSpace"]
        if parameter["parameterType"] == "int" and "step" not in space:
            spread = ":log" if "distribution" in space else ""
            ranges.append(f"{parameter['name']}={space['min']}..{space['max']}{spread}")
            count *= int(space["max"]) - int(space["min"]) + 1
        elif "list" in space:
            count *= len(space["list"])
        else:
            return ""
    if count >= trials or not ranges:
        return ""
    reals = ", ".join(f"{text}:double" for text in ranges)
    return f"there are only {count} combinations, since {', '.join(ranges)} are whole numbers; for real ones: {reals}"


def _flag(where: str, name: str, values: str) -> Json:
    flag: Json = {"parameterType": "categorical", "feasibleSpace": {"list": [f"--{name}", ""]}}
    states = {f"{FLAG}:default=on": f"--{name}", f"{FLAG}:default=off": ""}
    if values in states:
        return {**flag, "default": states[values]}
    if values != FLAG:
        raise invalid(where, f"{values!r} is not a flag", "write flag, or flag:default=on or :default=off", "option")
    return flag


def _range(where: str, found: re.Match[str]) -> Json:
    low_text, high_text = found["low"].strip(), found["high"].strip()
    low, high = _number(where, low_text), _number(where, high_text)
    if low > high:
        raise invalid(
            where, f"goes from {low_text} down to {high_text}", f"write {high_text}..{low_text}", "bounds-order"
        )
    kind = "int" if _INTEGER.match(low_text) and _INTEGER.match(high_text) else "double"
    space: Json = {"min": low_text, "max": high_text}
    further: Json = {}
    for option in filter(None, found["options"].split(":")):
        word, _, value = option.partition("=")
        if word == "log":
            if low <= 0:
                raise invalid(where, f"cannot be logarithmic from {low_text}", "start above 0", "log-bounds")
            space["distribution"] = "logUniform"
        elif word == "step" and _number(where, value) > 0:
            space["step"] = value
        elif word == "default" and value:
            further["default"] = value
        elif word in _PRIOR_WORDS and value:
            further.setdefault("prior", {})[_PRIOR_WORDS[word]] = value
        elif word in ("double", "float"):
            kind = "double"
        elif word == "int" and low == int(low) and high == int(high):
            kind, space["min"], space["max"] = "int", str(int(low)), str(int(high))
        else:
            raise invalid(
                where,
                f":{option} is not an option of a range",
                "use :log, :step=NUMBER above 0, :default=VALUE, :prior=VALUE, :int or :double",
                "option",
            )
    return {"parameterType": kind, "feasibleSpace": space, **further}


def _list(where: str, values: str) -> Json:
    text, *options = _LIST_OPTION.split(values)
    further: Json = dict(option.split("=", 1) for option in options if "=" in option)
    if "prior" in further:
        further["prior"] = {"center": further["prior"]}
    kind = next((option for option in options if "=" not in option), None)
    word = text.rpartition(":")[2]
    choices = [choice.strip() for choice in text.split(",")]
    if (
        choices[0][:1] in ("[", "(")
        or choices[0].count("(") != choices[0].count(")")
        or (len(choices) > 1 and word in ("log", "int", "double", "float"))
    ):
        raise invalid(where, f"{values!r} is neither a range nor a list of values", _SYNTAX, "parameter-syntax")
    if other := _OTHER_RANGE.match(values):
        remedy = f"for a range, write {other['low']}..{other['high']}{other['log'] or ''}"
        raise invalid(where, f"{values!r} is one value", remedy, "parameter-syntax")
    if "" in choices:
        raise invalid(where, "has an empty value", _SYNTAX, "parameter-syntax")
    twice = next((choice for position, choice in enumerate(choices) if choice in choices[:position]), None)
    if twice is not None:
        raise invalid(where, f"{twice} is there twice", "name each value once", "choice-text")
    if kind is None:
        kind = "discrete" if len(choices) > 1 and all(map(_is_number, choices)) else "categorical"
    return {"parameterType": kind, "feasibleSpace": {"list": choices}, **further}


def _is_number(text: str) -> bool:
    try:
        return float(text) - float(text) == 0
    except ValueError:
        return False


def _number(where: str, text: str) -> float:
    if not _is_number(text):
        raise invalid(where, f"{text!r} is not a number", _SYNTAX, "number")
    return float(text)


@dataclass(frozen=True, slots=True)
class Metrics:
    """Source of a program's metrics.

    Attributes:
        kind: `stdout`, `json` or `tensorboard`.
        path: The file or directory that its command names; empty if the command uses `{metrics}`.
        formats: Patterns of `metricsFormat` for printed metrics; without any, metrics are found by their names.
    """

    kind: str = "stdout"
    path: str = ""
    formats: tuple[str, ...] = ()

    @property
    def mounted_path(self) -> str:
        """The absolute path, at which each trial has a file or directory of its own."""
        fallback = METRICS_FILE if self.kind == "json" else METRICS_DIRECTORY
        if not self.path:
            return fallback
        return self.path if self.path.startswith("/") else f"/var/log/katib/{self.path.removeprefix('./')}"


def parse_metrics(text: str, formats: Sequence[str] = ()) -> Metrics:
    """Return the source for `stdout`, `json[:FILE]` or `tensorboard[:DIR]`, with patterns for printed metrics.

    Raises:
        InvalidError: The text has another form, or there are patterns for a source that is not text.
    """
    kind, _, path = text.partition(":")
    if kind not in ("stdout", "json", "tensorboard") or (kind == "stdout" and path):
        remedy = "use stdout, json:FILE or tensorboard:DIR"
        raise invalid("--metrics", f"{text!r} is not a source of metrics", remedy, "metrics-source")
    if formats and kind != "stdout":
        cause = f"metrics are read from {kind}, which has no format of lines"
        raise invalid("--metrics-format", cause, "leave it out, or leave out --metrics", "metrics-source")
    return Metrics(kind, path, tuple(formats))


@dataclass(frozen=True, slots=True)
class Search:
    """The goal and extent of a search, in terms of an Experiment's spec.

    Attributes:
        objectives: `minimize` or `maximize` by name of the metric, the most important first.
        parallel: Number of trials to run at once.
        early_stopping: An early stopping algorithm; empty for none.
        goal: The value of the first objective that ends the search; None for none.
        strategy: Strategy of each objective, such as `mean`; empty for the best reading.
        where: Comparisons of parameters that all trials satisfy.
        more: Further fields of the spec.
    """

    objectives: Mapping[str, str]
    max_trials: int
    parallel: int
    algorithm: str = "auto"
    settings: Mapping[str, Any] = field(default_factory=dict)
    early_stopping: str = ""
    goal: float | None = None
    strategy: str = ""
    where: Sequence[str] = ()
    more: Mapping[str, Any] = field(default_factory=dict)


def draft(name: str, search: Search, parameters: Sequence[Json], template: Json, metrics: Metrics = Metrics()) -> Json:
    objective: Json
    if len(search.objectives) == 1:
        ((metric, direction),) = search.objectives.items()
        objective = {"type": direction, "objectiveMetricName": metric}
        if search.goal is not None:
            objective["goal"] = search.goal
    else:
        objective = {"objectives": [{"name": metric, "type": kind} for metric, kind in search.objectives.items()]}
    if search.strategy:
        objective["metricStrategies"] = [{"name": name, "value": search.strategy} for name in search.objectives]
    algorithm: Json = {"algorithmName": search.algorithm}
    if search.settings:
        algorithm["algorithmSettings"] = [{"name": key, "value": str(value)} for key, value in search.settings.items()]
    spec: Json = {
        "objective": objective,
        "algorithm": algorithm,
        "maxTrialCount": search.max_trials,
        "parallelTrialCount": min(search.parallel, search.max_trials),
        "resumePolicy": "FromVolume",  # the budget may be raised, and no service waits for that
        "parameters": list(parameters),
        "trialTemplate": template,
    }
    if search.where:
        spec["parameterConstraints"] = list(search.where)
    if search.early_stopping:
        spec["earlyStopping"] = {"algorithmName": search.early_stopping}
    if metrics.kind != "stdout":
        spec["metricsCollectorSpec"] = _collector(metrics)
    elif metrics.formats:
        source = {"filter": {"metricsFormat": list(metrics.formats)}}
        spec["metricsCollectorSpec"] = {"collector": {"kind": "StdOut"}, "source": source}
    return {
        "apiVersion": API_VERSION,
        "kind": "Experiment",
        "metadata": {"name": name},
        "spec": {**spec, **search.more},
    }


def _collector(metrics: Metrics) -> Json:
    if metrics.kind == "json":
        path = {"path": metrics.mounted_path, "kind": "File", "format": "JSON"}
        return {"collector": {"kind": "File"}, "source": {"fileSystemPath": path}}
    path = {"path": metrics.mounted_path, "kind": "Directory"}
    return {"collector": {"kind": "TensorFlowEvent"}, "source": {"fileSystemPath": path}}


@dataclass(frozen=True, slots=True)
class CommandTemplate:
    """A trial template that runs a command, with notes for the user.

    Attributes:
        name: Default name of its experiments.
    """

    template: Json
    name: str
    notes: tuple[str, ...] = ()


def command_template(
    command: Sequence[str],
    parameters: Sequence[Json],
    metrics: Metrics,
    *,
    timeout_seconds: int | None = None,
    batch: Batch | None = None,
) -> CommandTemplate:
    """Return the template of trials that run a command.

    Each `{name}` in it becomes the value of that parameter, `{parameters}` the path of a JSON file with all values,
    `{metrics}` that of the file or directory of the metrics, `{trial}` the name of the trial, `{seed}` its seed.
    `{{name}}` is passed on as `{name}`. A single argument with blanks is a line for the shell. Values are in the
    environment as well: `KATIB_PARAM_LR` for `lr`. A trial that exceeds the timeout fails. The options of a command of
    Slurm, such as `mem={size}G`, count if trials are its jobs. `{config:FILE}` is the path of a copy of a file with
    values in place of its own, see `filled_config`.

    Raises:
        InvalidError: The command is empty, or names an unknown parameter or a file that cannot be read.
    """
    words = executed_words(command)
    names = [parameter["name"] for parameter in parameters]
    flags = {parameter["name"] for parameter in parameters if has_no_value(parameter)}
    words = [f"{{{word[2:]}}}" if word[:2] == "--" and word[2:] in flags else word for word in words]
    known = with_facts(names) | {"parameters": PARAMETERS_FILE}
    if metrics.kind != "stdout":
        known["metrics"] = metrics.mounted_path
    used: set[str] = set()
    doubles = frozenset(one["name"] for one in parameters if one["parameterType"] == "double")
    files = _Files({name: known[name] for name in names}, {name: known[name] for name in _FACTS}, doubles, used)
    words = [_filled(_CONFIG.sub(files.path_of_config, word), known, used, metrics) for word in words]
    if any(known[flag] in words for flag in flags):
        words = ["sh", "-c", _WITHOUT_EMPTY_WORDS, "sh", *words]
    variables = variables_of(names)
    container: Json = {
        "name": CONTAINER,
        "image": DRAFTED_IMAGE,
        "command": words,
        "env": [{"name": variable, "value": known[name]} for variable, name in variables.items()],
    }
    if metrics.kind != "stdout":
        container["env"].append({"name": "KATIB_METRICS_PATH", "value": metrics.mounted_path})
    if "parameters" in used:
        files.texts[_PARAMETERS_NAME] = _parameters_text(parameters)
    pod: Json = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    annotations = files.mount(pod)
    if batch is not None:
        _add_batch(batch, container, annotations, lambda text: _filled(text, known, used, metrics))
    if annotations:
        pod["metadata"] = {"annotations": annotations}
    job: Json = {"backoffLimit": 0, "template": pod}
    if timeout_seconds is not None:
        job["activeDeadlineSeconds"] = timeout_seconds
    template = {
        "primaryContainerName": CONTAINER,
        "trialParameters": trial_parameters(names, used),
        "trialSpec": {"apiVersion": "batch/v1", "kind": "Job", "spec": job},
    }
    unnamed = () if "parameters" in used else tuple(unnamed_note(name) for name in names if name not in used)
    return CommandTemplate(template, name_of_command(command), unnamed)


def placeholder_of(name: str) -> str:
    """Return the placeholder of a trial parameter in a template."""
    return f"${{trialParameters.{name}}}"


def with_facts(names: Iterable[str]) -> dict[str, str]:
    """Return the placeholders of these parameters and of properties of the trial, by name."""
    return {name: placeholder_of(name) for name in (*_FACTS, *names)}


def trial_parameters(names: Sequence[str], used: Container[str]) -> list[Json]:
    facts = {name: reference for name, reference in _FACTS.items() if name in used and name not in names}
    return [{"name": name, "reference": facts.get(name, name)} for name in (*names, *facts)]


def has_no_value(parameter: Json) -> bool:
    """Return whether the values of a parameter are options by themselves: `--amp` and nothing, or `--no-amp`."""
    values = parameter["feasibleSpace"].get("list") or [""]
    return any(values) and all(value == "" or value.startswith("--") for value in values)


def words_of_line(line: str) -> list[str]:
    """Return the words of a line that a user wrote; the line itself if it needs a shell. Raises InvalidError."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise invalid("command", f"{shown(line)}: {str(error).lower()}", "close its quotes", "command") from error
    return [line] if _OPERATORS.intersection(words) or _BUILT_IN.intersection(words[:1]) else words


def executed_words(command: Sequence[str]) -> list[str]:
    """Return the words to execute for a command; one argument with blanks is a shell line. Raises InvalidError."""
    if not command:
        raise invalid("command", "is missing", "write it behind --, as `-- python train.py --lr {lr}`", "command")
    words = list(command)
    if len(words) == 1 and len(words[0].split()) > 1:
        words = ["sh", "-c", words[0]]
    elif _ASSIGNMENT.match(words[0]):
        words.insert(0, "env")
    elif of_shell := next((word for word in words if word in _OPERATORS), words[0] if words[0] in _BUILT_IN else ""):
        remedy = "write the whole line in one argument, as `-- 'cd src && python train.py --lr {lr}'`"
        raise invalid("command", f'"{of_shell}" is for a shell', remedy, "command")
    return words


def _add_batch(batch: Batch, container: Json, annotations: Json, filled: Callable[[str], str]) -> None:
    """Add the job settings of a Slurm command."""
    container["env"] += [{"name": name, "value": filled(value)} for name, value in batch.environment.items()]
    if batch.directory:
        container["workingDir"] = batch.directory
    if batch.options:
        annotations[SLURM_OPTIONS_ANNOTATION] = shlex.join(map(filled, option_words(batch.options)))


def unnamed_note(name: str) -> str:
    """Return a note about a parameter that a command does not name."""
    return f"the command does not name {{{name}}}: it is in ${variable_of(name)} only"


def _filled(word: str, known: Mapping[str, str], used: set[str], metrics: Metrics) -> str:
    """Return an argument with its placeholders in the form of the template; add their names to `used`."""

    def value(found: re.Match[str]) -> str:
        passed_on, name = found.groups()
        if passed_on:
            return f"{{{passed_on}}}"
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            remedy = (
                f"did you mean {{{near[0]}}}?" if near else f"add -p {name}=…, or write {{{{{name}}}}} to pass it on"
            )
            raise invalid("command", f"{{{name}}} is not a parameter", remedy, "placeholder-name")
        used.add(name)
        return known[name]

    if metrics.path and metrics.path != metrics.mounted_path:
        word = re.sub(rf"(?<![\w./-]){re.escape(metrics.path)}(?![\w./-])", metrics.mounted_path, word)
    return _PLACEHOLDER.sub(value, word)


def variables_of(names: Iterable[str]) -> dict[str, str]:
    """Return the name of each parameter by its environment variable. Raises InvalidError."""
    variables: dict[str, str] = {}
    for name in names:
        variable = variable_of(name)
        if variable in variables:
            is_twice = variables[variable] == name
            cause = "is there twice" if is_twice else f"{variables[variable]} and {name} would both be ${variable}"
            remedy = "leave one out" if is_twice else "rename one of them"
            raise invalid(f"-p {name}", cause, remedy, "variable-name")
        variables[variable] = name
    return variables


def variable_of(name: str) -> str:
    """Return the environment variable that holds a parameter's value."""
    return "KATIB_PARAM_" + re.sub(r"\W", "_", name).upper()


@dataclass(frozen=True, slots=True)
class _Files:
    """The files of a pod, which are annotations that a volume presents as files.

    Attributes:
        placeholders: Placeholders for values in them, by parameter.
        facts: Placeholders for properties of the trial.
        doubles: The real-valued parameters.
        used: Receives the parameters found in them.
    """

    placeholders: Mapping[str, str]
    facts: Mapping[str, str]
    doubles: frozenset[str]
    used: set[str]
    texts: dict[str, str] = field(default_factory=dict)

    def path_of_config(self, found: re.Match[str]) -> str:
        """Return the path of a pod's copy of a configuration file."""
        text = filled_config(read_config(found[1]), found[1], self.placeholders, self.doubles, self.used, self.facts)
        name = PurePath(found[1]).name
        if self.texts.get(name, text) != text or name == _PARAMETERS_NAME:
            name = f"{len(self.texts)}-{name}"
        self.texts[name] = text
        return f"{PARAMETERS_DIRECTORY}/{name}"

    def mount(self, pod: Json) -> Json:
        """Add the files to a pod; return the annotations that it needs."""
        if not self.texts:
            return {}
        (container,) = pod["spec"]["containers"]
        container["volumeMounts"] = [{"name": "parameters", "mountPath": PARAMETERS_DIRECTORY}]
        names = {
            _ANNOTATION if name == _PARAMETERS_NAME else _ANNOTATION.replace("parameters", f"config-{place}"): name
            for place, name in enumerate(self.texts)
        }
        items = [
            {"path": name, "fieldRef": {"fieldPath": f"metadata.annotations['{annotation}']"}}
            for annotation, name in names.items()
        ]
        pod["spec"]["volumes"] = [{"name": "parameters", "downwardAPI": {"items": items}}]
        return {annotation: self.texts[name] for annotation, name in names.items()}


def _parameters_text(parameters: Sequence[Json]) -> str:
    """Return the content of the file with all values."""
    pairs = []
    for parameter in parameters:
        name, space = parameter["name"], parameter["feasibleSpace"]
        quoted = parameter["parameterType"] == "categorical"
        wrong = next((c for c in space.get("list", ()) if quoted and json.dumps(c) != f'"{c}"'), None)
        if wrong is not None:
            cause, remedy = f"{wrong} would need escapes in {{parameters}}", "use plain letters, or {" + name + "}"
            raise invalid(f"-p {name}", cause, remedy, "choice-text")
        placeholder = placeholder_of(name)
        pairs.append(f'"{name}": "{placeholder}"' if quoted else f'"{name}": {placeholder}')
    return "{" + ", ".join(pairs) + "}"


def name_of_command(command: Sequence[str]) -> str:
    """Return a name for experiments that run a command: that of its script, else of its program."""
    words = command[0].split() if len(command) == 1 else command
    words = [word for word in words if not _ASSIGNMENT.match(word)] or words
    script = next((word for word in words if PurePath(word).suffix in _SCRIPTS), words[0])
    return slug(PurePath(script).stem) or "tune"


def slug(text: str) -> str:
    """Return a text as part of an object's name: lower-case letters, digits and hyphens, a letter first."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).lstrip("-0123456789")
    return plain[: MAX_EXPERIMENT_NAME - 8].rstrip("-")


def next_name(stem: str, taken: Iterable[str]) -> str:
    """Return the first of `stem`, `stem-2`, `stem-3`, … after all taken ones."""
    numbers = [_place(stem, name) for name in taken]
    last = max(numbers, default=0)
    return stem if last == 0 else f"{stem}-{last + 1}"


def latest(stem: str, experiments: Sequence[Experiment]) -> Experiment | None:
    """Return the newest of the experiments `stem`, `stem-2`, `stem-3`, …; None if there is none."""
    return next((e for e in reversed(experiments) if _place(stem, e.name)), None)


def _place(stem: str, name: str) -> int:
    if name == stem:
        return 1
    number = name.removeprefix(f"{stem}-")
    return int(number) if number != name and number.isascii() and number.isdigit() else 0
