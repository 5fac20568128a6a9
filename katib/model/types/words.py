"""The words that Katib spells as strings. As string enums they compare equal to the strings in an object."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

GROUP = "kubeflow.org"
VERSION = "v1beta1"
API_VERSION = f"{GROUP}/{VERSION}"


class ParameterType(StrEnum):
    """Type of a parameter's values."""

    DOUBLE = "double"
    INT = "int"
    DISCRETE = "discrete"
    CATEGORICAL = "categorical"
    UNKNOWN = "unknown"


class Distribution(StrEnum):
    """Distribution of the values of a double or int over the feasible space."""

    UNIFORM = "uniform"
    LOG_UNIFORM = "logUniform"
    NORMAL = "normal"
    LOG_NORMAL = "logNormal"
    UNKNOWN = "unknown"


class ObjectiveType(StrEnum):
    """Direction of the search."""

    MINIMIZE = "minimize"
    MAXIMIZE = "maximize"


class MetricStrategy(StrEnum):
    """Strategy that picks the decisive reading of a metric; `mean(5)` is the mean of the last five."""

    MIN = "min"
    MAX = "max"
    LATEST = "latest"
    MEAN = "mean"


_MEAN = re.compile(r"mean(?:\(([1-9][0-9]{0,4})\))?")


def mean_count(strategy: str) -> int | None:
    """Return the number of last readings in a strategy's mean, 0 for all; None if it is not a mean."""
    found = _MEAN.fullmatch(strategy)
    return None if found is None else int(found[1] or 0)


class ComparisonType(StrEnum):
    """Comparison of a reading with the value of an early stopping rule."""

    EQUAL = "equal"
    LESS = "less"
    GREATER = "greater"


class ResumePolicy(StrEnum):
    """State kept for raising the budget of a finished experiment."""

    NEVER = "Never"
    LONG_RUNNING = "LongRunning"
    FROM_VOLUME = "FromVolume"


class CollectorKind(StrEnum):
    """Source of metrics."""

    STDOUT = "StdOut"
    FILE = "File"
    TENSORFLOW_EVENT = "TensorFlowEvent"
    PROMETHEUS_METRIC = "PrometheusMetric"
    CUSTOM = "Custom"
    PUSH = "Push"
    NONE = "None"


class FileSystemKind(StrEnum):
    """Target of a metrics path."""

    FILE = "File"
    DIRECTORY = "Directory"


class FileFormat(StrEnum):
    """Format of a metrics file."""

    TEXT = "TEXT"
    JSON = "JSON"


class ConditionStatus(StrEnum):
    """Status of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class ExperimentCondition(StrEnum):
    """Condition types of an Experiment."""

    CREATED = "Created"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class SuggestionCondition(StrEnum):
    """Condition types of a Suggestion."""

    CREATED = "Created"
    DEPLOYMENT_READY = "DeploymentReady"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class TrialCondition(StrEnum):
    """Condition types of a Trial."""

    CREATED = "Created"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    KILLED = "Killed"
    FAILED = "Failed"
    METRICS_UNAVAILABLE = "MetricsUnavailable"
    EARLY_STOPPED = "EarlyStopped"


class TrialState(StrEnum):
    """State of a trial."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    EARLY_STOPPED = "EarlyStopped"
    FAILED = "Failed"
    KILLED = "Killed"
    METRICS_UNAVAILABLE = "MetricsUnavailable"


TRIAL_STATES = (
    TrialState.KILLED,
    TrialState.FAILED,
    TrialState.SUCCEEDED,
    TrialState.EARLY_STOPPED,
    TrialState.METRICS_UNAVAILABLE,
    TrialState.RUNNING,
    TrialState.PENDING,
)
"""In order of precedence: the state is the first with a true condition of the same name, else the last."""

TRIAL_RANKS: Mapping[str, int] = {state: rank for rank, state in enumerate(TRIAL_STATES)}


UNAVAILABLE = "unavailable"
"""Text of a metric that could not be read."""


def _to_camel(name: str) -> str:
    from pydantic.alias_generators import to_camel

    return to_camel(name)


CAMEL_CASE: dict[str, Any] = {"alias_generator": _to_camel, "populate_by_name": True}
"""As `__pydantic_config__` of a dataclass: camel case in JSON."""
