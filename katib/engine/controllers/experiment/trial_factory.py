"""Makes Trial objects from assignments: the template is compiled once, then rendered for each trial.

The trials of an experiment without a template have no job; callers evaluate them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from katib.engine.controllers.experiment.config_maps import TemplateConfigMaps
from katib.engine.controllers.kinds import owned_by
from katib.engine.runtime.objects import Key
from katib.model.features.listed import FEATURES
from katib.model.names import (
    BY_CALLER,
    EVALUATED_BY_LABEL,
    EXPERIMENT_LABEL,
    LOST_LEASES_ANNOTATION,
    TRIAL_FINALIZER,
    without_queue,
)
from katib.model.templates.render import CompiledTemplate, compile_template
from katib.model.templates.source import template_text, usable_data
from katib.model.trials import is_asked
from katib.model.types import (
    Experiment,
    MetricsCollectorSpec,
    ObjectMeta,
    Trial,
    TrialAssignment,
    TrialSpec,
    TrialTemplate,
)


class TrialFactory:
    """Renders trials. Used by one worker per experiment at a time."""

    def __init__(self, config_maps: TemplateConfigMaps) -> None:
        self._config_maps = config_maps
        self._compiled: dict[str, tuple[str, CompiledTemplate]] = {}

    def template_of(self, experiment: Experiment) -> CompiledTemplate:
        """Return the compiled template of an experiment, recompiled if its text changed.

        Raises:
            InvalidError: The template is invalid, or its text is missing (`is_not_there` tells which).
        """
        template = experiment.spec.trial_template or TrialTemplate()
        find, namespace = self._config_maps.find, experiment.namespace
        text = template_text(template, lambda *place: usable_data(find(Key(*place)), namespace))
        version = f"{experiment.metadata.generation}:{text}"
        cached = self._compiled.get(experiment.metadata.uid)
        if cached is not None and cached[0] == version:
            return cached[1]
        compiled = compile_template(template, text, experiment.spec.parameters)
        self._compiled[experiment.metadata.uid] = (version, compiled)
        return compiled

    def forget(self, uid: str) -> None:
        """Drop the cached template of a deleted experiment."""
        self._compiled.pop(uid, None)

    def make(self, experiment: Experiment, assignment: TrialAssignment) -> dict[str, Any]:
        """Return the Trial object of an assignment, ready to be created.

        Raises:
            InvalidError: The template cannot be rendered with it.
        """
        rendered = None
        if not is_asked(experiment):
            rendered = self.template_of(experiment).render(
                assignment.parameter_assignments, assignment.name, experiment.namespace, assignment.labels
            )
        return trial_of(experiment, assignment, rendered).encode()


def trial_of(experiment: Experiment, assignment: TrialAssignment, run_spec: dict[str, Any] | None) -> Trial:
    template, asked = experiment.spec.trial_template or TrialTemplate(), is_asked(experiment)
    both = bool(template.success_condition and template.failure_condition)
    added = (feature.trial_annotations(experiment, run_spec) for feature in FEATURES)
    spec = TrialSpec(
        objective=experiment.spec.objective,
        parameter_assignments=assignment.parameter_assignments,
        early_stopping_rules=assignment.early_stopping_rules,
        run_spec=run_spec,
        retain_run=template.retain,
        metrics_collector=experiment.spec.metrics_collector_spec or MetricsCollectorSpec(),
        primary_pod_labels=template.primary_pod_labels,
        primary_container_name=template.primary_container_name,
        success_condition=template.success_condition if both else "",
        failure_condition=template.failure_condition if both else "",
        labels=assignment.labels,
    )
    # Those of Kueue are for the jobs: pods bear the labels of their trial, and Kueue may queue such a pod by itself.
    own = without_queue(experiment.metadata.labels)
    of_kueue = {name: value for name, value in experiment.metadata.labels.items() if name not in own}
    if run_spec is not None and of_kueue:
        spec = structs.replace(spec, run_spec=_queued(run_spec, of_kueue))
    metadata = ObjectMeta(
        name=assignment.name,
        namespace=experiment.namespace,
        labels={
            **own,
            EXPERIMENT_LABEL: experiment.name,
            **assignment.labels,
            **({EVALUATED_BY_LABEL: BY_CALLER} if asked else {}),
        },
        annotations={
            **(_lost_leases(experiment) if asked else {}),
            **{name: text for annotations in added for name, text in annotations.items()},
        },
        owner_references=(owned_by(experiment),),
        finalizers=(TRIAL_FINALIZER,),
    )
    return Trial(metadata=metadata, spec=spec)


def _queued(run_spec: dict[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    """Return a job with these labels added; those of its template take precedence."""
    metadata = run_spec.get("metadata") or {}
    given = metadata.get("labels") or {}
    if not isinstance(given, Mapping):
        return run_spec
    return {**run_spec, "metadata": {**metadata, "labels": {**labels, **given}}}


def _lost_leases(experiment: Experiment) -> dict[str, str]:
    """Return the annotation for trials whose caller is lost."""
    policy = experiment.metadata.annotations.get(LOST_LEASES_ANNOTATION)
    return {LOST_LEASES_ANNOTATION: policy} if policy else {}
