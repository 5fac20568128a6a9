"""Files to submissions: the first check of input.

A file holds Experiments, or OptimizationJobs, which are translated into Experiments; a List of objects is equivalent to
the objects. It may also hold the `v1` Namespaces, ConfigMaps and Secrets that their templates use and the training
runtimes that their TrainJobs refer to. A file that holds only training runtimes can be stored, too.
Errors that make the rest meaningless (not YAML, wrong kind) are raised at once. Errors of single fields are collected
in the submission, so that they can be reported together with all errors of validation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from katib.errors import FieldError, InvalidError, invalid
from katib.model.decoding import decode, unknown_fields
from katib.model.job_kinds import known_kind
from katib.model.json_values import check_plain
from katib.model.loadable import Loadable
from katib.model.types import API_VERSION, Experiment
from katib.model.wording import closest, shown

if TYPE_CHECKING:
    from katib.model.yaml_text import YamlDocument

_TRAINER = "trainer.kubeflow.org/v1alpha1"
_COMPANIONS = {
    "ConfigMap": "v1",
    "Namespace": "v1",
    "Secret": "v1",
    "TrainingRuntime": _TRAINER,
    "ClusterTrainingRuntime": _TRAINER,
}
"""apiVersion by kind of the objects allowed beside an Experiment."""

_OLD_API_VERSION = "kubeflow.org/v1alpha3"
_RUNTIMES = frozenset({"TrainingRuntime", "ClusterTrainingRuntime"})
_CLUSTER_SCOPED = frozenset({"ClusterTrainingRuntime", "Namespace"})
_COMPANION_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)
OPTIMIZATION_JOB: Final = "OptimizationJob"
EXPERIMENTS = frozenset({"Experiment", OPTIMIZATION_JOB})
"""Kinds that are run."""

_API_VERSIONS = {"Experiment": API_VERSION, OPTIMIZATION_JOB: _TRAINER, **_COMPANIONS}

_DECODE_JOB: Final[Loadable[Callable[..., Submission]]] = Loadable("katib.model.optimization_jobs:decode_job_to_run")


@dataclass(frozen=True, slots=True)
class LoadedDocument:
    """One object of a file: its kind, the line it starts at, and its plain data."""

    kind: str
    line: int
    data: dict[str, Any]

    @property
    def name(self) -> str:
        return self._metadata("name")

    @property
    def namespace(self) -> str:
        return self._metadata("namespace")

    def _metadata(self, field: str) -> str:
        metadata = self.data.get("metadata")
        text = metadata.get(field) if isinstance(metadata, dict) else None
        return text if isinstance(text, str) else ""


class FileText:
    """The text of a file, parsed once, on first access to its objects.

    Attributes:
        text: YAML or JSON.
        source: Name of the file, shown in errors.
    """

    def __init__(self, text: str, source: str) -> None:
        self.text = text
        self.source = source

    @classmethod
    def of(cls, documents: Sequence[LoadedDocument], source: str) -> FileText:
        """Return a file of objects that were parsed from another text."""
        made = cls("\n---\n".join(json.dumps(document.data) for document in documents), source)
        made.documents = documents
        return made

    def __str__(self) -> str:
        return self.text

    @cached_property
    def documents(self) -> Sequence[LoadedDocument]:
        """The objects of the file, in order.

        Raises:
            InvalidError: As `load_documents`.
        """
        return load_documents(self.text, self.source)

    def experiments(self) -> Sequence[FileText]:
        """Return a file for each experiment, all with the other objects; the file itself if it holds one or none.

        Raises:
            InvalidError: As `load_documents`.
        """
        found = [document for document in self.documents if document.kind in EXPERIMENTS]
        if len(found) < 2:  # noqa: PLR2004 - several
            return [self]
        for i, document in enumerate(found):
            if (document.namespace, document.name) in [(one.namespace, one.name) for one in found[:i]]:
                cause = f"two Experiments are named {shown(document.name)}"
                raise invalid(self.source, cause, "give each a name of its own", "document-duplicate")
        others = [document for document in self.documents if document.kind not in EXPERIMENTS]
        return [FileText.of([*others, document], self.source) for document in found]


def with_annotations(file: FileText, annotations: Mapping[str, str]) -> FileText:
    """Return an experiment file whose experiments have these annotations, in addition to or in place of their own."""

    def annotated(loaded: LoadedDocument) -> LoadedDocument:
        metadata = loaded.data.get("metadata")
        if loaded.kind not in EXPERIMENTS or not isinstance(metadata, dict):
            return loaded  # its errors are reported at submission
        both = {**(metadata.get("annotations") or {}), **annotations}
        return replace(loaded, data={**loaded.data, "metadata": {**metadata, "annotations": both}})

    return FileText.of([annotated(loaded) for loaded in file.documents], file.source) if annotations else file


def file_of(document: str | FileText, source: str) -> FileText:
    """Return a text as a file; a file, which may have been parsed already, unchanged."""
    return document if isinstance(document, FileText) else FileText(document, source)


@dataclass(frozen=True, slots=True)
class Submission:
    """A submitted experiment.

    Attributes:
        raw: The experiment as the user wrote it.
        experiment: Its readable part, without defaults, status and fields that the server writes.
        companions: ConfigMaps, Secrets and training runtimes from the same file, with their namespace if they have one.
        errors: Values of the wrong type and unknown fields. If there are any, the experiment must not be used.
        job: The OptimizationJob of the experiment, with defaults and a namespace; None if there is none.
    """

    raw: dict[str, Any]
    experiment: Experiment
    companions: tuple[dict[str, Any], ...] = ()
    errors: tuple[FieldError, ...] = ()
    job: dict[str, Any] | None = None
    notices: tuple[str, ...] = ()

    def config_map(self, namespace: str, name: str) -> dict[str, Any] | None:
        """Return a ConfigMap from the same file, None if it is not there."""
        return self.companion("ConfigMap", namespace, name)

    def companion(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        """Return an object from the same file, None if it is not there."""
        for companion in self.companions:
            metadata = companion["metadata"]
            if (companion["kind"], metadata.get("namespace", ""), metadata.get("name")) == (kind, namespace, name):
                return companion
        return None


def experiment_of(documents: Sequence[LoadedDocument], source: str, default_namespace: str) -> Submission:
    """Return the one Experiment of a file together with its ConfigMaps, Secrets and training runtimes, if any.

    Raises:
        InvalidError: The number of Experiments is wrong, or the Experiment is not JSON data.
    """
    experiments = [document for document in documents if document.kind in EXPERIMENTS]
    companions = [document for document in documents if document.kind in _COMPANIONS]
    if len(experiments) > 1:
        names = " and ".join(f"{shown(document.name)} at line {document.line}" for document in experiments[:4])
        raise invalid(
            source,
            f"it holds {len(experiments)} Experiments, {names}",
            "submit one at a time; `katib run` and `katib apply` take such a file",
            "document-count",
        )
    if not experiments:
        kinds = ", ".join(document.kind for document in companions)
        only_runtimes = all(document.kind in _RUNTIMES for document in companions)
        remedy = "add the Experiment" + (", or store it with katib apply" if only_runtimes else "")
        raise invalid(source, f"it holds no Experiment, only {kinds}", remedy, "document-missing")
    (found,) = experiments
    if found.kind == "Experiment":
        return decode_experiment(found.data, default_namespace, companions)
    return _DECODE_JOB.load()(found.data, default_namespace, companions)


def holds_runtimes(file: FileText) -> bool:
    """Return whether a file can be parsed and holds only training runtimes."""
    try:
        return are_runtimes(file.documents)
    except InvalidError:
        return False


def are_runtimes(documents: Sequence[LoadedDocument]) -> bool:
    """Return whether a parsed file holds only training runtimes."""
    return all(document.kind in _RUNTIMES for document in documents)


def runtimes_of(
    documents: Sequence[LoadedDocument], source: str, default_namespace: str
) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Return the training runtimes of a file, each with the prefix for the paths of its fields in errors.

    Raises:
        InvalidError: A runtime has no usable name, or the file holds another object.
    """
    errors = list(_companions_errors(documents, default_namespace))
    errors += [
        FieldError(f"{source}:{d.line}: kind", f"{d.kind} is not a training runtime", "remove it", "kind-unknown")
        for d in documents
        if d.kind not in _RUNTIMES
    ]
    if errors:
        raise InvalidError(errors)
    return tuple(
        (f"{d.kind} at line {d.line}: " if len(documents) > 1 else "", with_namespace(d.data, default_namespace))
        for d in documents
    )


