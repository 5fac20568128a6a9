"""Experiments from sweeps of Weights & Biases: their YAML in, an Experiment that `katib run` takes out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from katib.api.yaml_text import parse_one
from katib.errors import FieldError, InvalidError, invalid
from katib.tuning.drafting import Json, Metrics, Search, command_template, draft, slug

_METHODS = {"grid": "grid", "random": "random", "bayes": "gp"}
_DEFAULT_COMMAND = ("${env}", "${interpreter}", "${program}", "${args}")
_DEFAULT_TRIALS = 20
_DISTRIBUTIONS = "use uniform, int_uniform, q_uniform, log_uniform_values, log_uniform, values or value"


def experiment_of_sweep(text: str, source: str) -> Json:
    """Return the Experiment of a sweep.

    Args:
        text: The YAML of the sweep.
        source: What to call it in errors.

    Raises:
        InvalidError: It is no sweep, or has what an Experiment does not; all errors at once.
    """
    sweep = parse_one(text, source)
    if not isinstance(sweep, dict) or not isinstance(sweep.get("parameters"), dict):
        raise invalid(source, "it has no parameters", "name the YAML of a sweep", "sweep")
    metric = sweep.get("metric") or {}
    errors: list[FieldError] = []
    if not metric.get("name"):
        errors.append(FieldError("metric.name", "it is missing", "name the metric that is optimized", "sweep"))
    algorithm = _METHODS.get(str(sweep.get("method", "random")))
    if algorithm is None:
        cause = f"{sweep['method']} is not a method of a sweep"
        errors.append(FieldError("method", cause, f"use {', '.join(_METHODS)}", "sweep"))
    parameters, constants = [], {}
    for name, given in sweep["parameters"].items():
        try:
            found = _parameter(f"parameters.{name}", given or {})
        except InvalidError as error:
            errors += error.errors
            continue
        if isinstance(found, dict):
            parameters.append({"name": str(name), **found})
        else:
            constants[str(name)] = str(found[0])
    if errors:
        raise InvalidError(errors)
    names = {parameter["name"]: f"{{{parameter['name']}}}" for parameter in parameters}
    words = list(_command(sweep, {**names, **constants}))
    goal = "maximize" if metric.get("goal") == "maximize" else "minimize"
    stop = sweep.get("early_terminate") or {}
    settings = {"min_resource": stop.get("min_iter"), "reduction_factor": stop.get("eta")}
    search = Search(
        objectives={str(metric["name"]): goal},
        max_trials=int(sweep.get("run_cap") or _DEFAULT_TRIALS),
        parallel=1,
        algorithm=str(algorithm),
        goal=metric.get("target"),
        more={"earlyStopping": _early_stopping(settings)} if stop else {},
    )
    title = str(sweep.get("name") or sweep.get("program") or "sweep")
    template = command_template(words, parameters, Metrics()).template
    return draft(slug(title.removesuffix(".py")) or "sweep", search, parameters, template)


def _early_stopping(settings: Mapping[str, Any]) -> Json:
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
        if text.startswith("${") and text not in arguments and not text.startswith("${envvar:"):
            raise invalid("command", f"{text} has no counterpart", "write the arguments out", "sweep")
        yield from arguments.get(text, [text])


def _parameter(path: str, given: Mapping[str, Any]) -> Json | tuple[Any]:
    """Return the type and the space of a parameter; of a constant its value, alone in a tuple."""
    if not isinstance(given, dict) or "parameters" in given:
        raise invalid(path, "it is nested", "give its parameters names of their own", "sweep")
    if "value" in given:
        return (given["value"],)
    if "values" in given:
        values = list(given["values"])
        numbers = len(values) > 1 and all(isinstance(one, int | float) and not isinstance(one, bool) for one in values)
        texts = [str(one) for one in values]
        return {"parameterType": "discrete" if numbers else "categorical", "feasibleSpace": {"list": texts}}
    low, high = given.get("min"), given.get("max")
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        raise invalid(path, "it has neither values nor min and max", _DISTRIBUTIONS, "sweep")
    whole = isinstance(low, int) and isinstance(high, int)
    distribution = str(given.get("distribution") or ("int_uniform" if whole else "uniform"))
    base = distribution.removeprefix("q_")
    if base not in _SPACES:
        raise invalid(f"{path}.distribution", f"{distribution} has no counterpart", _DISTRIBUTIONS, "sweep")
    kind, space = _SPACES[base](low, high)
    if base != distribution:
        space["step"] = str(given.get("q", 1))
    return {"parameterType": kind, "feasibleSpace": space}


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
