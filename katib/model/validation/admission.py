"""The only gate: turns a submission into an experiment to store, or raises all its errors together."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from katib.errors import FieldError, InvalidError
from katib.model.algorithms import AlgorithmCatalog
from katib.model.defaults import with_defaults
from katib.model.loading import Submission
from katib.model.types import Experiment
from katib.model.validation.experiment import (
    ALL_COLLECTORS,
    ConstraintCheck,
    TemplateCheck,
    no_constraint_errors,
    validate_experiment,
)
from katib.model.validation.history import PointCheck, no_point_errors

_ABSENCE = ("-missing", "-empty")
"""Suffixes of origins that report an absent value."""


def admit(
    submission: Submission,
    *,
    catalog: AlgorithmCatalog,
    check_template: TemplateCheck,
    check_point: PointCheck = no_point_errors,
    check_constraints: ConstraintCheck = no_constraint_errors,
    collectors: Collection[str] = ALL_COLLECTORS,
) -> Experiment:
    """Return the experiment with defaults, ready to be created.

    Raises:
        InvalidError: All errors of loading and of validation.
    """
    experiment = with_defaults(submission.experiment)
    found = validate_experiment(
        experiment,
        catalog=catalog,
        check_template=check_template,
        check_point=check_point,
        check_constraints=check_constraints,
        collectors=collectors,
    )
    _raise_all(submission.errors, found)
    return experiment


def admit_update(submission: Submission, old: Experiment) -> Experiment:
    """Return the experiment with defaults, ready to replace the spec of the stored one.

    Raises:
        InvalidError: All errors of loading, and every change that is not allowed.
    """
    experiment = with_defaults(submission.experiment)
    from katib.model.validation.update import validate_update

    _raise_all(submission.errors, validate_update(old, experiment))
    return experiment


def _raise_all(loading: Sequence[FieldError], validation: Sequence[FieldError]) -> None:
    unread = [error.path for error in loading if error.origin != "field-unknown"]
    errors = [*loading, *(error for error in validation if not any(_follows(error, path) for path in unread))]
    if errors:
        raise InvalidError(errors)


def _follows(error: FieldError, unread: str) -> bool:
    """Return whether an error only follows from an unreadable value: it concerns the value or its absence."""
    if error.path == unread or error.path.startswith((f"{unread}.", f"{unread}[")):
        return True
    return error.origin.endswith(_ABSENCE) and unread.startswith((f"{error.path}.", f"{error.path}["))