def decode_experiment(
    raw: Mapping[str, Any], default_namespace: str, companions: Sequence[LoadedDocument] = ()
) -> Submission:
    """Read an Experiment that is already plain data, such as the body of a request.

    Raises:
        InvalidError: It is not JSON data, or not a `kubeflow.org/v1beta1` Experiment.
    """
    if errors := check_plain(raw) or _kind_errors(raw):
        raise InvalidError(errors)
    experiment, value_errors = decode(raw)
    if not experiment.namespace:
        metadata = structs.replace(experiment.metadata, namespace=default_namespace)
        experiment = structs.replace(experiment, metadata=metadata)
    return Submission(
        raw=dict(raw),
        experiment=experiment,
        companions=tuple(with_namespace(document.data, default_namespace) for document in companions),
        errors=(*_companions_errors(companions, default_namespace), *unknown_fields(raw, Experiment), *value_errors),
    )


def load_documents(text: str | bytes, source: str) -> list[LoadedDocument]:
    """Return the objects of a file, in order.

    Raises:
        InvalidError: The text is empty or not YAML, or a document is not an allowed object.
    """
    from katib.model.written import read_objects  # needs YAML, which commands that only show objects do without

    documents = [one for document in read_objects(text, source) for one in _objects_in(document)]
    if not documents:
        raise invalid(source, "it is empty", "write an Experiment into it", "file-empty")
    errors: list[FieldError] = []
    for document in documents:
        place = f"{source}:{document.line}" if len(documents) > 1 else source
        if not isinstance(document.data, dict):
            kind = "a list" if isinstance(document.data, list) else "a single value"
            remedy = "start with apiVersion, kind, metadata and spec"
            errors.append(FieldError(place, f"it is {kind}, not an object", remedy, "document-type"))
            continue
        prefix = f"{place}: " if len(documents) > 1 else ""
        errors.extend(check_plain(document.data) or _kind_errors(document.data, prefix))
    if errors:
        raise InvalidError(errors)
    return [LoadedDocument(document.data["kind"], document.line, document.data) for document in documents]


