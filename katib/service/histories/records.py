"""Trials read from another program, and their conversion to an Experiment with trials. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from msgspec import structs

from katib.errors import invalid
from katib.model.leases import LOST_LEASES
from katib.model.metrics import MetricLog
from katib.model.names import FIRST_FAILURES_ANNOTATION, LOST_LEASES_ANNOTATION
from katib.model.space import check_assignments
from katib.model.types import API_VERSION, ParameterAssignment, ParameterSpec
from katib.service.tuning.service import EndedTrial, Json

STATE_TAG, FAILURE_TAG = "katib.state", "katib.failure"
"""Tags of an MLflow run that was a trial: its outcome, and the reason of a failure."""

_INTEGER = re.compile(r"[+-]?\d{1,18}\Z")
_ORDERS_OF_MAGNITUDE = 100.0
"""Ratio of the largest to the smallest value from which a parameter was probably searched logarithmically."""

_LARGEST_COUNT = 20
"""An int with more values than this hardly determines whether others are present."""

_MOST_READINGS = 10_000
"""Maximum points of a trial's curve: a longer one keeps every second point, or every third, and so on."""


@dataclass(frozen=True, slots=True)
class Record:
    """An ended trial of another program.

    Attributes:
        parameters: Values by name, of any type.
        values: Metrics by name: the last value of each.
        failure: The reason of a failure; None without one.
        stopped: Whether it was stopped before its end.
        curve: Its earlier readings.
    """

    id: str
    parameters: Mapping[str, Any]
    values: Mapping[str, float]
    began: datetime
    ended: datetime
    failure: str | None = None
    stopped: bool = False
    curve: tuple[MetricLog, ...] = ()


@dataclass(frozen=True, slots=True)
class TrialSource:
    """The trials found in files of another program.

    Attributes:
        title: Description, such as `the Optuna study digits`.
        unfinished: Number of other trials.
        objectives: `minimize` or `maximize` by name, if known.
        parameters: Entries of `spec.parameters`, if the search space is known.
    """

    title: str
    name: str
    records: Sequence[Record]
    unfinished: int = 0
    objectives: Mapping[str, str] = field(default_factory=dict)
    parameters: Sequence[Json] = ()


@dataclass(frozen=True, slots=True)
class ImportedTrials:
    """An Experiment, its adopted trials, and the reasons for those left out.

    Attributes:
        spec: The objective and the parameters of the Experiment's spec.
        trials: Those that are points of its search space.
        left_out: A line for each of the others.
    """

    spec: Json
    trials: Sequence[EndedTrial]
    left_out: Sequence[str]

    def experiment(self, name: str, *, algorithm: str, more: int) -> Json:
        metadata = {
            "name": name,
            "annotations": {FIRST_FAILURES_ANNOTATION: "0", LOST_LEASES_ANNOTATION: LOST_LEASES[0]},
        }
        search = {
            "algorithm": {"algorithmName": algorithm},
            "maxTrialCount": len(self.trials) + more,
            "parallelTrialCount": 1,
            "resumePolicy": "FromVolume",
        }
        return {
            "apiVersion": API_VERSION,
            "kind": "Experiment",
            "metadata": metadata,
            "spec": {**self.spec, **search},
        }


def history_of(source: TrialSource, objectives: Mapping[str, str], given: Sequence[Json], path: str) -> ImportedTrials:
    """Convert the trials of another program.

    Args:
        objectives: The user's `minimize` or `maximize` by name; empty: those of the source.
        given: The user's entries of `spec.parameters`; one with a name alone is derived from the values.
        path: Name of the source in errors.

    Raises:
        InvalidError: There are no trials, the objective is unknown, or no trial has a value of it.
    """
    if not source.records:
        cause = f"no trial of {source.title} has ended" if source.unfinished else f"{source.title} has no trials"
        raise invalid(path, cause, "name a source with trials", "import-empty")
    renamed = _renamed(source, objectives, path)
    directions = objectives or source.objectives
    found = [[*record.values, *(reading.name for reading in record.curve)] for record in source.records]
    metrics = list(dict.fromkeys(renamed.get(name, name) for names in found for name in names))
    if not directions:
        remedy = f"add --minimize METRIC or --maximize METRIC, one of {', '.join(metrics) or 'none'}"
        raise invalid(path, "it does not say which metric was optimized", remedy, "import-objective")
    missing = [name for name in directions if name not in metrics]
    if missing:
        cause = f"no trial has a value of {missing[0]}; there are {', '.join(metrics) or 'none'}"
        raise invalid(path, cause, "name one of these", "import-objective")
    known = {entry["name"]: entry for entry in source.parameters}
    chosen = {entry["name"]: entry for entry in given}
    names = list(chosen) or list(known) or list(dict.fromkeys(n for one in source.records for n in one.parameters))
    entries = [_entry(name, chosen.get(name, {}), known.get(name), source.records) for name in names]
    parameters = _with_conditions([entry for entry in entries if entry is not None], source.records)
    if not parameters:
        raise invalid(
            path, "its trials have no parameters that differ", "name them with -p NAME=VALUES", "import-space"
        )
    trials, left_out = _fitting(source.records, parameters, renamed, list(directions))
    if not trials:
        raise invalid(path, f"no trial fits: {left_out[0]}", "widen the parameters with -p", "import-space")
    terms = [{"name": name, "type": direction} for name, direction in directions.items()]
    objective: Json = {"objectives": terms}
    if len(terms) == 1:
        objective = {"type": terms[0]["type"], "objectiveMetricName": terms[0]["name"]}
    objective["metricStrategies"] = [{"name": name, "value": "latest"} for name in metrics]
    if further := [name for name in metrics if name not in directions]:
        objective["additionalMetricNames"] = further
    return ImportedTrials({"objective": objective, "parameters": parameters}, trials, left_out)


