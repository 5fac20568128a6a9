"""Rendering of a trial's object from a template and an assignment.

Rendering is pure and structural: values are inserted into the texts of the object, all at once, so no value can break
the object's syntax, be taken for a placeholder, or depend on the order of parameters. A template is compiled once per
experiment; a trial then costs one copy of its object.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from katib.errors import FieldError, InvalidError
from katib.model.names import is_set_by_algorithm, trial_seed
from katib.model.templates.absence import check_absence, optional_names, prevents_rendering
from katib.model.templates.nodes import fill, prepare_object, prepare_yaml, with_optional_elements
from katib.model.templates.placeholders import (
    INDEXED_KEYS,
    MetadataReference,
    find_placeholders,
    join_text,
    parse_reference,
    split_text,
)
from katib.model.templates.source import (
    CONFIG_MAP_PATH,
    INLINE_PATH,
    PARAMETERS_PATH,
    missing_config_map,
    template_path,
)
from katib.model.types import ParameterAssignment, ParameterSpec, TrialParameterSpec, TrialTemplate
from katib.model.wording import closest, shown
from katib.model.written import read_object

NO_LABELS: Mapping[str, str] = MappingProxyType({})

STAND_IN = "test-value"
"""Replaces a value when only the shape of the object is needed."""


@dataclass(frozen=True, slots=True)
class _Reference:
    """Source of the value of one placeholder: an assignment, the trial, or the template itself.

    Attributes:
        may_be_absent: Whether the assignments of some trials lack the parameter.
        otherwise: Its replacement there; without it, the list element is left out.
    """

    path: str
    placeholder: str
    parameter: str = ""
    metadata: str = ""
    constant: str = ""
    may_be_absent: bool = False
    otherwise: str | None = None


@dataclass(frozen=True, slots=True)
class CompiledTemplate:
    """A template ready to render. Immutable and thread-safe."""

    body: Callable[[Mapping[str, str]], Any]
    references: tuple[_Reference, ...]
    path: str

    def render(
        self,
        assignments: Sequence[ParameterAssignment],
        trial_name: str,
        namespace: str,
        labels: Mapping[str, str] = NO_LABELS,
    ) -> dict[str, Any]:
        """Return the object of one trial, owned by the caller.

        Raises:
            InvalidError: A reference has no assignment, an assignment no reference, or a value does not fit its field.
        """
        trial = {"Name": trial_name, "Namespace": namespace, "Seed": str(trial_seed(namespace, trial_name))}
        for label, value in labels.items():
            trial[_label_reference(label)] = value
        obj = self.body(self._values(assignments, trial))
        if not isinstance(obj, dict):
            raise InvalidError([not_an_object(self.path, "it is not a mapping")])
        metadata = obj.get("metadata") or {}
        if not isinstance(metadata, dict):
            raise InvalidError([not_an_object(f"{self.path}.metadata", "it is not a mapping")])
        obj["metadata"] = {**metadata, "name": trial_name, "namespace": namespace}
        return obj

    def _values(self, assignments: Sequence[ParameterAssignment], trial: dict[str, str]) -> dict[str, str]:
        assigned = {assignment.name: assignment.value for assignment in assignments}
        not_covered = dict.fromkeys(assigned)
        values: dict[str, str] = {}
        errors: list[FieldError] = []
        for reference in self.references:
            parameter, value = reference.parameter, reference.otherwise
            if not parameter:
                value = trial.get(reference.metadata, reference.constant)
            elif parameter in assigned:
                value = assigned[parameter]
                not_covered.pop(parameter, None)
            elif not reference.may_be_absent:
                errors.append(_unassigned(reference, assigned))
            if value is not None:
                values[reference.placeholder] = value
        errors += map(_not_covered, not_covered)
        if errors:
            raise InvalidError(errors)
        return values


def compile_template(
    template: TrialTemplate, config_map_text: str | None = None, parameters: Sequence[ParameterSpec] = ()
) -> CompiledTemplate:
    """Prepare a template for rendering.

    Args:
        template: The template, valid according to `check_template`.
        config_map_text: The text returned by `template_text`, if the template is in a ConfigMap.
        parameters: The search space, if some parameters may be absent from a trial.

    Raises:
        InvalidError: The template is not an object, a metadata reference is illegal or refers to a missing part of the
            template, a placeholder has no trial parameter, or an absent parameter has no possible replacement.
    """
    body, source = prepare(template, config_map_text, optional_names(template, parameters))
    path = template_path(template)
    found = check_absence(template, parameters, source, config_map_text)
    references, errors = [], list(filter(prevents_rendering, found))
    conditional = {parameter.name for parameter in parameters if parameter.when is not None}
    for i, entry in enumerate(template.trial_parameters or ()):
        reference, error = _resolve(entry, f"{PARAMETERS_PATH}[{i}]", source, path, conditional)
        references.append(reference)
        errors += [error] if error else []
    known = [entry.name for entry in template.trial_parameters or ()]
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
    parameters: Sequence[ParameterSpec] = (),
) -> dict[str, Any]:
    """Compile and render at once; see `compile_template` and `CompiledTemplate.render`."""
    return compile_template(template, config_map_text, parameters).render(assignments, trial_name, namespace)


def prepare(
    template: TrialTemplate, config_map_text: str | None, optional: frozenset[str] = frozenset()
) -> tuple[Callable[[Mapping[str, str]], Any], Mapping[str, Any]]:
    """Return the function that fills the template, and the template as an object with its placeholders.

    The latter is for checks: `check_job` and `check_job_schema` accept any value for a placeholder.

    Args:
        config_map_text: The text returned by `template_text`, if the template is in a ConfigMap.
        optional: Placeholders whose list element is left out if they have no value.

    Raises:
        InvalidError: The template is not an object.
    """
    if template.trial_spec is not None:
        tree = with_optional_elements(prepare_object(template.trial_spec, INLINE_PATH), optional)
        return partial(fill, tree), template.trial_spec
    if config_map_text is None:
        raise InvalidError([missing_config_map(template)])
    try:
        tree = with_optional_elements(prepare_yaml(config_map_text), optional)
    except InvalidError:
        return _prepare_text(config_map_text)
    return partial(fill, tree), _mapping(read_object(config_map_text, "template"))


def _prepare_text(text: str) -> tuple[Callable[[Mapping[str, str]], Any], Mapping[str, Any]]:
    """Prepare text that is not YAML with its placeholders: there the values are part of the syntax."""
    parts = split_text(text)

    def body(values: Mapping[str, str]) -> Any:
        try:
            return read_object(join_text(parts, values), "template")
        except InvalidError as error:
            [found] = error.errors
            raise InvalidError([not_an_object(CONFIG_MAP_PATH, f"{found.path}: {found.cause}")]) from error

    return body, _mapping(_with_placeholders(parts) or body(dict.fromkeys(parts[1::2], STAND_IN)))


def _with_placeholders(parts: tuple[str, ...]) -> Any:
    """Return the object with its placeholders in the form that YAML reads as text, None if that is not YAML either."""
    try:
        return read_object(join_text(parts, {name: f"$<trialParams.{name}>" for name in parts[1::2]}), "template")
    except InvalidError:
        return None


def _mapping(obj: Any) -> Mapping[str, Any]:
    if not isinstance(obj, Mapping):
        raise InvalidError([not_an_object(CONFIG_MAP_PATH, "it is not a mapping")])
    return obj


def _resolve(
    entry: TrialParameterSpec, path: str, source: Mapping[str, Any], template: str, conditional: Container[str]
) -> tuple[_Reference, FieldError | None]:
    metadata = parse_reference(entry.reference)
    if metadata is None:
        is_conditional = entry.reference in conditional
        reference = _Reference(path, entry.name, parameter=entry.reference, may_be_absent=is_conditional)
        return replace(reference, otherwise=entry.otherwise if is_conditional else None), None
    constant, error = look_up(metadata, f"{path}.reference", source, template)
    key = _label_reference(metadata.index) if metadata.key == "Labels" else metadata.key
    return _Reference(path, entry.name, metadata=key, constant=constant), error


def _label_reference(label: str) -> str:
    return f"Labels[{label}]"


def look_up(
    reference: MetadataReference, path: str, source: Mapping[str, Any], template: str
) -> tuple[str, FieldError | None]:
    """Return the part of the template that a metadata reference refers to, or the error."""
    if not reference.is_legal:
        return "", illegal_reference(reference, path)
    if reference.key in INDEXED_KEYS:
        field = reference.key.lower()
        metadata = source.get("metadata")
        entries = metadata.get(field) if isinstance(metadata, Mapping) else None
        if reference.key == "Labels" and is_set_by_algorithm(reference.index):
            return str((entries if isinstance(entries, Mapping) else {}).get(reference.index, "")), None
        if not isinstance(entries, Mapping) or reference.index not in entries:
            cause = f"the template has no {field[:-1]} {shown(reference.index)}"
            remedy = f"add it at {template}.metadata.{field}"
            return "", FieldError(path, cause, remedy, "template-metadata-missing")
        return str(entries[reference.index]), None
    return str(source.get({"Kind": "kind", "APIVersion": "apiVersion"}.get(reference.key, ""), "")), None


def illegal_reference(reference: MetadataReference, path: str) -> FieldError:
    index = f"[{reference.index}]" if reference.index else ""
    return FieldError(
        path,
        f"${{trialSpec.{reference.key}{index}}} is not a metadata reference",
        "use Name, Namespace, Kind, APIVersion, Seed, Labels[key] or Annotations[key]",
        "template-metadata-reference",
    )


def unknown_placeholder(path: str, name: str, known: Sequence[str]) -> FieldError:
    """Return the error for a placeholder without trial parameter."""
    close = closest(name, known)
    remedy = f"did you mean {close}" if close else f"add a trial parameter named {name}"
    return FieldError(
        path, f"placeholder ${{trialParameters.{name}}} has no trial parameter", remedy, "template-placeholder-unknown"
    )


def not_an_object(path: str, cause: str) -> FieldError:
    """Return the error for a template that is not an object, possibly only after inserting the values."""
    return FieldError(
        path, f"the template is not an object: {cause}", "give one YAML or JSON object", "template-not-an-object"
    )


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
