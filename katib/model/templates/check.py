"""Validation of a trial template before any trial: all errors at once, each with the path to fix.

Whether a `trialTemplate` has its required fields and exactly one source is checked by `katib.model.validation`; whether
the object is a job that can run, by the workload.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from katib.errors import FieldError, InvalidError
from katib.model.templates.absence import check_absence
from katib.model.templates.placeholders import find_placeholders, has_placeholder, parse_reference
from katib.model.templates.render import STAND_IN, look_up, prepare, unknown_placeholder
from katib.model.templates.source import PARAMETERS_PATH, TEMPLATE_PATH, template_path
from katib.model.types import ParameterSpec, TrialParameterSpec, TrialTemplate
from katib.model.wording import closest, shown


def check_template(
    template: TrialTemplate, parameters: Sequence[ParameterSpec], config_map_text: str | None = None
) -> list[FieldError]:
    """Return the errors of a template.

    Args:
        template: The template. Without source, or with both, nothing is checked.
        parameters: The search space; empty for an architecture search, whose service names its own parameters.
        config_map_text: The text returned by `template_text`, if the template is in a ConfigMap.
    """
    if (template.trial_spec is None) == (template.config_map is None):
        return []
    path = template_path(template)
    names = [parameter.name for parameter in parameters]
    errors = [*_check_entries(template.trial_parameters or (), names), *_check_usage(template, names)]
    try:
        body, source = prepare(template, config_map_text)
    except InvalidError as error:
        return [*errors, *error.errors]
    found = find_placeholders(config_map_text if template.trial_spec is None else template.trial_spec)
    errors += _check_metadata_references(template.trial_parameters or (), source, path)
    errors += _check_placeholders(template.trial_parameters or (), found, path)
    errors += check_absence(template, parameters, source, config_map_text)
    errors += _check_object(_sample(body, source, found), path)
    errors += _check_primary_container(template.primary_container_name, source)
    return errors


def _check_entries(entries: Sequence[TrialParameterSpec], parameters: Sequence[str]) -> Iterator[FieldError]:
    names: set[str] = set()
    references: set[str] = set()
    for i, entry in enumerate(entries):
        path = f"{PARAMETERS_PATH}[{i}]"
        if not entry.name or not entry.reference:
            field = "reference" if entry.name else "name"
            yield FieldError(f"{path}.{field}", "it is empty", f"give the {field}", "trial-parameter-incomplete")
        elif "{" in entry.name or "}" in entry.name:
            yield FieldError(
                f"{path}.name", f"{shown(entry.name)} contains a brace", "remove the braces", "trial-parameter-name"
            )
        elif entry.name in names:
            remedy = "give every trial parameter a name of its own"
            yield FieldError(f"{path}.name", f"{shown(entry.name)} is used twice", remedy, "trial-parameter-duplicate")
        elif entry.reference in references:
            remedy = "keep one of them: a placeholder may occur several times in the template"
            cause = f"{shown(entry.reference)} is referred to twice"
            yield FieldError(f"{path}.reference", cause, remedy, "trial-parameter-reference-duplicate")
        elif parameters and entry.reference not in parameters and parse_reference(entry.reference) is None:
            yield _unknown_reference(f"{path}.reference", entry.reference, parameters)
        names.add(entry.name)
        references.add(entry.reference)


def _unknown_reference(path: str, reference: str, parameters: Sequence[str]) -> FieldError:
    close = closest(reference, parameters)
    return FieldError(
        path,
        f"{shown(reference)} is not a parameter of the search space",
        f"did you mean {close}" if close else f"use one of {', '.join(parameters)}, or a ${{trialSpec...}} reference",
        "trial-parameter-reference-unknown",
    )


def _check_usage(template: TrialTemplate, parameters: Sequence[str]) -> Iterator[FieldError]:
    used = {entry.reference for entry in template.trial_parameters or ()}
    for i, name in enumerate(parameters):
        if name and name not in used:
            yield FieldError(
                f"spec.parameters[{i}].name",
                f"no trial parameter refers to {name}, so its value would never reach a trial",
                f"add an entry with reference {name} to {PARAMETERS_PATH}, or remove the parameter",
                "template-parameter-unused",
            )


def _check_metadata_references(
    entries: Sequence[TrialParameterSpec], source: Mapping[str, Any], path: str
) -> Iterator[FieldError]:
    for i, entry in enumerate(entries):
        reference = parse_reference(entry.reference)
        if reference is not None:
            _, error = look_up(reference, f"{PARAMETERS_PATH}[{i}].reference", source, path)
            if error:
                yield error


def _check_placeholders(entries: Sequence[TrialParameterSpec], found: Sequence[str], path: str) -> Iterator[FieldError]:
    names = [entry.name for entry in entries]
    for i, name in enumerate(names):
        if name and name not in found and "{" not in name and "}" not in name:
            close = closest(name, [placeholder for placeholder in found if placeholder not in names])
            cause = f"${{trialParameters.{name}}} does not occur in the template"
            remedy = f"use it there in place of {close}" if close else "use it there, or remove the trial parameter"
            yield FieldError(f"{PARAMETERS_PATH}[{i}].name", cause, remedy, "template-placeholder-missing")
    for name in found:
        if name not in names:
            yield unknown_placeholder(path, name, names)


def _sample(body: Any, source: Mapping[str, Any], found: Sequence[str]) -> Mapping[str, Any]:
    """Return an example of a trial's object; its top-level keys may be placeholders, too."""
    if not find_placeholders(list(source)):
        return source
    try:
        sample = body(dict.fromkeys(found, STAND_IN))
    except InvalidError:  # a number field refuses the stand-in; irrelevant to the top-level keys
        return source
    return sample if isinstance(sample, Mapping) else source


def _check_object(obj: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    metadata = obj.get("metadata")
    if metadata is not None and not isinstance(metadata, Mapping):
        yield FieldError(f"{path}.metadata", "it is not a mapping", "give labels and annotations", "template-metadata")
    for field in ("name", "namespace"):
        if isinstance(metadata, Mapping) and field in metadata:
            cause = f"the {field} of a trial's object is set by the experiment"
            yield FieldError(f"{path}.metadata.{field}", cause, "remove it", "template-metadata-fixed")
    for field, example in (("apiVersion", "batch/v1"), ("kind", "Job")):
        if not isinstance(obj.get(field), str) or not obj[field]:
            yield FieldError(f"{path}.{field}", "it is missing", f"give it, such as {example}", "template-kind-missing")


def _check_primary_container(name: str, source: Mapping[str, Any]) -> Sequence[FieldError]:
    containers = [container for template in _pod_specs(source) for container in template]
    if not name or not containers or name in containers or any(map(has_placeholder, containers)):
        return []
    known = ", ".join(dict.fromkeys(containers))
    return [
        FieldError(
            f"{TEMPLATE_PATH}.primaryContainerName",
            f"no container of the template is named {shown(name)}",
            f"use one of {known}",
            "template-primary-container",
        )
    ]


def _pod_specs(node: Any) -> Iterator[list[str]]:
    """Yield the names of the containers of every pod template in an object of any kind."""
    pending = [node]
    while pending:
        item = pending.pop()
        if isinstance(item, Mapping):
            template = item.get("template")
            spec = template.get("spec") if isinstance(template, Mapping) else None
            containers = spec.get("containers") if isinstance(spec, Mapping) else None
            if isinstance(containers, list):
                yield [str(entry["name"]) for entry in containers if isinstance(entry, Mapping) and "name" in entry]
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)
