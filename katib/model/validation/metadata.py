"""Rules about names and labels, which become part of the names and labels of trials, Jobs and Services."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from katib.errors import FieldError
from katib.model.features.listed import FEATURES
from katib.model.names import FIRST_FAILURES_ANNOTATION, MAX_EXPERIMENT_NAME
from katib.model.types import ObjectMeta
from katib.model.wording import path_to, shown

_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_NAME_PREFIX = re.compile(r"[a-z][-a-z0-9]*", re.ASCII)
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
_LABEL_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)
_GENERATED_LENGTH = 5
"""Number of characters that Kubernetes appends to `generateName`."""
_MAX_NAMESPACE = 63

_LETTERS = "use lower case letters, digits and hyphens, beginning with a letter and ending with a letter or digit"


def check_metadata(metadata: ObjectMeta) -> Iterator[FieldError]:
    """Check that name and namespace are valid DNS labels of limited length, and labels as Kubernetes does."""
    if metadata.name:
        yield from _check_name(metadata.name)
    elif metadata.generate_name:
        yield from _check_prefix(metadata.generate_name)
    else:
        yield FieldError("metadata.name", "it is missing", "give the experiment a name", "name-missing")
    namespace = metadata.namespace
    if namespace and (not _NAMESPACE.fullmatch(namespace) or len(namespace) > _MAX_NAMESPACE):
        remedy = f"use at most {_MAX_NAMESPACE} lower case letters, digits and inner hyphens"
        cause = f"{shown(namespace)} is not a valid namespace"
        yield FieldError("metadata.namespace", cause, remedy, "namespace-format")
    yield from _check_labels(metadata.labels)
    for feature in FEATURES:
        yield from feature.errors(metadata.annotations)
    count = metadata.annotations.get(FIRST_FAILURES_ANNOTATION, "0")
    if not (count.isascii() and count.isdigit()):
        where = path_to("metadata.annotations", FIRST_FAILURES_ANNOTATION)
        cause = f"{shown(count)} is not a number of trials"
        yield FieldError(where, cause, "use 0 for never, or a whole number above it", "first-failures")


def _check_name(name: str) -> Iterator[FieldError]:
    if not _NAME.fullmatch(name):
        near = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
        such = f", such as {near}" if _NAME.fullmatch(near) else ""
        yield FieldError("metadata.name", f"{shown(name)} is not a DNS label", f"{_LETTERS}{such}", "name-format")
    if len(name) > MAX_EXPERIMENT_NAME:
        cause = f"{shown(name)} has {len(name)} characters"
        yield FieldError("metadata.name", cause, f"use at most {MAX_EXPERIMENT_NAME}", "name-length")


def _check_prefix(prefix: str) -> Iterator[FieldError]:
    if not _NAME_PREFIX.fullmatch(prefix):
        yield FieldError(
            "metadata.generateName", f"{shown(prefix)} does not begin a DNS label", _LETTERS, "name-format"
        )
    limit = MAX_EXPERIMENT_NAME - _GENERATED_LENGTH
    if len(prefix) > limit:
        cause = f"{shown(prefix)} has {len(prefix)} characters"
        remedy = f"use at most {limit}, {_GENERATED_LENGTH} more are appended"
        yield FieldError("metadata.generateName", cause, remedy, "name-length")


def _check_labels(labels: Mapping[str, str]) -> Iterator[FieldError]:
    for key, value in labels.items():
        prefix, slash, name = key.rpartition("/")
        if not _LABEL.fullmatch(name) or (slash and not _LABEL_PREFIX.fullmatch(prefix)):
            remedy = "use at most 63 letters, digits and inner -_. after an optional domain and /"
            yield FieldError("metadata.labels", f"{shown(key)} is not a valid label name", remedy, "label-format")
        if value and not _LABEL.fullmatch(value):
            remedy = "use at most 63 letters, digits and inner -_. or make it an annotation"
            where = path_to("metadata.labels", key)
            yield FieldError(where, f"{shown(value)} is not a valid label value", remedy, "label-format")
