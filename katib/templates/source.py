"""Where the text of a template comes from, and what both sources have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from katib.api.types import TrialTemplate
from katib.errors import FieldError, InvalidError

TEMPLATE_PATH = "spec.trialTemplate"
INLINE_PATH = f"{TEMPLATE_PATH}.trialSpec"
CONFIG_MAP_PATH = f"{TEMPLATE_PATH}.configMap"

ConfigMapReader = Callable[[str, str], Mapping[str, str] | None]


def template_path(template: TrialTemplate) -> str:
    """Return the path under which the fields of this template's object are named in errors."""
    return CONFIG_MAP_PATH if template.trial_spec is None else INLINE_PATH


def template_text(template: TrialTemplate, read_config_map: ConfigMapReader) -> str | None:
    """Return the text of a template that is kept in a ConfigMap, None for an inline template.

    Args:
        template: The template.
        read_config_map: Takes namespace and name; returns the `data` of the ConfigMap, None when there is none.

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
        raise InvalidError(
            [
                FieldError(
                    f"{CONFIG_MAP_PATH}.templatePath",
                    f'ConfigMap {name} has no key "{source.template_path}"',
                    f"use one of its keys: {keys}",
                    "template-key-missing",
                )
            ]
        )
    return data[source.template_path]


def missing_config_map(template: TrialTemplate) -> FieldError:
    """Return the error for a ConfigMap that does not exist."""
    source = template.config_map
    name = f"{source.config_map_namespace}/{source.config_map_name}" if source else ""
    return FieldError(
        f"{CONFIG_MAP_PATH}.configMapName",
        f"ConfigMap {name} is not found",
        "create it before the experiment, or give the template inline as trialSpec",
        "template-config-map-missing",
    )
