"""Slurm's answer about an experiment before any of its trials runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from katib.engine.runtime.objects import Kind
from katib.errors import FieldError, InvalidError
from katib.model.templates.placeholders import has_placeholder
from katib.model.types import CollectorKind, ExperimentSpec
from katib.places.machine.findings import mapping
from katib.places.machine.pods.requests import Request
from katib.places.machine.slurm.commands import Slurm, SlurmAnswer, refused
from katib.places.machine.slurm.script import (
    OF_A_SCRIPT,
    GeneralOptions,
    annotated_options,
    gang_options,
    have_tasks,
    requested_options,
)
from katib.places.machine.slurm.steps import step_environment

PUSHED: Final = frozenset({CollectorKind.PUSH, CollectorKind.CUSTOM})
"""Those that need an address of this machine which nodes reach. `PrometheusMetric` is asked at the nodes."""

NODE_ADDRESS_VARIABLE: Final = "KATIB_NODE_ADDRESS"
"""The variable in our environment with the address of this machine for nodes."""

_JOB: Final = Kind("batch/v1", "Job")


class SlurmGate:
    """Asks Slurm whether it takes the trials of an experiment.

    Args:
        options: Of `sbatch`, for every job.
        allocation: The job whose steps trials become; empty if they are jobs of their own.
        address: The address of this machine for nodes; empty if unknown.
    """

    def __init__(self, slurm: Slurm, options: GeneralOptions, allocation: str = "", address: str = "") -> None:
        self._address = address
        self._slurm = slurm
        self._allocation = allocation
        self._options = options

    def check(
        self, kind: Kind, templates: Sequence[tuple[Mapping[str, Any], int]], path: str, spec: ExperimentSpec
    ) -> tuple[Sequence[FieldError], Sequence[str]]:
        """Return why its trials cannot run in Slurm, and the warnings of Slurm.

        Args:
            templates: Of the pods of a trial, each with their number; may be malformed or hold placeholders, of which
                nothing is asked.
        """
        collector = spec.metrics_collector_spec
        if collector is not None and collector.kind in PUSHED and not self._address:
            cause = f"{collector.kind} does not reach this machine from the nodes of Slurm"
            remedy = "give --address HOST, by which nodes reach this machine, or print metrics, or write them to files"
            return [FieldError("spec.metricsCollectorSpec.collector.kind", cause, remedy, "slurm-collector")], ()
        if not templates:
            return (), ()
        try:
            answer = self._answer(kind, templates, path)
        except InvalidError as error:
            return error.errors, ()
        errors = refused(answer.refusal).errors if answer.refusal else ()
        return errors, [f"sbatch: {warning}" for warning in answer.warnings]

    def _answer(self, kind: Kind, templates: Sequence[tuple[Mapping[str, Any], int]], path: str) -> SlurmAnswer:
        """Ask about the job: each pod of a Job is one of its own, those of other kinds are one together."""
        annotations = mapping(mapping(templates[0][0].get("metadata")).get("annotations"))
        is_alone, is_step = kind == _JOB, bool(self._allocation)
        own = annotated_options(annotations, path, OF_A_SCRIPT if is_alone else ())
        written = self._options.beside([word for word in own if not has_placeholder(word)])
        requests = [request for template, count in templates for request in [_request(template)] * count]
        if kind.kind == "MPIJob":  # whose tasks share what its launcher requests
            requests = [Request()]
        requested = gang_options(requests)
        if is_alone:
            requested = requested_options(requests[0], is_one_task=is_step and not have_tasks(own))
        options = (*requested, *written)
        if not is_step:
            return self._slurm.check(options)
        environ = self._slurm.environment
        return self._slurm.check_step(options, step_environment(environ, environ))


def _request(template: Mapping[str, Any]) -> Request:
    try:
        return Request.of_template(dict(template))
    except (ValueError, TypeError, AttributeError):  # a placeholder, or what is refused elsewhere
        return Request()
