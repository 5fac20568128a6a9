"""Rules about experiments without a trial template, whose trials are evaluated by those who ask for them."""

from __future__ import annotations

from collections.abc import Iterator

from katib.api.checkpoints import checkpoint_directory
from katib.api.leases import LOST_LEASES, is_asked
from katib.api.names import LOST_LEASES_ANNOTATION
from katib.api.types import CollectorKind, Experiment
from katib.api.wording import one_of, shown
from katib.errors import FieldError

_COLLECTORS = (CollectorKind.PUSH, CollectorKind.NONE)


def check_callers(experiment: Experiment) -> Iterator[FieldError]:
    """Check what needs a job where there is none. With defaults."""
    if not is_asked(experiment):
        return
    spec, policy = experiment.spec, experiment.metadata.annotations.get(LOST_LEASES_ANNOTATION)
    collector = spec.metrics_collector_spec
    if collector is not None and collector.kind in tuple(CollectorKind) and collector.kind not in _COLLECTORS:
        cause = f"{collector.kind} reads what a job leaves, and without spec.trialTemplate there is no job"
        remedy = "remove it, since callers report their metrics, or add spec.trialTemplate"
        yield FieldError("spec.metricsCollectorSpec.collector.kind", cause, remedy, "collector-without-template")
    if checkpoint_directory(spec.algorithm):
        cause = "its checkpoints are handed from job to job, and without spec.trialTemplate there is no job"
        yield FieldError("spec.algorithm", cause, "add spec.trialTemplate", "checkpoints-without-template")
    if policy is not None and policy not in LOST_LEASES:
        path = f'metadata.annotations["{LOST_LEASES_ANNOTATION}"]'
        yield FieldError(path, f"{shown(policy)} is not known", one_of(LOST_LEASES), "lost-leases")
