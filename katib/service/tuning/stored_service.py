"""The tuning service of either home: handlers of all verbs, over an object store and an observation log."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeVar

from katib.engine.controllers.kinds import EXPERIMENT, NAMESPACE, TRIAL, key_of
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.objects import Key, Kind, Object, WholeWrites
from katib.errors import AlreadyExistsError, Backoff, ForbiddenError, NotFoundError, invalid
from katib.model import types
from katib.model.loadable import Deferred, Loadable
from katib.model.loading import Submission as Loaded
from katib.model.names import (
    COMMAND_ANNOTATION,
)
from katib.service.tuning.ports import Aftermath, Explain, Namespaces, NoAftermath, Records
from katib.service.tuning.service import (
    NO_CHOICE,
    AddEndedTrials,
    AddTrial,
    Ask,
    CallerAnswer,
    Choice,
    Confirm,
    Confirmation,
    Delete,
    Document,
    EditExperiment,
    EditTrial,
    Named,
    OfDocument,
    Pause,
    PausedExperiment,
    Preview,
    PreviewTrial,
    Renew,
    Report,
    Run,
    RunExperiment,
    StoredRuntime,
    StoreRuntimes,
    Submit,
    SubmittedExperiment,
    Tell,
    TrialForCaller,
    Validate,
)
from katib.service.tuning.stored_reading import ObjectReadingService, confirming_experiment, key_in
from katib.service.tuning.submission import Admitted, Candidate, Gate
from katib.service.tuning.writing import until_written

if TYPE_CHECKING:
    from katib.model.types import Experiment, Trial
    from katib.service.tuning.asking import AskedTrial, CallersTrials
    from katib.service.tuning.deletion import Deletion
    from katib.service.tuning.offered_templates import OfferedTemplates
    from katib.service.tuning.repeating import Repeating, Reruns
    from katib.service.tuning.resubmitting import Resubmission

N = TypeVar("N", bound=Named[CallerAnswer])

_ADD_TRIAL: Final[Loadable[Callable[..., int]]] = Loadable("katib.service.tuning.adding:add_trial")
_ADD_ENDED_TRIALS: Final[Loadable[Callable[..., int]]] = Loadable("katib.service.tuning.ended_trials:add_ended_trials")
_ASK_PAUSES: Final[Loadable[Backoff]] = Loadable("katib.service.tuning.asking:ASK_PAUSES")
_CALLERS: Final[Loadable[type[CallersTrials]]] = Loadable("katib.service.tuning.asking:CallersTrials")
_CONFIRM: Final[Loadable[Callable[..., Confirmation]]] = Loadable("katib.service.tuning.confirming:confirm")
_DELETION: Final[Loadable[type[Deletion]]] = Loadable("katib.service.tuning.deletion:Deletion")
_EDIT: Final[Loadable[Callable[..., Object]]] = Loadable("katib.service.tuning.editing:edit_experiment")
_EDITED: Final[Loadable[Callable[..., Experiment]]] = Loadable("katib.service.tuning.editing:edited_experiment")
_EDITED_TRIAL: Final[Loadable[Callable[..., Trial]]] = Loadable("katib.service.tuning.editing:edited_trial")
_PAUSE: Final[Loadable[Callable[..., tuple[Object, tuple[str, ...]]]]] = Loadable(
    "katib.service.tuning.editing:pause_experiment"
)
_REPEATING: Final[Loadable[type[Repeating]]] = Loadable("katib.service.tuning.repeating:Repeating")
_RESUBMISSION: Final[Loadable[type[Resubmission]]] = Loadable("katib.service.tuning.resubmitting:Resubmission")
_TEMPLATES: Final[Loadable[type[OfferedTemplates]]] = Loadable(
    "katib.service.tuning.offered_templates:OfferedTemplates"
)


class ObjectTuningService(ObjectReadingService):
    """Fits `katib.service.tuning.service.TuningService` over any object store. Thread-safe.

    Args:
        records: Objects, readings, events and output of experiments.
        gate: Checks submissions, and knows the algorithms.
        explain: Says why something does not progress.
        clock: Measures timeouts.
        namespaces: Those that there are; left out: those with experiments.
        aftermath: Traces of a deleted experiment beside its objects.
        templates: Returns the trial templates that ConfigMaps offer; left out: those of the store.
        repeats: Returns what runs experiments once more; left out: each runs once.
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
        repeats: Callable[[], Reruns] | None = None,
    ) -> None:
        super().__init__(records, explain, gate.catalog, clock, namespaces)
        self._gate = gate
        self._aftermath = aftermath or NoAftermath()
        self._templates = Deferred(templates or (lambda: _TEMPLATES.load()(records.store)))
        self._repeating = None if repeats is None else Deferred(lambda: _REPEATING.load()(self, repeats()))
        self._readers = records.callers
        self._callers = Deferred(lambda: _CALLERS.load()(self._namespaces, records, gate.catalog, clock))
        self.answers_at_once = isinstance(records.store, WholeWrites)

    @property
    def templates(self) -> OfferedTemplates:
        """The trial templates that ConfigMaps offer."""
        return self._templates.get()

    def namespaces(self) -> Sequence[str]:
        """Return the namespaces that an experiment may be in, as far as the user may know, in order of their names."""
        return self._namespaces.names()

    def _on_validate(self, request: Validate) -> tuple[str, ...]:
        namespace = request.namespace or self._namespaces.default
        admitted = self._gate.check(request.document, source=request.source, namespace=namespace)
        return () if admitted is None else tuple(admitted.notices)

    def _on_preview(self, request: PreviewTrial) -> Preview:
        return self._gate.preview(self._loaded(request))

    def _on_submit(self, request: Submit) -> SubmittedExperiment:
        return self.take(self._loaded(request))

    def _loaded(self, request: OfDocument[Any]) -> Loaded:
        return self.load(request.document, source=request.source, namespace=request.namespace)

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

    def take(self, candidate: Candidate, *, command: str = "") -> SubmittedExperiment:
        """Create, resume or update an experiment as `submit` does, of a document that was read or admitted before.

        A created one keeps the command that runs it, so that explanations can name it.
        """
        if isinstance(candidate, Admitted):
            submission = candidate.submission
            self._gate.expect(submission)  # it may come from a door that starts no service
        else:
            submission = candidate
        key = Key(submission.experiment.namespace, submission.experiment.name)

        def attempt() -> SubmittedExperiment | None:
            old = self._find(EXPERIMENT, key) if key.name else None
            return (
                None
                if old is None
                else _RESUBMISSION.load()(self._store, self._gate, self._find, self._put).of(old, submission)
            )

        if (submitted := until_written(attempt, key.name, "submit it again")) is not None:
            return submitted
        admitted = self.admit(candidate)
        for companion in submission.companions:
            self._put(companion)
        new = admitted.experiment.encode()
        if command:
            new["metadata"].setdefault("annotations", {})[COMMAND_ANNOTATION] = command
        stored = self._store.create(new)
        if submission.job is not None and self._gate.keeps_jobs:
            self._keep_job(submission.job)
        return SubmittedExperiment(stored, "created", admitted.notices)

    def _on_run(self, request: Run) -> RunExperiment:
        choice = Choice(request.restart, request.retry_failed, request.more)
        return self.repeat(self._loaded(request), source=request.source, choice=choice, command=request.command)

    def repeat(
        self, candidate: Candidate, *, source: str, choice: Choice = NO_CHOICE, command: str = ""
    ) -> RunExperiment:
        """Run an experiment that was read or admitted before, as `run` does."""
        if self._repeating is not None:
            key = key_of(candidate.experiment)
            if not choice and self._find(EXPERIMENT, key) is None:
                submitted = self.take(candidate, command=command)
                if submitted.outcome == "created":
                    return RunExperiment.of(submitted)
            return self._repeating.get().run(candidate, source, choice, command)
        if choice:
            remedy = "submit it under another name"
            raise invalid("experiment", "one of a cluster runs once only", remedy, "choice-of-a-cluster")
        return RunExperiment.of(self.take(candidate))

    def _on_store_runtimes(self, request: StoreRuntimes) -> tuple[StoredRuntime, ...]:
        namespace = request.namespace or self._namespaces.default
        found = self._gate.runtimes(request.document, source=request.source, namespace=namespace)
        return tuple(map(self._store_runtime, found))

    def _store_runtime(self, runtime: Mapping[str, Any]) -> StoredRuntime:
        kind, key = Kind.of(runtime), Key.of(runtime)
        before = self._find(kind, key)
        from katib.service.tuning.companions import has_content

        if before is not None and has_content(before, runtime):
            return StoredRuntime(dict(before), "unchanged")
        self._put(runtime)
        return StoredRuntime(dict(self._store.get(kind, key)), "created" if before is None else "updated")

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

    def _on_add_trial(self, request: AddTrial) -> int:
        values = {one.name: one.value for one in request.parameter_assignments}
        return _ADD_TRIAL.load()(self._namespaces.store_of(request.namespace), key_in(request), values)

    def _on_confirm(self, request: Confirm) -> Confirmation:
        self._require(EXPERIMENT, key_in(request))

        def create(document: str) -> SubmittedExperiment:
            source = f"confirmation of {request.name}"
            return self.take(self.load(document, source=source, namespace=request.namespace))

        return _CONFIRM.load()(self._namespaces.store_of(request.namespace), request, create, self._retry_failed)

    def _retry_failed(self, key: Key) -> None:
        if self._repeating is None:
            cause = "failed trials of a cluster are not run again"
            remedy = f"ask for more repeats, or delete {key.name} if it failed"
            raise invalid(f"experiment {key.name}", cause, remedy, "choice-of-a-cluster")
        self._repeating.get().retry_failed(self.get(types.Experiment, *key))

    def _on_edit(self, request: EditExperiment) -> Experiment:
        return _EDITED.load()(self._namespaces.store_of(request.namespace), request)

    def _on_pause(self, request: Pause) -> PausedExperiment:
        key, store = key_in(request), self._namespaces.store_of(request.namespace)
        self._require(EXPERIMENT, key)
        return PausedExperiment(*_PAUSE.load()(store, key, self._clock, paused=request.paused))

    def _on_edit_trial(self, request: EditTrial) -> Trial:
        return _EDITED_TRIAL.load()(self._namespaces.store_of(request.namespace), request)

    def _on_ask(self, request: Ask) -> TrialForCaller:
        deadline, pause = self._clock.monotonic() + request.wait_seconds, threading.Condition()
        for attempt in count(1):
            asked = self.ask_later(request)
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

    def ask_later(self, request: Ask) -> AskedTrial:
        """Give a trial to a caller, now or as soon as there is one; no thread waits."""
        key = key_in(request)
        try:
            return self._callers.get().ask_later(key, request)
        except NotFoundError:
            self._require(EXPERIMENT, key)
            raise

    def _on_report(self, request: Report) -> CallerAnswer:
        return self._of_trial(self._callers.get().report, request)

    def _on_tell(self, request: Tell) -> CallerAnswer:
        return self._of_trial(self._callers.get().tell, request)

    def _on_renew(self, request: Renew) -> CallerAnswer:
        return self._of_trial(self._callers.get().renew, request)

    def _on_add_ended_trials(self, request: AddEndedTrials) -> int:
        store = self._namespaces.store_of(request.namespace)
        return _ADD_ENDED_TRIALS.load()(store, self._readers, key_in(request), request.trials)

    def _of_trial(self, answer: Callable[[Key, N], CallerAnswer], request: N) -> CallerAnswer:
        """Answer a request about a trial; if it does not exist, raise with the words of users."""
        try:
            return answer(key_in(request), request)
        except NotFoundError:
            self._require(TRIAL, key_in(request))
            raise

    def _on_delete(self, request: Delete) -> None:
        """Delete an experiment and wait until it and its trials are gone, their processes included.

        The experiment that confirms it goes first.
        """
        store, found = self._namespaces.store_of(request.namespace), self._require(EXPERIMENT, key_in(request))
        experiment = types.Experiment.read(found)
        confirming = confirming_experiment(store, experiment)
        if confirming is not None and confirming.name != experiment.name:
            _DELETION.load()(store, confirming.encode(), self._aftermath, self._clock).run()
        _DELETION.load()(store, found, self._aftermath, self._clock).run()
