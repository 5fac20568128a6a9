"""Diagnosis of an OptimizationJob without an Experiment."""

from __future__ import annotations

from katib.model.names import ALGORITHM_ANNOTATION
from katib.model.optimization_jobs import other_manager
from katib.model.types.optimization import OptimizationJob
from katib.service.explaining.answer import DiagnosisDraft
from katib.service.explaining.evidence import Evidence
from katib.service.tuning.service import Diagnosis


def diagnose_optimization_job(job: OptimizationJob, evidence: Evidence) -> Diagnosis:
    """Return why there is no Experiment for an OptimizationJob."""
    last, place = next(reversed(job.status.conditions), None), evidence.place
    if other := other_manager(job):
        answer = DiagnosisDraft(f"Another controller works on OptimizationJob {job.name}: {other}.")
        if last is not None:
            answer.findings.append(f"It says: {last.message or last.type} ({last.reason}).")
    elif last is not None:
        answer = DiagnosisDraft(f"OptimizationJob {job.name}: {last.message or last.type} ({last.reason}).")
    elif place.needs_annotation and ALGORITHM_ANNOTATION not in job.metadata.annotations:
        answer = DiagnosisDraft(
            f"Nobody works on OptimizationJob {job.name}: it has no annotation {ALGORITHM_ANNOTATION}."
        )
        answer.findings.append("Without the annotation it is left to Kubeflow Trainer, whose controller wrote nothing.")
        space = f" --namespace {job.namespace}"
        answer.remedies.append(
            f"`kubectl annotate optimizationjob {job.name}{space} {ALGORITHM_ANNOTATION}=random` has it run as its "
            "searchAlgorithm says; any other algorithm, such as tpe, takes the place of it."
        )
    else:
        answer = DiagnosisDraft(f"OptimizationJob {job.name} has no experiment yet.")
        if not evidence.controllers_running:
            answer.findings.append(f"Nobody works on it: {place.idle}.")
            answer.remedies.append(place.start)
        elif place.needs_annotation:
            answer.remedies.append(
                "If this lasts, apply manifests/components/optimization-jobs and restart the controller: it looks for "
                "the kind when it starts to lead."
            )
    return answer.diagnosis("OptimizationJob", job.name, last.type if last is not None else "")
