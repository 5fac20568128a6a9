"""What Slurm says of an experiment before any of its trials runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from katib.api.types import CollectorKind, ExperimentSpec
from katib.errors import FieldError, InvalidError
from katib.local.findings import mapping
from katib.local.pods.tokens import Request
from katib.local.slurm.commands import Slurm, refused
from katib.local.slurm.gang import gang_options
from katib.local.slurm.script import annotated_options, requested_options
from katib.runtime.objects import Kind
from katib.templates.placeholders import has_placeholder

PUSHED: Final = frozenset({CollectorKind.PUSH, CollectorKind.CUSTOM})
"""Those that need an address of this machine which nodes reach. `PrometheusMetric` is asked at the nodes."""

NODE_ADDRESS_VARIABLE: Final = "KATIB_NODE_ADDRESS"
"""In our environment: where nodes reach this machine."""

_JOB: Final = Kind("batch/v1", "Job")


class SlurmGate:
    """Asks Slurm whether it takes the trials of an experiment.

    Args:
        slurm: Calls Slurm.
        options: Of `sbatch`, for every job.
        allocation: The job whose steps trials become; empty where they are jobs of their own.
        address: Where nodes reach this machine; empty where that is not known.
    """

    def __init__(self, slurm: Slurm, options: Sequence[str], allocation: str = "", address: str = "") -> None:
        self._address = address
        self._slurm = slurm
        self._allocation = allocation
        self._options = options

    def check(
        self, kind: Kind, templates: Sequence[tuple[Mapping[str, Any], int]], path: str, spec: ExperimentSpec
    ) -> list[FieldError]:
        """Return why its trials cannot run in Slurm.

        Args:
            kind: Of the job.
            templates: Of the pods of a trial, each with their number; may be malformed or hold placeholders, of which
                nothing is asked.
            path: Where the job stands.
            spec: With defaults.
        """
        errors: list[FieldError] = []
        collector = spec.metrics_collector_spec
        if collector is not None:
            errors += self._check_pushing(collector.kind)
        try:
            if (
                templates
                and not errors
                and not self._allocation
                and (cause := self._slurm.check(self._options_of(kind, templates, path)))
            ):
                errors += refused(cause).errors
        except InvalidError as error:
            errors += error.errors
        return errors

    def _check_pushing(self, collector: str) -> list[FieldError]:
        """Return why readings of a collector that is none of files do not arrive."""
        if collector not in PUSHED or self._address:
            return []
        cause = f"{collector} does not reach this machine from the nodes of Slurm"
        remedy = "give --address HOST, by which nodes reach this machine, or print metrics, or write them to files"
        return [FieldError("spec.metricsCollectorSpec.collector.kind", cause, remedy, "slurm-collector")]

    def _options_of(self, kind: Kind, templates: Sequence[tuple[Mapping[str, Any], int]], path: str) -> Sequence[str]:
        """Return the options of the job: each pod of a Job is one of its own, those of other kinds are one together."""
        annotations = mapping(mapping(templates[0][0].get("metadata")).get("annotations"))
        is_alone, is_open = kind == _JOB, any(map(has_placeholder, annotations.values()))
        own = () if is_open else annotated_options(annotations, path, may_have_tasks=is_alone)
        requests = [request for template, count in templates for request in [_request(template)] * count]
        if kind.kind == "MPIJob":  # whose tasks share what its launcher requests
            requests = [Request()]
        requested = requested_options(requests[0]) if is_alone else gang_options(requests)
        return (*requested, *self._options, *own)


def _request(template: Mapping[str, Any]) -> Request:
    try:
        return Request.of_template(dict(template))
    except (ValueError, TypeError, AttributeError):  # a placeholder, or what is refused elsewhere
        return Request()
