"""The kinds of `kubeflow.org/v1beta1` and the types they share, field for field as Katib serves them.

The types are frozen structs: a change is a copy (`msgspec.structs.replace`). Words that Katib spells as strings stay
strings, so that an invalid object can be read and all its errors reported at once; the enums beside them list the valid
words and, as string enums, compare equal.

Encoding follows Katib's JSON shape: empty values are dropped, except nullable numbers that were given (`goal: 0`) and
the few objects that are always written.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from katib.model.types.words import (
    API_VERSION,
    CAMEL_CASE,
    GROUP,
    UNAVAILABLE,
    VERSION,
    CollectorKind,
    ComparisonType,
    ConditionStatus,
    Distribution,
    ExperimentCondition,
    FileFormat,
    FileSystemKind,
    MetricStrategy,
    ObjectiveType,
    ParameterType,
    ResumePolicy,
    SuggestionCondition,
    TrialCondition,
    TrialState,
)

if TYPE_CHECKING:
    from katib.model.types.blocks import (
        AlgorithmSetting,
        AlgorithmSpec,
        CollectorSpec,
        ConfigMapSource,
        EarlierTrial,
        EarlyStoppingRule,
        FeasibleSpace,
        FileSystemPath,
        FilterSpec,
        GraphConfig,
        InitialTrial,
        Metric,
        MetricConstraint,
        MetricsCollectorSpec,
        MetricStrategySpec,
        MetricValue,
        NasConfig,
        ObjectiveSpec,
        ObjectiveTerm,
        Observation,
        Operation,
        ParameterAssignment,
        ParameterCondition,
        ParameterPrior,
        ParameterSpec,
        SourceSpec,
        TrialParameterSpec,
        TrialTemplate,
        WarmStartSpec,
    )
    from katib.model.types.model import (
        DecimalText,
        Flag,
        Int32,
        Model,
        Number,
        PlainText,
        Time,
        format_time,
    )
    from katib.model.types.resources import (
        BudgetUsage,
        Condition,
        DefaultTrial,
        EarlierTrialsStatus,
        Experiment,
        ExperimentSpec,
        ExperimentStatus,
        ObjectMeta,
        OptimalTrial,
        OwnerReference,
        ParetoSet,
        Resource,
        Suggestion,
        SuggestionSpec,
        SuggestionStatus,
        Trial,
        TrialAssignment,
        TrialSpec,
        TrialStatus,
    )

_MODELS = ("resources", "blocks", "model")


def __getattr__(name: str) -> Any:
    """Import the models on first use: a command that shows objects needs only the words, and no struct."""
    if name[0].isupper() or name == "format_time":
        for module in _MODELS:
            if name in (found := vars(import_module(f"{__name__}.{module}"))):
                return globals().setdefault(name, found[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
