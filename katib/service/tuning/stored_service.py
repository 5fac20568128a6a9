"""The tuning service of either home: what users ask, answered from an object store and an observation log."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from katib.engine.controllers.experiment.plan import is_stopped
from katib.engine.controllers.kinds import EXPERIMENT, NAMESPACE, TRIAL
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.objects import Key, Kind, Object, WholeWrites
from katib.errors import AlreadyExistsError, Backoff, ForbiddenError, InvalidError, NotFoundError, invalid
from katib.model import types
from katib.model.conditions import has_ended
from katib.model.decoding import decode_stored
from katib.model.defaults import with_defaults
from katib.model.features.listed import changed_annotations
from katib.model.loadable import Deferred, Loadable
from katib.model.loading import Submission as Loaded
from katib.model.marks import MarkChanges
from katib.model.names import (
    CHECKPOINTS_ANNOTATION,
    ENGINE_ANNOTATION,
    STOPPED_ANNOTATION,
    SUBMITTED_BUDGET_ANNOTATION,
    WORKSPACE_ANNOTATION,
)
from katib.model.validation.update import changed_counts, describe_changes
from katib.service.tuning.companions import changed_too_late, has_content, title_of
from katib.service.tuning.ports import Aftermath, Explain, Namespaces, NoAftermath, Records
from katib.service.tuning.repeating import Repeating, Repeats, Wanted
from katib.service.tuning.service import (
    DEFAULT_LEASE_SECONDS,
    NO_CHOICE,
    CallerAnswer,
    Choice,
    Document,
    EndedTrial,
    GivenTrial,
    PausedExperiment,
    Preview,
    RunOutcome,
    StoredRuntime,
    Submission,
)
from katib.service.tuning.stored_reading import ObjectReadingService
from katib.service.tuning.submission import Admitted, Candidate, Gate
from katib.service.tuning.writing import until_written

if TYPE_CHECKING:
    from katib.model.types import Experiment, Trial
    from katib.service.tuning.asking import AskedTrial, CallersTrials
    from katib.service.tuning.deletion import Deletion
    from katib.service.tuning.offered_templates import OfferedTemplates

_ADD_TRIAL: Final[Loadable[Callable[..., int]]] = Loadable("katib.service.tuning.adding:add_trial")
_ADD_ENDED_TRIALS: Final[Loadable[Callable[..., int]]] = Loadable("katib.service.tuning.ended_trials:add_ended_trials")
_ASK_PAUSES: Final[Loadable[Backoff]] = Loadable("katib.service.tuning.asking:ASK_PAUSES")
_CALLERS: Final[Loadable[type[CallersTrials]]] = Loadable("katib.service.tuning.asking:CallersTrials")
_DELETION: Final[Loadable[type[Deletion]]] = Loadable("katib.service.tuning.deletion:Deletion")
_EDIT: Final[Loadable[Callable[..., Object]]] = Loadable("katib.service.tuning.editing:edit_experiment")
_MARK: Final[Loadable[Callable[..., Trial]]] = Loadable("katib.service.tuning.editing:mark_trial")
_PAUSE: Final[Loadable[Callable[..., tuple[Experiment, tuple[str, ...]]]]] = Loadable(
    "katib.service.tuning.editing:pause_experiment"
)
_SUSPEND: Final[Loadable[Callable[..., Trial]]] = Loadable("katib.service.tuning.editing:suspend_trial")
_TEMPLATES: Final[Loadable[type[OfferedTemplates]]] = Loadable(
    "katib.service.tuning.offered_templates:OfferedTemplates"
)


class ObjectTuningService(ObjectReadingService):
    """Fits `katib.service.tuning.service.TuningService` over any object store. Thread-safe.

    Args:
        records: What is kept of experiments.
        gate: Checks what is submitted, and knows the algorithms.
        explain: Says why something does not progress.
        clock: Measures timeouts.
        namespaces: Those that there are; left out: those with experiments.
        aftermath: What is left of a deleted experiment beside its objects.
        templates: Returns the trial templates that ConfigMaps offer; left out: those of the store.
        repeats: Runs experiments once more; left out: each runs once.
    """

    def __init__(
        self,
        records: Records,
        gate: Gate,
        explain: Explain,
        clock: Clock,
        *,
        namespaces: Namespaces | None = None,
        aftermath: Aftermath | None = None,
        templates: Callable[[], OfferedTemplates] | None = None,
        repeats: Repeats | None = None,
    ) -> None:
        super().__init__(records, explain, gate.catalog, clock, namespaces)
        self._gate = gate
        self._aftermath = aftermath or NoAftermath()
        self._templates = Deferred(templates or (lambda: _TEMPLATES.load()(records.store)))
        self._repeating = None if repeats is None else Repeating(self, repeats)
        self._readings = records.callers
        self._callers = Deferred(lambda: _CALLERS.load()(self._namespaces, records, gate.catalog, clock))
        self.answers_at_once = isinstance(records.store, WholeWrites)

    @property
    def templates(self) -> OfferedTemplates:
        """The trial templates that ConfigMaps offer."""
        return self._templates.get()

    def namespaces(self) -> Sequence[str]:
        """Return the namespaces that an experiment may be in, as far as the user may know, in order of their names."""
        return self._namespaces.names()

    def validate(self, document: Document, *, source: str, namespace: str | None = None) -> Sequence[str]:
        """Check a document."""
        admitted = self._gate.check(document, source=source, namespace=namespace or self._namespaces.default)
        return () if admitted is None else admitted.notices

    def preview(self, document: Document, *, source: str, namespace: str | None = None) -> Preview:
        """Render the first trial of a document."""
        return self._gate.preview(self.load(document, source=source, namespace=namespace))

    def submit(self, document: Document, *, source: str, namespace: str | None = None) -> Submission:
        """Create, resume or update an experiment."""
        return self.take(self.load(document, source=source, namespace=namespace))

    def load(self, document: Document, *, source: str, namespace: str | None = None) -> Loaded:
        """Read a document, for `admit` and `take`.

        Raises:
            InvalidError: It cannot be read, or holds no experiment.
        """
        return self._gate.load(document, source=source, namespace=namespace or self._namespaces.default)

    def admit(self, candidate: Candidate) -> Admitted:
        """Return a new experiment, checked as `submit` would, for `take`; one that is admitted already is not checked.

        Raises:
            InvalidError: Anything wrong with it, all errors at once.
        """
        return candidate if isinstance(candidate, Admitted) else self._gate.admit(candidate)

    def take(self, candidate: Candidate) -> Submission:
        """Create, resume or update an experiment as `submit` does, of a document that was read or admitted before."""
        if isinstance(candidate, Admitted):
            submission = candidate.submission
            self._gate.expect(submission)  # it may come from a door that starts no service
        else:
            submission = candidate
        key = Key(submission.experiment.namespace, submission.experiment.name)

        def attempt() -> Submission | None:
            old = self._find(EXPERIMENT, key) if key.name else None
            return None if old is None else self._resubmit(old, submission)

        if (submitted := until_written(attempt, key.name, "submit it again")) is not None:
            return submitted
        admitted = self.admit(candidate)
        for companion in submission.companions:
            self._put(companion)
        stored = self._store.create(admitted.experiment.encode())
        if submission.job is not None and self._gate.keeps_jobs:
            self._keep_job(submission.job)
        return Submission(types.Experiment.read(stored), "created", admitted.notices)

    def run(
        self,
        document: Document,
        *,
        source: str,
        namespace: str | None = None,
        choice: Choice = NO_CHOICE,
        command: str = "",
    ) -> RunOutcome:
        """Submit an experiment; one that has ended runs once more where that is wanted."""
        candidate = self.load(document, source=source, namespace=namespace)
        return self.repeat(candidate, source=source, choice=choice, command=command)

    def repeat(self, candidate: Candidate, *, source: str, choice: Choice = NO_CHOICE, command: str = "") -> RunOutcome:
        """Do what `run` does with an experiment that was read or admitted before."""
        if self._repeating is not None:
            return self._repeating.run(Wanted(candidate, source), choice, command)
        if choice:
            remedy = "submit it under another name"
            raise invalid("experiment", "one of a cluster runs once only", remedy, "choice-of-a-cluster")
        return RunOutcome(self.take(candidate))

    def store_runtimes(
        self, document: Document, *, source: str, namespace: str | None = None
    ) -> Sequence[StoredRuntime]:
        """Store training runtimes."""
        found = self._gate.runtimes(document, source=source, namespace=namespace or self._namespaces.default)
        return tuple(map(self._store_runtime, found))

    def _store_runtime(self, runtime: Mapping[str, Any]) -> StoredRuntime:
        kind, key = Kind.of(runtime), Key.of(runtime)
        before = self._find(kind, key)
        if before is not None and has_content(before, runtime):
            return StoredRuntime(dict(before), "unchanged")
        self._put(runtime)
        return StoredRuntime(dict(self._store.get(kind, key)), "created" if before is None else "updated")

    def _resubmit(self, found: Object, submission: Loaded) -> Submission:
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
                return Submission(self.edit(old.namespace, old.name, counts={}, stopped=False), outcome, notices)
            return Submission(types.Experiment.read(found), outcome, notices)
        taken_up = {"annotations": {STOPPED_ANNOTATION: None, ENGINE_ANNOTATION: None}}
        stored = self._store.patch(found, {"spec": counts, "metadata": taken_up})
        return Submission(types.Experiment.read(stored), "updated", notices)

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

    def _put(self, companion: Mapping[str, Any]) -> None:
        """Create a companion, or bring the stored one up to date."""
        try:
            self._store.create(companion)
        except AlreadyExistsError:
            if Kind.of(companion) != NAMESPACE:
                stored = self._store.get(Kind.of(companion), Key.of(companion))
                self._store.update({**companion, "metadata": stored["metadata"]})
        except ForbiddenError:  # a user who may not create a namespace may use it
            if Kind.of(companion) != NAMESPACE:
                raise

    def _keep_job(self, job: Mapping[str, Any]) -> None:
        """Store the OptimizationJob of a new experiment, which it adopts; one that is there begins again."""
        try:
            self._store.create(job)
        except AlreadyExistsError:
            stored = self._store.get(Kind.of(job), Key.of(job))
            stored = self._store.update({**job, "metadata": stored["metadata"]})
            self._store.update_status({**stored, "status": {}})

    def add_trial(self, namespace: str, experiment: str, assignments: Mapping[str, str]) -> int:
        """Have a trial run before those that the algorithm proposes next."""
        return _ADD_TRIAL.load()(self._namespaces.store_of(namespace), Key(namespace, experiment), assignments)

    def edit(
        self,
        namespace: str,
        experiment: str,
        *,
        counts: Mapping[str, int | None],
        stopped: bool | None = None,
        marks: MarkChanges | None = None,
    ) -> Experiment:
        """Change the counts, stop, resume or mark."""
        key = Key(namespace, experiment)
        store = self._namespaces.store_of(namespace)
        edited = _EDIT.load()(store, key, counts=counts, stopped=stopped, marks=marks)
        return types.Experiment.read(edited)

    def pause(self, namespace: str, experiment: str, *, paused: bool) -> PausedExperiment:
        """Stop an experiment and pause its trials, or let all continue."""
        key = Key(namespace, experiment)
        self._require(EXPERIMENT, key)
        store = self._namespaces.store_of(namespace)
        return PausedExperiment(*_PAUSE.load()(store, key, self._clock, paused=paused))

    def mark(self, namespace: str, trial: str, marks: MarkChanges) -> Trial:
        """Mark a trial."""
        return _MARK.load()(self._namespaces.store_of(namespace), Key(namespace, trial), marks)

    def suspend(self, namespace: str, trial: str, *, suspended: bool) -> Trial:
        """Suspend the job of a trial, or let it start again."""
        return _SUSPEND.load()(self._namespaces.store_of(namespace), Key(namespace, trial), suspended=suspended)

    def ask(
        self,
        namespace: str,
        experiment: str,
        *,
        request_id: str,
        client: str = "",
        lease_seconds: float = DEFAULT_LEASE_SECONDS,
        wait_seconds: float = 0.0,
    ) -> GivenTrial:
        """Give a trial to a caller."""
        deadline, pause = self._clock.monotonic() + wait_seconds, threading.Condition()
        for attempt in count(1):
            asked = self.ask_later(
                namespace, experiment, request_id=request_id, client=client, lease_seconds=lease_seconds
            )
            answer, left = asked.answer, deadline - self._clock.monotonic()
            if answer is not None and left > 0:
                with suppress(TimeoutError):
                    return answer.result(left)
            given = asked.leave()
            if answer is not None or given.document or given.is_over or left <= 0:
                return given
            with pause:
                self._clock.wait(pause, min(left, _ASK_PAUSES.load().pause_seconds(attempt)))
        raise AssertionError("counting has no end")

    def ask_later(
        self,
        namespace: str,
        experiment: str,
        *,
        request_id: str,
        client: str = "",
        lease_seconds: float = DEFAULT_LEASE_SECONDS,
    ) -> AskedTrial:
        """Give a trial to a caller, now or as soon as there is one: for who does not wait in a thread."""
        key = Key(namespace, experiment)
        try:
            return self._callers.get().ask_later(key, request_id=request_id, client=client, lease_seconds=lease_seconds)
        except NotFoundError:
            self._require(EXPERIMENT, key)
            raise

    def report(
        self,
        namespace: str,
        trial: str,
        values: Mapping[str, float | str],
        *,
        step: int | None = None,
        request_id: str = "",
        ask_id: str = "",
    ) -> CallerAnswer:
        """Store readings of a caller."""
        return self._of_trial(
            Key(namespace, trial),
            lambda key: self._callers.get().report(key, values, step=step, request_id=request_id, ask_id=ask_id),
        )

    def tell(
        self,
        namespace: str,
        trial: str,
        values: Mapping[str, float | str],
        *,
        failure: str | None = None,
        stopped: bool = False,
        request_id: str = "",
        ask_id: str = "",
    ) -> CallerAnswer:
        """End a trial of a caller."""
        return self._of_trial(
            Key(namespace, trial),
            lambda key: self._callers.get().tell(
                key, values, failure=failure, stopped=stopped, request_id=request_id, ask_id=ask_id
            ),
        )

    def renew(self, namespace: str, trial: str, *, ask_id: str = "") -> CallerAnswer:
        """Renew the lease of a caller."""
        return self._of_trial(Key(namespace, trial), lambda key: self._callers.get().renew(key, ask_id=ask_id))

    def add_ended_trials(self, namespace: str, experiment: str, trials: Sequence[EndedTrial]) -> int:
        """Take trials that were evaluated elsewhere."""
        store = self._namespaces.store_of(namespace)
        return _ADD_ENDED_TRIALS.load()(store, self._readings, Key(namespace, experiment), trials)

    def _of_trial(self, key: Key, call: Callable[[Key], CallerAnswer]) -> CallerAnswer:
        """Call with the key of a trial, and say in the words of users that it is not there."""
        try:
            return call(key)
        except NotFoundError:
            self._require(TRIAL, key)
            raise

    def delete(self, namespace: str, experiment: str) -> None:
        """Delete an experiment and wait until it and its trials are gone, their processes included."""
        found = self._require(EXPERIMENT, Key(namespace, experiment))
        _DELETION.load()(self._namespaces.store_of(namespace), found, self._aftermath, self._clock).run()


def _with_raised_budget(submission: Loaded, stored: Experiment) -> Loaded:
    """Return a document with the budget of the stored experiment where its own is the one that was raised since.

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
