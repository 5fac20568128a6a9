"""Source of a template's text, and the common properties of both sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from katib.errors import FieldError, InvalidError, invalid
from katib.model.types import TrialTemplate

TEMPLATE_PATH = "spec.trialTemplate"
INLINE_PATH = f"{TEMPLATE_PATH}.trialSpec"
CONFIG_MAP_PATH = f"{TEMPLATE_PATH}.configMap"
PARAMETERS_PATH = f"{TEMPLATE_PATH}.trialParameters"

OFFERED_LABEL, OFFERED = "katib.kubeflow.org/component", "trial-templates"
"""Label of ConfigMaps whose templates experiments of every namespace may use; Katib's web page lists the same."""

_NOT_THERE = frozenset({"template-config-map-missing", "template-key-missing"})

ConfigMapReader = Callable[[str, str], Mapping[str, str] | None]


def usable_data(config_map: Mapping[str, Any] | None, namespace: str) -> Mapping[str, str] | None:
    """Return the data of a ConfigMap for an experiment in a namespace; None if there is none, or it is not accessible.

    A ConfigMap of another namespace must be offered by its label. Otherwise, a user who may create experiments could
    make the controller read ConfigMaps that the user may not read.
    """
    if config_map is None:
        return None
    metadata = config_map.get("metadata") or {}
    offered = (metadata.get("labels") or {}).get(OFFERED_LABEL) == OFFERED
    if not offered and metadata.get("namespace") != namespace:
        return None
    return config_map.get("data") or {}


def is_not_there(error: FieldError) -> bool:
    """Return whether an error only means that the text of a template cannot be found, which may change."""
    return error.origin in _NOT_THERE


def template_path(template: TrialTemplate) -> str:
    return CONFIG_MAP_PATH if template.trial_spec is None else INLINE_PATH


def template_text(template: TrialTemplate, read_config_map: ConfigMapReader) -> str | None:
    """Return the text of a template in a ConfigMap, None for an inline template.

    Args:
        read_config_map: Returns the `data` of a ConfigMap by namespace and name, None if there is none that the
            experiment may use.

    Raises:
        InvalidError: The ConfigMap or the key in it does not exist.
    """
    source = template.config_map
    if source is None or template.trial_spec is not None:
        return None
    name = f"{source.config_map_namespace}/{source.config_map_name}"
    data = read_config_map(source.config_map_namespace, source.config_map_name)
    if data is None:
        raise InvalidError([missing_config_map(template)])
    if source.template_path not in data:
        keys = ", ".join(sorted(data)) or "none"
        raise invalid(
            f"{CONFIG_MAP_PATH}.templatePath",
            f'ConfigMap {name} has no key "{source.template_path}"',
            f"use one of its keys: {keys}",
            "template-key-missing",
        )
    return data[source.template_path]


def missing_config_map(template: TrialTemplate) -> FieldError:
    """Return the error for a ConfigMap that does not exist, or is not offered: a user must not learn which."""
    source = template.config_map
    name = f"{source.config_map_namespace}/{source.config_map_name}" if source else ""
    return FieldError(
        f"{CONFIG_MAP_PATH}.configMapName",
        f"ConfigMap {name} is not found",
        f"create it in the experiment's namespace, or in another one with the label {OFFERED_LABEL}={OFFERED}",
        "template-config-map-missing",
    )
