"""Checks of the arguments of `katib.tune` that cannot be made on an Experiment."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, SupportsIndex

from katib.errors import FieldError, InvalidError
from katib.sdk.search import Parameter

_MAPPINGS = {
    "objectives": '{"loss": "minimize", "accuracy": "maximize"}',
    "goals": '{"accuracy": 0.95}',
    "constraints": '{"memory": (None, 8)}',
    "settings": '{"random_state": 1}',
    "early_stopping_settings": '{"start_step": 4}',
}
"""Arguments that are mappings, with an example of each."""

_SPACES_OF_OTHERS = ("hyperopt.", "optuna.distributions", "ray.tune.search.sample", "scipy.stats.", "skopt.space.")
"""Modules of search spaces of other libraries, whose objects would be passed to the function unchanged."""
_GRID = ["grid_search"]
"""The form of `tune.grid_search([...])` of Ray Tune."""


def check_arguments(parameters: Any, arguments: Mapping[str, Any], *, takes_constants: bool = True) -> None:
    """Check types that would become other fields of an Experiment, or none at all.

    Args:
        parameters: The search space.
        arguments: The others, by name.
        takes_constants: Whether a value outside the search space is passed on unchanged.

    Raises:
        InvalidError: With all errors.
    """
    errors = [*_wrong_space(parameters)]
    if not errors and not takes_constants:
        errors = [
            FieldError(f'parameters["{name}"]', f"{shortened(value)} is not searched", "leave it out", "space-constant")
            for name, value in parameters.items()
            if not isinstance(value, Parameter)
        ]
    # Without a limit `katib.tune` would never return.
    may_be_none = ("parallel", "max_failed") if takes_constants else ("parallel", "max_failed", "max_trials")
    errors += _wrong_scalars(arguments, may_be_none)
    errors += _wrong_collections(arguments)
    if errors:
        raise InvalidError(errors)


def _wrong_scalars(arguments: Mapping[str, Any], may_be_none: Collection[str]) -> Iterator[FieldError]:
    for name in ("max_trials", "parallel", "max_failed"):
        value = arguments[name]
        if not (value is None and name in may_be_none) and (
            not isinstance(value, SupportsIndex) or isinstance(value, bool)
        ):
            yield FieldError(name, f"{value!r} is not a whole number", "write one, such as 20", "argument-type")
    for name, example in (("algorithm", "tpe"), ("early_stopping", "medianstop"), ("objective", "loss")):
        value = arguments[name]
        if value is not None and not isinstance(value, str):  # such as a sampler of Optuna
            cause, remedy = f"{type(value).__name__} is not a text", f'write its name, such as "{example}"'
            yield FieldError(name, cause, remedy, "argument-type")
    if "://" in str(data_dir := arguments.get("data_dir")):  # such as the storage of a study
        yield FieldError(
            "data_dir", f"{data_dir!r} is a URL", "name a directory; it needs no database", "argument-type"
        )
    if isinstance(directions := arguments["direction"], list | tuple):
        remedy = 'name each: objectives={"loss": "minimize", "accuracy": "maximize"}'
        yield FieldError("direction", f"{shortened(directions)} is for several objectives", remedy, "argument-type")


def _wrong_collections(arguments: Mapping[str, Any]) -> Iterator[FieldError]:
    initial = arguments["initial_trials"]
    if isinstance(initial, Mapping):
        cause, remedy = f"{shortened(dict(initial))} is one trial", "write a list of trials, [{...}]"
        yield FieldError("initial_trials", cause, remedy, "argument-type")
    elif not all(isinstance(trial, Mapping) for trial in initial):
        cause, remedy = f"{shortened(initial)} has no names of parameters", 'write [{"lr": 0.1}]'
        yield FieldError("initial_trials", cause, remedy, "argument-type")
    for name in ("warm_start", "additional_metrics", "preload", "where"):
        if isinstance(value := arguments.get(name), str):
            yield FieldError(name, f"{value!r} is one text", f"write [{value!r}]", "argument-type")
        elif value is not None and not isinstance(value, Iterable):
            yield FieldError(name, f"{value!r} is not a list", "write the names, [...]", "argument-type")
    for name, example in _MAPPINGS.items():
        if arguments[name] and not isinstance(arguments[name], Mapping):
            cause = f"{shortened(arguments[name])} is not a mapping"
            yield FieldError(name, cause, f"write {example}", "argument-type")
    constraints = arguments["constraints"]
    for name, bounds in constraints.items() if isinstance(constraints, Mapping) else ():
        if not (isinstance(bounds, Sequence) and len(bounds) == 2 and not isinstance(bounds, str)):  # noqa: PLR2004
            remedy = (
                f"write (None, {bounds}) for at most that" if isinstance(bounds, int | float) else "write (min, max)"
            )
            yield FieldError(f'constraints["{name}"]', f"{bounds!r} is not a pair", remedy, "argument-type")


def _wrong_space(parameters: Any) -> list[FieldError]:
    if not isinstance(parameters, Mapping):
        remedy = 'write {"lr": katib.search.double(1e-4, 1e-1, log=True)}'
        return [FieldError("parameters", f"{type(parameters).__name__} is not a mapping", remedy, "space-type")]
    has_space = any(isinstance(value, Parameter) for value in parameters.values())
    errors = []
    for name, value in parameters.items():
        if not isinstance(name, str):
            errors.append(FieldError("parameters", f"{name!r} is not a name", "write a text", "space-type"))
        if isinstance(value, Mapping) and any(isinstance(inner, Parameter) for inner in value.values()):
            cause, remedy = "it is a search space inside of another one", f'write its parameters here, as "{name}.x"'
            errors.append(FieldError(f'parameters["{name}"]', cause, remedy, "space-type"))
        if type(value).__module__.startswith(_SPACES_OF_OTHERS) or (isinstance(value, dict) and [*value] == _GRID):
            cause, remedy = f"{shortened(value)} is of another library", "write katib.search.double, int or categorical"
            errors.append(FieldError(f'parameters["{name}"]', cause, remedy, "space-type"))
        if isinstance(value, tuple | range) or (isinstance(value, list | set | frozenset) and not has_space):
            cause = f"{shortened(value)} is not a search space"
            remedy = f"write {_suggested(value)}"
            if has_space:
                remedy += "; for a constant, use functools.partial on the function"
            errors.append(FieldError(f'parameters["{name}"]', cause, remedy, "space-type"))
    if not has_space and not errors:
        cause = "nothing in it is searched" if parameters else "it is empty"
        remedy = "use katib.search.double, int, categorical or discrete for at least one"
        errors.append(FieldError("parameters", cause, remedy, "space-missing"))
    return errors


def _suggested(value: Any) -> str:
    """Return the call of `katib.search` that a value resembles."""
    if isinstance(value, range):
        step = f", step={abs(value.step)}" if abs(value.step) != 1 else ""
        return f"katib.search.int({min(value, default=0)}, {max(value, default=1)}{step})"
    numbers = [v for v in value if isinstance(v, int | float) and not isinstance(v, bool)]
    is_log = isinstance(value, tuple) and len(value) == 3 and "log" in str(value[2])  # noqa: PLR2004 - as scikit-optimize has it
    if isinstance(value, tuple) and len(value) - is_log == len(numbers) == 2:  # noqa: PLR2004 - two bounds
        kind = "int" if all(isinstance(v, int) for v in numbers) else "double"
        return f"katib.search.{kind}({min(numbers)!r}, {max(numbers)!r}{', log=True' if is_log else ''})"
    return f"katib.search.categorical({shortened(list(value))})"


def shortened(value: Any) -> str:
    """Return a value as text for an error."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004 - one line of an error
