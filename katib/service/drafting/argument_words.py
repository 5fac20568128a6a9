"""Errors of an Experiment, rephrased for its source: arguments of `katib.tune`, or options of the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from katib.errors import FieldError, InvalidError, KatibError, invalid
from katib.service.drafting.foreign_words import same_here

_SETTINGS = r"\.algorithmSettings\[(?P<{0}>\d+)\].*"
_FOLLOWING = ("spec.trialTemplate", "spec.metricsCollectorSpec", "spec.objective.metricStrategies")
"""Fields that follow from other arguments."""
_OF_PLACES = re.compile(r"--(data-dir|server)\b")
_METRIC = "--maximize or --minimize"
_WORDS: tuple[tuple[re.Pattern[str], str, str], ...] = tuple(
    (re.compile(rf"{pattern}\Z"), argument, option)
    for pattern, argument, option in (
        (r"metadata\.name", "name", "--name"),
        (r"metadata\.annotations\[.*lost-leases.*", "lost", ""),
        (r"metadata\.annotations\[.*/repeats.*", "repeats", "--repeats"),
        (r"spec\.parameters\[(?P<parameters>\d+)\]\.feasibleSpace\.(?P<bound>min|max|step)", "parameters.bound", "-p"),
        (r"spec\.parameters\[(?P<parameters>\d+)\]\.when.*", "parameters.when", "-p"),
        (r"spec\.parameters\[(?P<parameters>\d+)\].*", "parameters", "-p"),
        (r"spec\.parameters", "parameters", "-p"),
        (r"spec\.objective\.objectives\[(?P<objectives>\d+)\]\.goal", "goals", "--goal"),
        (r"spec\.objective\.objectives\[(?P<objectives>\d+)\].*", "objectives", _METRIC),
        (r"spec\.objective\.constraints\[(?P<constraints>\d+)\].*", "constraints", ""),
        (r"spec\.objective\.additionalMetricNames.*", "additional_metrics", ""),
        (r"spec\.objective\.type", "direction", _METRIC),
        (r"spec\.objective\.goal", "goal", "--goal"),
        (r"spec\.objective\.objectiveMetricName", "objective", _METRIC),
        (r"spec\.algorithm" + _SETTINGS.format("settings"), "settings", ""),
        (r"spec\.algorithm\.algorithmSettings", "settings", ""),
        (r"spec\.algorithm\..*", "algorithm", "--algorithm"),
        (r"spec\.earlyStopping" + _SETTINGS.format("early_stopping_settings"), "early_stopping_settings", ""),
        (r"spec\.earlyStopping\.algorithmSettings", "early_stopping_settings", ""),
        (r"spec\.earlyStopping(\..*)?", "early_stopping", "--early-stopping"),
        (r"spec\.maxTrialCount", "max_trials", "--trials"),
        (r"spec\.parallelTrialCount", "parallel", "--parallel"),
        (r"spec\.maxFailedTrialCount", "max_failed", ""),
        (r"spec\.initialTrials\[(?P<initial_trials>\d+)\].*", "initial_trials", ""),
        (r"spec\.parameterConstraints\[(?P<where>\d+)\]", "where", "--where"),
        (r"spec\.parameterConstraints", "where", "--where"),
        (r"spec\.warmStart.*", "warm_start", "--learn-from"),
        (r"spec\.metricsCollectorSpec\.source\.filter\..*", "metrics_format", "--metrics-format"),
        (r"spec\.trialTemplate\..*\.command\[\d+\]", "function", "command"),
    )
)


def in_arguments(error: InvalidError, arguments: Mapping[str, Any]) -> InvalidError:
    """Return an error of an Experiment with the arguments of `katib.tune` in its paths.

    Args:
        arguments: The arguments by name. In those that are mappings, an index in the experiment becomes a key:
            `parameters["lr"].min`; `parameters` contains only those of the search space.
    """
    if differing := [one for one in error.errors if one.origin == "update-immutable"]:
        return _other_search(differing, arguments)  # errors about counts are irrelevant then
    return InvalidError(replace(one, path=_argument(one.path, arguments)) for one in error.errors)


def _other_search(differing: Sequence[FieldError], arguments: Mapping[str, Any]) -> InvalidError:
    """Return an error for an existing experiment of that name with other arguments, listing them and a remedy."""
    template = next((one.cause for one in differing if one.path == "spec.trialTemplate"), "")
    causes = {one for one in differing if not one.path.startswith(_FOLLOWING)} or set(differing)
    changes = [f"{_argument(one.path, arguments)} {one.cause}" for one in differing if one in causes]
    again = ", or restart=True: the old one is kept under a name with a number" if "restart" in arguments else ""
    cause = f"the experiment of this name has other arguments: {', '.join(changes)}"
    if template:  # such as `preload`, or an experiment of `katib run`
        who = "by jobs, and here by a program" if template.startswith("removed") else "by a program, and here by jobs"
        cause = f"the trials of the experiment of this name are evaluated {who}"
    return invalid("name", cause, f"undo that, or pass another name{again}", "update-immutable")


def _argument(path: str, arguments: Mapping[str, Any]) -> str:
    for pattern, argument, _ in _WORDS:
        match = pattern.match(path)
        if match is None:
            continue
        groups = match.groupdict()
        bound = groups.pop("bound", None)
        name, _, suffix = argument.partition(".")
        for collection, index in groups.items():
            owner = arguments.get(collection)
            if isinstance(owner, Mapping) and int(index) >= len(owner):  # the existing experiment has more
                continue
            key = list(owner)[int(index)] if isinstance(owner, Mapping) else int(index)
            name = f'{name}["{key}"]' if isinstance(owner, Mapping) else f"{name}[{key}]"
        return name + (f".{bound}" if bound else f".{suffix}" if suffix else "")
    return path


def in_options(error: InvalidError, parameters: Sequence[str]) -> InvalidError:
    """Return an error of an Experiment with options of the command line in its paths.

    Args:
        parameters: The names given with -p, in order.
    """
    return InvalidError(_with_option(one, parameters) for one in error.errors)


def _with_option(error: FieldError, parameters: Sequence[str]) -> FieldError:
    for pattern, _, option in _WORDS:
        match = pattern.match(error.path)
        if match is None or not option:
            continue
        groups = match.groupdict()
        name = f" {parameters[int(groups['parameters'])]}" if "parameters" in groups else ""
        return replace(error, path=option + name + (" (:step=)" if groups.get("bound") == "step" else ""))
    return error


@contextmanager
def python_words() -> Iterator[None]:
    """Replace options of the command line by arguments of Python in raised errors.

    Commands in backquotes stay unchanged.
    """
    try:
        yield
    except InvalidError as error:
        found = [replace(one, path=_in_python(one.path), remedy=_in_python(one.remedy)) for one in error.errors]
        if found == list(error.errors):
            raise
        raise InvalidError(found) from None
    except KatibError as error:
        if (text := _in_python(str(error))) == str(error):
            raise
        raise type(error)(text) from None


def _in_python(text: str) -> str:
    parts = text.split("`")
    parts[::2] = [_OF_PLACES.sub(lambda found: f"{found[1].replace('-', '_')}=", part) for part in parts[::2]]
    return "`".join(parts)


def option_for(name: str, options: Sequence[str]) -> str:
    """Return the option equivalent to an argument of Python, ours or another library's; empty if there is none.

    Args:
        name: Of the argument, such as `n_jobs`.
    """
    ours = re.match(r"\w+", same_here("tune()", name) or name)
    argument = ours[0] if ours else ""
    found = next((option for _, word, option in _WORDS if option and word.partition(".")[0] == argument), "")
    plain = f"--{argument.replace('_', '-')}"
    return found or (plain if plain in options else "")
