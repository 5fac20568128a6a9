"""Why an experiment does not progress, or how it ended."""

from __future__ import annotations

from katib.api.names import EXPERIMENT_STOPPED, SERVICE_UNAVAILABLE, TEMPLATE_MISSING
from katib.diagnosis.answer import finding_of_event, pick_warnings
from katib.diagnosis.ended import explain_ended
from katib.diagnosis.evidence import Evidence
from katib.diagnosis.unfinished import explain_unfinished
from katib.tuning.reading import is_completed, name_of, state_of, status_of
from katib.tuning.service import Diagnosis, Json

_TOLD_BY_THE_END = frozenset({"ExperimentFailed", "MetricsUnavailable", "SuggestionFailed"})
"""Reasons of warnings that say no more than the verdict of an ended experiment."""

_TOLD_BY_CONDITIONS = frozenset({TEMPLATE_MISSING, EXPERIMENT_STOPPED, SERVICE_UNAVAILABLE, "SuggestionServiceWaiting"})
"""Reasons of warnings that a condition tells while they hold."""


def diagnose_experiment(experiment: Json, evidence: Evidence) -> Diagnosis:
    """Explain one experiment.

    Args:
        experiment: The Experiment object.
        evidence: What is known; the more of it, the nearer the answer.
    """
    ended = is_completed(experiment)
    answer = explain_ended(experiment, evidence) if ended else explain_unfinished(experiment, evidence)
    explanation = status_of(evidence.suggestion or {}).get("explanation")
    answer.findings.extend([str(explanation)] if explanation else ())
    told = _TOLD_BY_CONDITIONS | (_TOLD_BY_THE_END if ended else frozenset())
    events = [event for event in evidence.events if event.reason not in told]
    answer.findings.extend(map(finding_of_event, pick_warnings(events)))
    return answer.diagnosis("Experiment", name_of(experiment), state_of(experiment))
