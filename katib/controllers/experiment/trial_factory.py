"""Makes Trial objects from assignments: the template is compiled once, then rendered for each trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from katib.api.names import EXPERIMENT_LABEL, TRIAL_FINALIZER
from katib.api.types import (
    Experiment,
    MetricsCollectorSpec,
    ObjectMeta,
    Trial,
    TrialAssignment,
    TrialSpec,
    TrialTemplate,
)
from katib.controllers.kinds import CONFIG_MAP, owned_by
from katib.errors import NotFoundError
from katib.runtime.objects import Key, ObjectStore
from katib.templates.render import CompiledTemplate, compile_template
from katib.templates.source import template_text


class TrialFactory:
    """Renders trials. Used by one worker per experiment at a time."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._compiled: dict[str, tuple[str, CompiledTemplate]] = {}

    def template_of(self, experiment: Experiment) -> CompiledTemplate:
        """Return the compiled template of an experiment, made anew when its text changed.

        Raises:
            InvalidError: The template, or the ConfigMap that holds it, is missing or cannot be used.
        """
        template = experiment.spec.trial_template or TrialTemplate()
        text = template_text(template, self._config_map)
        version = f"{experiment.metadata.generation}:{text}"
        cached = self._compiled.get(experiment.metadata.uid)
        if cached is not None and cached[0] == version:
            return cached[1]
        compiled = compile_template(template, text)
        self._compiled[experiment.metadata.uid] = (version, compiled)
        return compiled

    def forget(self, uid: str) -> None:
        """Drop what is kept for an experiment that is gone."""
        self._compiled.pop(uid, None)

    def make(self, experiment: Experiment, assignment: TrialAssignment) -> dict[str, Any]:
        """Return the Trial object of an assignment, ready to be created.

        Raises:
            InvalidError: The template cannot be rendered with it.
        """
        template = experiment.spec.trial_template or TrialTemplate()
        rendered = self.template_of(experiment).render(
            assignment.parameter_assignments, assignment.name, experiment.namespace
        )
        both = bool(template.success_condition and template.failure_condition)
        spec = TrialSpec(
            objective=experiment.spec.objective,
            parameter_assignments=assignment.parameter_assignments,
            early_stopping_rules=assignment.early_stopping_rules,
            run_spec=rendered,
            retain_run=template.retain,
            metrics_collector=experiment.spec.metrics_collector_spec or MetricsCollectorSpec(),
            primary_pod_labels=template.primary_pod_labels,
            primary_container_name=template.primary_container_name,
            success_condition=template.success_condition if both else "",
            failure_condition=template.failure_condition if both else "",
            labels=assignment.labels,
        )
        metadata = ObjectMeta(
            name=assignment.name,
            namespace=experiment.namespace,
            labels={
                **experiment.metadata.labels,
                EXPERIMENT_LABEL: experiment.name,
                **assignment.labels,
            },
            owner_references=(owned_by(experiment),),
            finalizers=(TRIAL_FINALIZER,),
        )
        return Trial(metadata=metadata, spec=spec).encode()

    def _config_map(self, namespace: str, name: str) -> Mapping[str, str] | None:
        try:
            return self._store.get(CONFIG_MAP, Key(namespace, name)).get("data") or {}
        except NotFoundError:
            return None
