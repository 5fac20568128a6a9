"""What Slurm says of an experiment before any of its trials runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from katib.api.types import CollectorKind, ExperimentSpec
from katib.errors import FieldError, InvalidError
from katib.local.findings import mapping
from katib.local.pods.tokens import Request
from katib.local.slurm.commands import Slurm, refused
from katib.local.slurm.options import annotated_options, requested_options
from katib.runtime.objects import Kind
from katib.templates.placeholders import has_placeholder

READ_FROM_FILES: Final = frozenset(
    {CollectorKind.STDOUT, CollectorKind.FILE, CollectorKind.TENSORFLOW_EVENT, CollectorKind.NONE}
)
"""Collectors whose readings are in the shared directory. The others need an address that nodes and we both reach."""

_JOB: Final = Kind("batch/v1", "Job")


class SlurmGate:
    """Asks Slurm whether it takes the trials of an experiment.

    Args:
        slurm: Calls Slurm.
        options: Of `sbatch`, for every job.
    """

    def __init__(self, slurm: Slurm, options: Sequence[str]) -> None:
        self._slurm = slurm
        self._options = options

    def check(
        self, kind: Kind, templates: Iterable[Mapping[str, Any]], path: str, spec: ExperimentSpec
    ) -> list[FieldError]:
        """Return why its trials cannot run in Slurm.

        Args:
            kind: Of the job.
            templates: Of the pods of a trial; may be malformed or hold placeholders, of which nothing is asked.
            path: Where the job stands.
            spec: With defaults.
        """
        errors = []
        if kind != _JOB:
            cause, remedy = f"a {kind.kind} does not run in Slurm", "write a Job with one pod"
            errors.append(FieldError(f"{path}.kind", cause, remedy, "slurm-kind"))
        collector = spec.metrics_collector_spec
        if collector is not None and collector.kind not in READ_FROM_FILES:
            cause = f"{collector.kind} does not reach this machine from the nodes of Slurm"
            remedy = "print metrics, or write them to files: StdOut, File or TensorFlowEvent"
            errors.append(FieldError("spec.metricsCollectorSpec.collector.kind", cause, remedy, "slurm-collector"))
        for template in templates:
            try:
                if cause := self._slurm.check(self._options_of(template, path)):
                    errors += refused(cause).errors
            except InvalidError as error:
                errors += error.errors
        return errors

    def _options_of(self, template: Mapping[str, Any], path: str) -> Sequence[str]:
        annotations = mapping(mapping(template.get("metadata")).get("annotations"))
        own = () if any(map(has_placeholder, annotations.values())) else annotated_options(annotations, path)
        try:
            request = Request.of_template(dict(template))
        except (ValueError, TypeError, AttributeError):  # a placeholder, or what is refused elsewhere
            request = Request()
        return (*requested_options(request), *self._options, *own)
