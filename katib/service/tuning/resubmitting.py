"""Submission of an experiment that is stored already: it is resumed or updated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from msgspec import structs

from katib.engine.controllers.experiment.plan import is_stopped
from katib.engine.controllers.kinds import key_of
from katib.engine.runtime.objects import Key, Kind, Object, ObjectStore
from katib.errors import AlreadyExistsError, ForbiddenError, InvalidError
from katib.model.conditions import has_ended
from katib.model.decoding import decode_stored
from katib.model.defaults import with_defaults
from katib.model.features.listed import changed_annotations
from katib.model.loading import Submission as Loaded
from katib.model.names import (
    CHECKPOINTS_ANNOTATION,
    ENGINE_ANNOTATION,
    STOPPED_ANNOTATION,
    SUBMITTED_BUDGET_ANNOTATION,
    WORKSPACE_ANNOTATION,
)
from katib.model.types import Experiment
from katib.model.validation.update import changed_counts, describe_changes
from katib.service.tuning.companions import changed_too_late, has_content, title_of
from katib.service.tuning.editing import edit_experiment
from katib.service.tuning.service import SubmittedExperiment
from katib.service.tuning.submission import Gate


class Resubmission:
    """Submits experiments again.

    Args:
        store: All objects.
        gate: Checks the new form.
        find: Finds an object; None if there is none.
        put: Creates an object, or brings the stored one up to date.
    """

    def __init__(
        self,
        store: ObjectStore,
        gate: Gate,
        find: Callable[[Kind, Key], Object | None],
        put: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self._store = store
        self._gate = gate
        self._find = find
        self._put = put

    def of(self, found: Object, submission: Loaded) -> SubmittedExperiment:
        """Resume or update the stored experiment; raises as `TuningService.submit`."""
        old = with_defaults(decode_stored(found))
        if old.metadata.deletion_timestamp is not None:
            raise AlreadyExistsError(f'experiment "{old.name}" is being deleted; submit it again in a moment')
        submission = _with_raised_budget(submission, old)
        new = self._gate.admit_update(submission, old)
        ended = has_ended(old.status.conditions)
        same, counts = not describe_changes(old, new), changed_counts(old, new)
        placed = counts if same else {}
        if placed:
            self._gate.check_placement(new)
        notices = self._refresh_companions(submission, over=bool(ended) and same)
        wanted = submission.experiment.metadata.annotations
        changed = {} if ended else changed_annotations(old.metadata.annotations, wanted)
        if not ended and CHECKPOINTS_ANNOTATION in wanted.keys() - old.metadata.annotations.keys():
            changed[CHECKPOINTS_ANNOTATION] = wanted[CHECKPOINTS_ANNOTATION]
        workspace = wanted.get(WORKSPACE_ANNOTATION)
        has_moved = workspace and workspace != old.metadata.annotations.get(WORKSPACE_ANNOTATION)
        moved = {WORKSPACE_ANNOTATION: workspace} if has_moved else {}  # trials that start from now on run there
        if changed or moved or placed:
            found = self._store.patch(found, {"metadata": {"annotations": {**changed, **moved}}, "spec": placed})
        if same:
            resumed = (is_stopped(old) or ENGINE_ANNOTATION in old.metadata.annotations) and not ended
            is_updated = notices or changed or (placed and not ended)
            outcome = "updated" if is_updated else "resumed" if resumed else "unchanged"
            if resumed:  # who submits it again wants it to run
                resumed_one = edit_experiment(self._store, key_of(old), counts={}, stopped=False)
                return SubmittedExperiment(resumed_one, outcome, notices)
            return SubmittedExperiment(found, outcome, notices)
        taken_up = {"annotations": {STOPPED_ANNOTATION: None, ENGINE_ANNOTATION: None}}
        stored = self._store.patch(found, {"spec": counts, "metadata": taken_up})
        return SubmittedExperiment(stored, "updated", notices)

    def _refresh_companions(self, submission: Loaded, *, over: bool) -> tuple[str, ...]:
        """Bring the ConfigMaps and Secrets of an experiment up to date; return which changed, as sentences.

        Raises:
            InvalidError: No trial would see a change because the experiment is over, or they make the template wrong.
        """
        changed = [companion for companion in submission.companions if not self._is_stored(companion)]
        if not changed:
            return ()
        if over:
            raise InvalidError(map(changed_too_late, changed))
        self._gate.admit(submission)
        for companion in changed:
            self._put(companion)
        return tuple(f"{title_of(companion)} changed; trials that start from now on see it" for companion in changed)

    def _is_stored(self, companion: Mapping[str, Any]) -> bool:
        try:
            stored = self._find(Kind.of(companion), Key.of(companion))
        except ForbiddenError:  # who may not look at it may not change it either
            return True
        return stored is not None and has_content(stored, companion)


def _with_raised_budget(submission: Loaded, stored: Experiment) -> Loaded:
    """Return a document with the budget of the stored experiment if that was raised since.

    Args:
        submission: The document, whose budget may be that of before.
        stored: The experiment, with defaults.
    """
    before = stored.metadata.annotations.get(SUBMITTED_BUDGET_ANNOTATION)
    experiment = submission.experiment
    if before is None or str(experiment.spec.max_trial_count) != before:
        return submission
    spec = structs.replace(experiment.spec, max_trial_count=stored.spec.max_trial_count)
    return replace(submission, experiment=structs.replace(experiment, spec=spec))
