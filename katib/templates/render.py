"""From a template and an assignment to the object that a trial runs as.

Rendering is pure and structural: values are put into the texts of the object, all at once, so no value can break the
object's syntax, be taken for a placeholder, or depend on the order of parameters. A template is compiled once per
experiment; a trial then costs one copy of its object.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from katib.api.types import ParameterAssignment, TrialParameterSpec, TrialTemplate
from katib.api.wording import closest, shown
from katib.errors import FieldError, InvalidError
from katib.templates import yaml_text
from katib.templates.nodes import fill, prepare_object, prepare_yaml
from katib.templates.placeholders import (
    INDEXED_KEYS,
    MetadataReference,
    find_placeholders,
    join_text,
    parse_reference,
    split_text,
)
from katib.templates.source import CONFIG_MAP_PATH, INLINE_PATH, TEMPLATE_PATH, missing_config_map, template_path

PARAMETERS_PATH = f"{TEMPLATE_PATH}.trialParameters"

STAND_IN = "test-value"
"""What stands for a value where only the shape of the object is asked for."""


@dataclass(frozen=True, slots=True)
class _Reference:
    """Where the value of one placeholder comes from: an assignment, the trial, or the template itself."""

    path: str
    placeholder: str
    parameter: str = ""
    metadata: str = ""
    constant: str = ""


@dataclass(frozen=True, slots=True)
class CompiledTemplate:
    """A template ready to render. Immutable; may be shared between threads."""

    body: Callable[[Mapping[str, str]], Any]
    references: tuple[_Reference, ...]
    path: str

    def render(self, assignments: Sequence[ParameterAssignment], trial_name: str, namespace: str) -> dict[str, Any]:
        """Return the object of one trial, owned by the caller.

        Raises:
            InvalidError: A reference has no assignment, an assignment no reference, or a value does not fit its field.
        """
        values = self._values(assignments, {"Name": trial_name, "Namespace": namespace})
        obj = self.body(values)
        if not isinstance(obj, dict):
            raise InvalidError([not_an_object(self.path, "it is not a mapping")])
        metadata = obj.get("metadata") or {}
        if not isinstance(metadata, dict):
            raise InvalidError([not_an_object(f"{self.path}.metadata", "it is not a mapping")])
        obj["metadata"] = {**metadata, "name": trial_name, "namespace": namespace}
        return obj

    def _values(self, assignments: Sequence[ParameterAssignment], trial: dict[str, str]) -> dict[str, str]:
        assigned = {assignment.name: assignment.value for assignment in assignments}
        used = {reference.parameter for reference in self.references}
        errors = [_unassigned(r, assigned) for r in self.references if r.parameter and r.parameter not in assigned]
        errors += [_not_covered(name) for name in assigned if name not in used]
        if errors:
            raise InvalidError(errors)
        return {
            r.placeholder: assigned[r.parameter] if r.parameter else trial.get(r.metadata, r.constant)
            for r in self.references
        }


def compile_template(template: TrialTemplate, config_map_text: str | None = None) -> CompiledTemplate:
    """Prepare a template for rendering.

    Args:
        template: The template; valid, as `check_template` finds it.
        config_map_text: The text that `template_text` returned, when the template is kept in a ConfigMap.

    Raises:
        InvalidError: The template is not an object, a metadata reference is illegal or names something that the
            template lacks, or a placeholder has no trial parameter.
    """
    body, source = prepare(template, config_map_text)
    path = template_path(template)
    parameters = template.trial_parameters or ()
    references, errors = [], []
    for i, parameter in enumerate(parameters):
        reference, error = _resolve(parameter, f"{PARAMETERS_PATH}[{i}]", source, path)
        references.append(reference)
        errors += [error] if error else []
    known = [parameter.name for parameter in parameters]
    placeholders = find_placeholders(config_map_text if template.trial_spec is None else template.trial_spec)
    errors += [unknown_placeholder(path, name, known) for name in placeholders if name not in known]
    if errors:
        raise InvalidError(errors)
    return CompiledTemplate(body, tuple(references), path)


def render(
    template: TrialTemplate,
    config_map_text: str | None,
    assignments: Sequence[ParameterAssignment],
    trial_name: str,
    namespace: str,
) -> dict[str, Any]:
    """Compile and render at once; see `compile_template` and `CompiledTemplate.render`."""
    return compile_template(template, config_map_text).render(assignments, trial_name, namespace)


def prepare(
    template: TrialTemplate, config_map_text: str | None
) -> tuple[Callable[[Mapping[str, str]], Any], Mapping[str, Any]]:
    """Return the function that fills the template, and the template as an object with its placeholders in it.

    The latter is for checks: `check_job` and `check_job_schema` know that a placeholder may become anything.

    Raises:
        InvalidError: The template is not an object.
    """
    if template.trial_spec is not None:
        tree = prepare_object(template.trial_spec, INLINE_PATH)
        return (lambda values: fill(tree, values)), template.trial_spec
    if config_map_text is None:
        raise InvalidError([missing_config_map(template)])
    try:
        node = yaml_text.compose(config_map_text)
    except (yaml.YAMLError, RecursionError):
        return _prepare_text(config_map_text)
    tree = None if node is None else prepare_yaml(node)
    return (lambda values: fill(tree, values)), _mapping(yaml_text.parse(config_map_text))


def _prepare_text(text: str) -> tuple[Callable[[Mapping[str, str]], Any], Mapping[str, Any]]:
    """Prepare text that is no YAML as long as its placeholders are in it: there the value is part of the syntax."""
    parts = split_text(text)

    def body(values: Mapping[str, str]) -> Any:
        try:
            return yaml_text.parse(join_text(parts, values))
        except (yaml.YAMLError, RecursionError) as error:
            raise InvalidError([not_an_object(CONFIG_MAP_PATH, _yaml_cause(error))]) from error

    return body, _mapping(_with_placeholders(parts) or body(dict.fromkeys(parts[1::2], STAND_IN)))


def _with_placeholders(parts: tuple[str, ...]) -> Any:
    """Return the object with its placeholders in the form that YAML takes for text, None when that is none either."""
    try:
        return yaml_text.parse(join_text(parts, {name: f"$<trialParams.{name}>" for name in parts[1::2]}))
    except (yaml.YAMLError, RecursionError):
        return None


def _mapping(obj: Any) -> Mapping[str, Any]:
    if not isinstance(obj, Mapping):
        raise InvalidError([not_an_object(CONFIG_MAP_PATH, "it is not a mapping")])
    return obj


def _resolve(
    parameter: TrialParameterSpec, path: str, source: Mapping[str, Any], template: str
) -> tuple[_Reference, FieldError | None]:
    metadata = parse_reference(parameter.reference)
    if metadata is None:
        return _Reference(path, parameter.name, parameter=parameter.reference), None
    constant, error = look_up(metadata, f"{path}.reference", source, template)
    return _Reference(path, parameter.name, metadata=metadata.key, constant=constant), error


def look_up(
    reference: MetadataReference, path: str, source: Mapping[str, Any], template: str
) -> tuple[str, FieldError | None]:
    """Return what a metadata reference takes from the template, or why it cannot.

    Args:
        reference: The parsed reference.
        path: Path of the reference, for the error.
        source: The template as an object, placeholders still in it.
        template: Path of the template.
    """
    if not reference.is_legal:
        return "", illegal_reference(reference, path)
    if reference.key in INDEXED_KEYS:
        field = reference.key.lower()
        metadata = source.get("metadata")
        entries = metadata.get(field) if isinstance(metadata, Mapping) else None
        if not isinstance(entries, Mapping) or reference.index not in entries:
            cause = f"the template has no {field[:-1]} {shown(reference.index)}"
            remedy = f"add it at {template}.metadata.{field}"
            return "", FieldError(path, cause, remedy, "template-metadata-missing")
        return str(entries[reference.index]), None
    return str(source.get({"Kind": "kind", "APIVersion": "apiVersion"}.get(reference.key, ""), "")), None


def illegal_reference(reference: MetadataReference, path: str) -> FieldError:
    """Return the error for a metadata reference that does not exist."""
    index = f"[{reference.index}]" if reference.index else ""
    return FieldError(
        path,
        f"${{trialSpec.{reference.key}{index}}} is not a metadata reference",
        "use Name, Namespace, Kind, APIVersion, Labels[key] or Annotations[key]",
        "template-metadata-reference",
    )


def unknown_placeholder(path: str, name: str, known: Sequence[str]) -> FieldError:
    """Return the error for a placeholder that no trial parameter fills."""
    close = closest(name, known)
    remedy = f"did you mean {close}" if close else f"add a trial parameter named {name}"
    return FieldError(
        path, f"placeholder ${{trialParameters.{name}}} has no trial parameter", remedy, "template-placeholder-unknown"
    )


def not_an_object(path: str, cause: str) -> FieldError:
    """Return the error for a template that is no object, or none any more with the values in it."""
    return FieldError(
        path, f"the template is not an object: {cause}", "give one YAML or JSON object", "template-not-an-object"
    )


def _yaml_cause(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _unassigned(reference: _Reference, assigned: Mapping[str, str]) -> FieldError:
    close = closest(reference.parameter, assigned)
    return FieldError(
        f"{reference.path}.reference",
        f"the assignment has no parameter {shown(reference.parameter)}",
        f"did you mean {close}" if close else "refer to a parameter of the search space",
        "template-reference-unassigned",
    )


def _not_covered(name: str) -> FieldError:
    return FieldError(
        PARAMETERS_PATH,
        f"no trial parameter refers to the assigned parameter {shown(name)}",
        f"add one with reference {name} and use it in the template",
        "template-assignment-unused",
    )