def parsed(text: Any) -> Any:
    """Convert a text to its number; anything else is returned unchanged."""
    if not isinstance(text, str):
        return text
    if _INTEGER.match(text.strip()):
        return int(text)
    try:
        return float(text)
    except ValueError:
        return text


def moment(seconds: float | None, default: datetime | None = None) -> datetime:
    """Convert seconds since 1970 to a time; None gives a default: now."""
    if seconds is None or not math.isfinite(seconds):
        return default or datetime.now(UTC)
    return datetime.fromtimestamp(seconds, UTC)


def _renamed(source: TrialSource, objectives: Mapping[str, str], path: str) -> dict[str, str]:
    """Return the user's names of the source's objectives."""
    if not objectives or not source.objectives:
        return {}
    if list(source.objectives.values()) != list(objectives.values()):
        known = " and ".join(f"{way}s {name}" for name, way in source.objectives.items())
        raise invalid(path, f"{source.title} {known}", "leave out --minimize and --maximize", "import-objective")
    return dict(zip(source.objectives, objectives, strict=True))


# --- the search space -------------------------------------------------------------------------------------------------


def _entry(name: str, given: Json, known: Json | None, records: Sequence[Record]) -> Json | None:
    """Return the entry of a parameter: from the user, from the source, or derived from its values.

    None for one with a single value in all trials, which was not searched, unless the user names it.
    """
    if "feasibleSpace" in given:
        return given
    if known is not None:
        return known
    values = [record.parameters[name] for record in records if name in record.parameters]
    texts = list(dict.fromkeys(map(value_text, values)))
    if len(texts) < 2 and not given:  # noqa: PLR2004 - one value is no choice
        return None
    return {"name": name, **_space(values, texts)}


def _space(values: Sequence[Any], texts: Sequence[str]) -> Json:
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) < len(values) or not numbers or not all(map(math.isfinite, numbers)):
        return {"parameterType": "categorical", "feasibleSpace": {"list": list(texts)}}
    low, high = min(numbers), max(numbers)
    whole = all(isinstance(value, int) for value in numbers)
    space: Json = {"min": value_text(low), "max": value_text(high)}
    if not whole and low > 0 and high / low >= _ORDERS_OF_MAGNITUDE:
        space["distribution"] = "logUniform"
    return {"parameterType": "int" if whole else "double", "feasibleSpace": space}


def value_text(value: Any) -> str:
    return repr(value) if isinstance(value, float) else str(value)


def _with_conditions(entries: Sequence[Json], records: Sequence[Record]) -> list[Json]:
    """Add to each parameter missing in some trials the condition that explains all of them, if there is one."""
    ran = [record.parameters for record in records if record.failure is None]
    counts = {entry["name"]: sum(entry["name"] in values for values in ran) for entry in entries}
    made = []
    for entry in entries:
        name = entry["name"]
        if "when" in entry or counts[name] in (0, len(ran)):
            made.append(entry)
            continue
        for other in sorted(entries, key=lambda one: one["parameterType"] != "categorical"):
            choice = other["name"]
            if other["parameterType"] not in ("categorical", "int") or counts[choice] <= counts[name]:
                continue
            inside = {value_text(values[choice]) for values in ran if name in values and choice in values}
            outside = {value_text(values[choice]) for values in ran if name not in values and choice in values}
            if not inside & outside and all(choice in values for values in ran if name in values):
                when = _values_of(other, inside, outside)
                if when:
                    entry = {**entry, "when": {"parameter": choice, "values": when}}  # noqa: PLW2901 - the entry, completed
                    break
        made.append(entry)
    return made


def _values_of(choice: Json, inside: Collection[str], outside: Collection[str]) -> list[str]:
    """Return the deciding values of a parameter: some of a list, or a count and all above, as in loops."""
    space = choice["feasibleSpace"]
    if choice["parameterType"] == "categorical":
        return [text for text in space["list"] if text in inside]
    least, most = min(int(float(text)) for text in inside), int(space["max"])
    if most - int(space["min"]) > _LARGEST_COUNT or any(float(text) > least for text in outside):
        return []
    return [str(number) for number in range(least, most + 1, int(space.get("step", 1)))]


# --- the trials -------------------------------------------------------------------------------------------------------


def _fitting(
    records: Sequence[Record], parameters: Sequence[Json], renamed: Mapping[str, str], objectives: Sequence[str]
) -> tuple[list[EndedTrial], list[str]]:
    specs = [ParameterSpec.decode(entry) for entry in parameters]
    names = {spec.name for spec in specs}
    trials, left_out = [], []
    for record in records:
        assignments = {name: value_text(value) for name, value in record.parameters.items() if name in names}
        errors = check_assignments(
            specs, [ParameterAssignment(name=name, value=value) for name, value in assignments.items()]
        )
        if errors:
            left_out.append(f"{record.id}: {errors[0].cause}")
            continue
        curve = record.curve[:: len(record.curve) // _MOST_READINGS + 1]
        curve = tuple(structs.replace(one, name=renamed.get(one.name, one.name)) for one in curve)
        values = {renamed.get(name, name): repr(value) for name, value in record.values.items()}
        failure, seen = record.failure, {*values, *(one.name for one in curve)}
        if failure is None and not record.stopped and not seen.issuperset(objectives):
            failure = f"it has no value of {next(name for name in objectives if name not in seen)}"
        trials.append(
            EndedTrial(
                record.id,
                assignments,
                record.began,
                max(record.began, record.ended),
                values,
                failure,
                record.stopped,
                curve,
            )
        )
    return trials, left_out
