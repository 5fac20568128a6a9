"""Rules about the frame of a trial template. What is inside is for `check_template`, which the caller brings along."""

from __future__ import annotations

from collections.abc import Iterator

from katib.api.job_kinds import misspelt_kind
from katib.api.types import TrialTemplate
from katib.errors import FieldError

_PATH = "spec.trialTemplate"


def check_frame(template: TrialTemplate) -> Iterator[FieldError]:
    """Check what must be there beside the template's source."""
    if not template.primary_container_name:
        remedy = "name the container that prints the metrics"
        yield FieldError(f"{_PATH}.primaryContainerName", "it is missing", remedy, "primary-container-missing")
    conditions = {"successCondition": template.success_condition, "failureCondition": template.failure_condition}
    misspelt = misspelt_kind(template.trial_spec, f"{_PATH}.trialSpec") if not all(conditions.values()) else []
    yield from misspelt
    for name, condition in conditions.items():
        if not condition and not misspelt:  # the kind that is meant has them
            remedy = "give a GJSON path over the job's status; only known kinds of an inline template have a default"
            yield FieldError(f"{_PATH}.{name}", "it is missing", remedy, "condition-missing")
    if not template.trial_parameters:
        remedy = "list name and reference of each placeholder of the template"
        yield FieldError(f"{_PATH}.trialParameters", "it is missing", remedy, "trial-parameters-missing")


def check_source(template: TrialTemplate) -> Iterator[FieldError]:
    """Check that the template has exactly one source, and that it is complete."""
    inline, config_map = template.trial_spec is not None, template.config_map
    if not inline and config_map is None:
        remedy = "give the object a trial runs as in trialSpec, or its place in configMap"
        yield FieldError(_PATH, "it has neither trialSpec nor configMap", remedy, "template-source-missing")
    elif inline and config_map is not None:
        yield FieldError(_PATH, "it has both trialSpec and configMap", "keep one of them", "template-source-both")
    elif config_map is not None:
        for name, value, meaning in (
            ("configMapName", config_map.config_map_name, "the ConfigMap"),
            ("configMapNamespace", config_map.config_map_namespace, "the namespace of the ConfigMap"),
            ("templatePath", config_map.template_path, "the key in the ConfigMap"),
        ):
            if not value:
                where = f"{_PATH}.configMap.{name}"
                yield FieldError(where, "it is missing", f"name {meaning}", "config-map-field-missing")
