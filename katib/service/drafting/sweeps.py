"""Conversion of sweeps of Weights & Biases, in YAML, to Experiments that `katib run` accepts."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

from katib.errors import FieldError, InvalidError, invalid
from katib.model.written import in_place, value_in_place
from katib.model.yaml_text import Plain, as_written, parse_one, plain_value
from katib.service.drafting.experiments import Json, Metrics, Search, command_template, draft, slug

_METHODS = {"grid": "grid", "random": "random", "bayes": "gp"}
_DEFAULT_COMMAND = ("${env}", "${interpreter}", "${program}", "${args}")
_DEFAULT_TRIALS = 20
_COUNTS = ("min_iter", "max_iter", "s", "eta")
_DEFAULT_ETA = 3
_VARIABLE = re.compile(r"\$\{envvar:(\w+)\}")
_DISTRIBUTIONS = "use uniform, int_uniform, q_uniform, log_uniform_values, log_uniform, values or value"


def experiment_of_sweep(text: str, source: str) -> Json:
    """Return the Experiment of a sweep.

    Raises:
        InvalidError: It is not a sweep, or has features that an Experiment lacks; all errors at once.
    """
    sweep = in_place(parse_one(text, source, as_written), _value_in_place)
    if not isinstance(sweep, dict) or not isinstance(sweep.get("parameters"), dict):
        raise invalid(source, "it has no parameters", "name the YAML of a sweep", "sweep")
    metric = sweep.get("metric") or {}
    metric = metric if isinstance(metric, dict) else {"name": metric}
    stop = sweep.get("early_terminate") or {}
    stop = stop if isinstance(stop, dict) else {"type": stop}
    errors = [*_wrong_fields(sweep, metric, stop)]
    parameters, constants = [], {}
    for name, given in _flat(sweep["parameters"]):
        try:
            found = _parameter(f"parameters.{name}", {} if given is None else given)
        except InvalidError as error:
            errors += error.errors
            continue
        if isinstance(found, dict):
            parameters.append({"name": str(name), **found})
        else:
            constants[str(name)] = _text(found[0])
    if errors:
        raise InvalidError(errors)
    names = {parameter["name"]: f"{{{parameter['name']}}}" for parameter in parameters}
    words = list(_command(sweep, {**names, **constants}))
    algorithm = _METHODS[str(sweep.get("method", "random"))]
    search = Search(
        objectives={str(metric["name"]): str(metric.get("goal") or "minimize")},
        max_trials=int(sweep.get("run_cap") or _DEFAULT_TRIALS),
        parallel=1,
        algorithm=algorithm,
        goal=metric.get("target"),
        more={"earlyStopping": _early_stopping(stop)} if stop else {},
    )
    title = str(sweep.get("name") or sweep.get("program") or "sweep")
    template = command_template(words, parameters, Metrics()).template
    experiment = draft(slug(title.removesuffix(".py")) or "sweep", search, parameters, template)
    if algorithm == "grid" and sweep.get("run_cap") is None:  # it ends with its last point
        del experiment["spec"]["maxTrialCount"]
    return experiment


def _wrong_fields(sweep: Mapping[str, Any], metric: Mapping[str, Any], stop: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield errors in fields other than the parameters."""
    if not metric.get("name"):
        yield FieldError("metric.name", "it is missing", "name the metric that is optimized", "sweep")
    goal = str(metric.get("goal") or "minimize")
    if goal not in ("minimize", "maximize"):
        yield FieldError("metric.goal", f"{goal} is not a goal", "use minimize or maximize", "sweep")
    if str(sweep.get("method", "random")) not in _METHODS:
        cause = f"{sweep['method']} is not a method of a sweep"
        yield FieldError("method", cause, f"use {', '.join(_METHODS)}", "sweep")
    counts = {"run_cap": sweep.get("run_cap")} | {f"early_terminate.{key}": stop.get(key) for key in _COUNTS}
    for field, value in counts.items():
        if value is not None and (not isinstance(value, int) or value < 1):
            yield FieldError(field, f"{value!r} is not a whole number above 0", "write one", "sweep")
    if isinstance(sweep.get("command"), str):
        yield FieldError("command", "it is one text", "write a list of words", "sweep")