def _objects_in(document: YamlDocument) -> Iterator[YamlDocument]:
    """Yield the objects of a List, as `kubectl get -o yaml` prints one; any other document as it is."""
    items = document.data.get("items") if isinstance(document.data, dict) else None
    if not isinstance(items, list) or (document.data.get("kind"), document.data.get("apiVersion")) != ("List", "v1"):
        yield document
        return
    for item in items:
        yield replace(document, data=item)


def _kind_errors(data: Mapping[str, Any], prefix: str = "") -> list[FieldError]:
    """Return errors in kind and apiVersion."""
    kind = data.get("kind")
    if kind is None and {"program", "method"} & set(data):
        remedy = "`katib convert FILE` makes an Experiment of a sweep of Weights & Biases"
        return [FieldError(f"{prefix}kind", "it is missing", remedy, "kind-missing")]
    if kind is None:
        return [FieldError(f"{prefix}kind", "it is missing", "write kind: Experiment", "kind-missing")]
    if not isinstance(kind, str) or kind not in _API_VERSIONS:
        guess = closest(kind, ["Experiment", *sorted(_RUNTIMES)]) if isinstance(kind, str) else ""
        remedy = "give an Experiment, with ConfigMaps, Secrets and training runtimes if it needs them"
        if known_kind(data) is not None:
            remedy = "give an Experiment, which `katib init FILE` writes from a job; `katib tune` takes the job itself"
        elif guess:
            remedy = f"did you mean {guess}?"
        return [FieldError(f"{prefix}kind", f"{shown(kind)} is not accepted", remedy, "kind-unknown")]
    wanted = _API_VERSIONS[kind]
    if "apiVersion" not in data:
        return [
            FieldError(f"{prefix}apiVersion", "it is missing", f"write apiVersion: {wanted}", "api-version-missing")
        ]
    if (version := data["apiVersion"]) != wanted:
        cause = f"{shown(version)} is not the version of {kind}"
        is_old = kind == "Experiment" and version == _OLD_API_VERSION
        remedy = f"`katib convert FILE` makes a file of {wanted} of it" if is_old else f"write {wanted}"
        return [FieldError(f"{prefix}apiVersion", cause, remedy, "api-version-unknown")]
    return []


def _companions_errors(documents: Sequence[LoadedDocument], default_namespace: str) -> Iterator[FieldError]:
    """Yield errors that make companions unusable: bad names, duplicate names, data that is not text."""
    seen: set[tuple[str, str, str]] = set()
    for document in documents:
        place = f"{document.kind} at line {document.line}"
        identity = (document.kind, document.namespace or default_namespace, document.name)
        if not document.name:
            yield FieldError(f"{place}: metadata.name", "it is missing", "give it a name", "name-missing")
        elif not _COMPANION_NAME.fullmatch(document.name):
            cause = f"{shown(document.name)} is not a DNS name"
            remedy = "use lower case letters, digits, hyphens and dots"
            yield FieldError(f"{place}: metadata.name", cause, remedy, "name-format")
        elif identity in seen:
            cause = f"{shown(document.name)} is used twice"
            yield FieldError(f"{place}: metadata.name", cause, "keep one of them", "companion-duplicate")
        seen.add(identity)
        for name in ("data", "stringData", "binaryData"):
            if not _is_text_map(document.data.get(name)):
                cause = "it has values that are not text"
                yield FieldError(f"{place}: {name}", cause, "put them in quotes", "value-type")


def _is_text_map(data: object) -> bool:
    return data is None or (isinstance(data, dict) and all(isinstance(text, str) for text in data.values()))


def with_namespace(data: dict[str, Any], namespace: str) -> dict[str, Any]:
    metadata = data.get("metadata")
    fields = metadata if isinstance(metadata, dict) else {}
    if data.get("kind") in _CLUSTER_SCOPED:
        return {**data, "metadata": {key: value for key, value in fields.items() if key != "namespace"}}
    return {**data, "metadata": {**fields, "namespace": fields.get("namespace") or namespace}}