def _early_stopping(stop: Mapping[str, Any]) -> Json:
    first, eta = stop.get("min_iter"), stop.get("eta")
    if first is None and "max_iter" in stop and "s" in stop:  # its first bracket
        first = max(1, stop["max_iter"] // (eta or _DEFAULT_ETA) ** stop["s"])
    settings = {"min_resource": first, "reduction_factor": eta}
    given = [{"name": name, "value": str(value)} for name, value in settings.items() if value is not None]
    return {"algorithmName": "asha", **({"algorithmSettings": given} if given else {})}


def _command(sweep: Mapping[str, Any], values: Mapping[str, str]) -> Iterator[str]:
    """Yield the words of the command, with `{name}` for the value of a parameter."""
    arguments = {
        "${args}": [f"--{name}={value}" for name, value in values.items()],
        "${args_no_hyphens}": [f"{name}={value}" for name, value in values.items()],
        "${args_json_file}": ["{parameters}"],
        "${program}": [str(sweep["program"])] if sweep.get("program") else [],
        "${interpreter}": ["python"],
        "${env}": [],
    }
    arguments["${args_no_boolean_flags}"] = arguments["${args}"]
    for word in sweep.get("command") or _DEFAULT_COMMAND:
        text = str(word)
        unset = [name for name in _VARIABLE.findall(text) if name not in os.environ]
        if unset:
            raise invalid("command", f"the variable {unset[0]} is not set", "set it, or write its value", "sweep")
        text = _VARIABLE.sub(lambda found: os.environ[found[1]], text)
        if text.startswith("${") and text not in arguments:
            raise invalid("command", f"{text} has no counterpart", "write the arguments out", "sweep")
        yield from arguments.get(text, [text])


def _flat(parameters: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the parameters of a sweep; a nested one is prefixed with the names above it, as in `optimizer.lr`."""
    for name, given in parameters.items():
        nested = given.get("parameters") if isinstance(given, dict) else None
        if isinstance(nested, dict):
            yield from _flat(nested, f"{above}{name}.")
        else:
            yield f"{above}{name}", given


def _value_in_place(scalar: Any, is_text: bool, field: str) -> Any:
    """Return a value of a sweep; values for the program keep their original form."""
    return scalar if field in ("value", "values") else value_in_place(scalar, is_text, field)


def _text(value: Any) -> str:
    """Return the text of a value for the program; truth values and null as Python writes them."""
    meant = plain_value(value) if isinstance(value, Plain) else value
    return str(meant) if meant is None or isinstance(meant, bool) else str(value)


def _parameter(path: str, given: Any) -> Json | tuple[Any]:
    """Return the type and the space of a parameter; for a constant, a tuple of its value only."""
    if not isinstance(given, dict):
        key = "values" if isinstance(given, list) else "value"
        raise invalid(path, "it is not a mapping", f"write {{{key}: {given}}}", "sweep")
    if "value" in given:
        return (given["value"],)
    if "values" in given:
        values = list(given["values"])
        meant = [plain_value(one) if isinstance(one, Plain) else one for one in values]
        numbers = len(values) > 1 and all(isinstance(one, int | float) and not isinstance(one, bool) for one in meant)
        texts = [_text(one) for one in values]
        return {"parameterType": "discrete" if numbers else "categorical", "feasibleSpace": {"list": texts}}
    low, high = given.get("min"), given.get("max")
    whole = isinstance(low, int) and isinstance(high, int)
    distribution = str(given.get("distribution") or ("int_uniform" if whole else "uniform"))
    base = distribution.removeprefix("q_")
    if base not in _SPACES:
        raise invalid(f"{path}.distribution", f"{distribution} has no counterpart", _DISTRIBUTIONS, "sweep")
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        raise invalid(path, "it has neither values nor min and max", _DISTRIBUTIONS, "sweep")
    kind, space = _SPACES[base](low, high)
    if base == distribution:
        return {"parameterType": kind, "feasibleSpace": space}
    step = given.get("q", 1)  # a whole step makes whole numbers
    if not isinstance(step, int | float) or not 0 < step < math.inf:
        raise invalid(f"{path}.q", f"{step!r} is not a number above 0", "write one", "sweep")
    multiples = _multiples(space, step)
    if float(multiples["min"]) > float(multiples["max"]):
        raise invalid(path, f"no multiple of {step} is between {low} and {high}", "use a smaller q", "sweep")
    return {"parameterType": "int" if isinstance(step, int) else kind, "feasibleSpace": multiples}


def _multiples(space: Json, step: float) -> Json:
    """Return a space of the multiples of a step; the bounds of a sweep need not be multiples."""
    unit = Decimal(str(step))
    low, high = (
        (Decimal(space[bound]) / unit).to_integral_value(way) * unit
        for bound, way in (("min", ROUND_CEILING), ("max", ROUND_FLOOR))
    )
    return {**space, "min": str(low), "max": str(high), "step": str(step)}


def _uniform(low: float, high: float) -> tuple[str, Json]:
    return "double", {"min": str(low), "max": str(high)}


def _log(low: float, high: float) -> tuple[str, Json]:
    return "double", {"min": str(low), "max": str(high), "distribution": "logUniform"}


_SPACES: dict[str, Callable[[float, float], tuple[str, Json]]] = {
    "uniform": _uniform,
    "int_uniform": lambda low, high: ("int", {"min": str(low), "max": str(high)}),
    "log_uniform_values": _log,
    "log_uniform": lambda low, high: _log(math.exp(low), math.exp(high)),
}
