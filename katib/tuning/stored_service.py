"""The tuning service of either home: what users ask, answered from an object store and an observation log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from katib.api import types
from katib.api.algorithms import AlgorithmCatalog
from katib.api.conditions import COMPLETED_EXPERIMENT, true_types
from katib.api.decoding import decode_stored
from katib.api.defaults import with_defaults
from katib.api.loading import Submission as Loaded
from katib.api.metrics import ObservationReader
from katib.api.validation.update import changed_counts
from katib.controllers.experiment.plan import is_stopped
from katib.controllers.kinds import EXPERIMENT
from katib.errors import (
    AlreadyExistsError,
    ForbiddenError,
    InvalidError,
    invalid,
)
from katib.runtime.clock import Clock
from katib.runtime.objects import Key, Kind, Object, ObjectStore
from katib.tuning.adding import add_trial
from katib.tuning.budgets import with_raised_budget
from katib.tuning.companions import changed_too_late, has_content, title_of
from katib.tuning.deletion import Deletion
from katib.tuning.editing import edit_experiment
from katib.tuning.offered_templates import OfferedTemplates
from katib.tuning.ports import (
    Aftermath,
    EventReader,
    Explain,
    NoAftermath,
    TrialOutput,
)
from katib.tuning.repeating import Document, Repeating, Repeats
from katib.tuning.service import DEFAULT_NAMESPACE, NO_CHOICE, Choice, Preview, RunOutcome, StoredRuntime, Submission
from katib.tuning.stored_reading import ObjectReadingService
from katib.tuning.submission import Gate
from katib.tuning.suspending import suspend_trial
from katib.tuning.writing import until_written

if TYPE_CHECKING:
    from katib.api.types import Experiment, Trial


class ObjectTuningService(ObjectReadingService):
    """Fits `katib.tuning.service.TuningService` over any object store. Thread-safe.

    Args:
        store: Objects.
        observations: Metrics.
        events: Notable moments.
        gate: Checks what is submitted.
        output: What trials print.
        explain: Says why something does not progress.
        catalog: Algorithms.
        clock: Measures timeouts.
        namespace: Where a document goes that names no namespace and is given none.
        aftermath: What is left of a deleted experiment beside its objects.
        scoped: The store as seen through one namespace: all that the changes of an experiment need to watch.
        try_create: Raises what would keep a new object from being stored, beyond what the gate knows; stores nothing.
        templates: Trial templates that ConfigMaps offer; left out: those of the store.
        namespaces: Names the namespaces that the user may know of; left out: those with experiments.
        repeats: Runs experiments once more; left out: each runs once.
    """

    def __init__(
        self,
        *,
        store: ObjectStore,
        observations: ObservationReader,
        events: EventReader,
        gate: Gate,
        output: TrialOutput,
        explain: Explain,
        catalog: AlgorithmCatalog,
        clock: Clock,
        namespace: str = DEFAULT_NAMESPACE,
        aftermath: Aftermath | None = None,
        scoped: Callable[[str], ObjectStore] | None = None,
        try_create: Callable[[Object], None] = lambda _obj: None,
        templates: OfferedTemplates | None = None,
        namespaces: Callable[[], Sequence[str]] | None = None,
        repeats: Repeats | None = None,
    ) -> None:
        super().__init__(
            store=store,
            observations=observations,
            events=events,
            output=output,
            explain=explain,
            catalog=catalog,
            clock=clock,
            scoped=scoped,
        )
        self._gate = gate
        self._namespace = namespace
        self._aftermath = aftermath or NoAftermath()
        self._try_create = try_create
        self.templates = templates or OfferedTemplates(store)
        self._name_namespaces = namespaces
        self._repeating = None if repeats is None else Repeating(self, repeats)

    def namespaces(self) -> Sequence[str]:
        """Return the namespaces that an experiment may be in, as far as the user may know, in order of their names."""
        if self._name_namespaces is not None:
            return self._name_namespaces()
        return sorted({self._namespace, *(experiment.namespace for experiment in self.experiments())})

    def validate(self, document: str, *, source: str, namespace: str | None = None) -> Sequence[str]:
        """Check a document."""
        admitted = self._gate.check(document, source=source, namespace=namespace or self._namespace)
        if admitted is None:
            return ()
        if not admitted.companions:  # they would have to be stored before the experiment could be tried
            self._try_create(admitted.experiment.encode())
        return admitted.notices

    def preview(self, document: str, *, source: str, namespace: str | None = None) -> Preview:
        """Render the first trial of a document."""
        submission = self._gate.load(document, source=source, namespace=namespace or self._namespace)
        return self._gate.preview(submission)

    def submit(self, document: str, *, source: str, namespace: str | None = None) -> Submission:
        """Create, resume or update an experiment."""
        submission = self._gate.load(document, source=source, namespace=namespace or self._namespace)
        key = Key(submission.experiment.namespace, submission.experiment.name)

        def attempt() -> Submission | None:
            old = self._find(EXPERIMENT, key) if key.name else None
            return None if old is None else self._resubmit(old, submission)

        if (submitted := until_written(attempt, key.name, "submit it again")) is not None:
            return submitted
        admitted = self._gate.admit(submission)
        for companion in admitted.companions:
            self._put(companion)
        stored = self._store.create(admitted.experiment.encode())
        return Submission(types.Experiment.read(stored), "created", admitted.notices)

    def run(
        self,
        document: str,
        *,
        source: str,
        namespace: str | None = None,
        choice: Choice = NO_CHOICE,
        command: str = "",
    ) -> RunOutcome:
        """Submit an experiment; one that has ended runs once more where that is wanted."""
        if self._repeating is not None:
            return self._repeating.run(Document(document, source, namespace), choice, command)
        if choice:
            remedy = "submit it under another name"
            raise invalid("experiment", "one of a cluster runs once only", remedy, "choice-of-a-cluster")
        return RunOutcome(self.submit(document, source=source, namespace=namespace))

    def store_runtimes(self, document: str, *, source: str, namespace: str | None = None) -> Sequence[StoredRuntime]:
        """Store training runtimes."""
        found = self._gate.runtimes(document, source=source, namespace=namespace or self._namespace)
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
        submission = with_raised_budget(submission, old)
        new = self._gate.admit_update(submission, old)
        ended = true_types(old.status.conditions) & COMPLETED_EXPERIMENT
        same = new.spec == old.spec
        notices = self._refresh_companions(submission, over=bool(ended) and same)
        if same:
            outcome = "unchanged" if ended else "updated" if notices else "resumed"
            if is_stopped(old) and not ended:  # who submits it again wants it to run
                return Submission(self.edit(old.namespace, old.name, counts={}, stopped=False), outcome, notices)
            return Submission(types.Experiment.read(found), outcome, notices)
        stored = self._store.patch(found, {"spec": changed_counts(old, new)})
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
            stored = self._store.get(Kind.of(companion), Key.of(companion))
            self._store.update({**companion, "metadata": stored["metadata"]})

    def add_trial(self, namespace: str, experiment: str, assignments: Mapping[str, str]) -> int:
        """Have a trial run before those that the algorithm proposes next."""
        return add_trial(self._scoped(namespace), Key(namespace, experiment), assignments)

    def edit(
        self, namespace: str, experiment: str, *, counts: Mapping[str, int | None], stopped: bool | None = None
    ) -> Experiment:
        """Change the counts, stop or resume."""
        key = Key(namespace, experiment)
        edited = edit_experiment(self._scoped(namespace), key, counts=counts, stopped=stopped)
        return types.Experiment.read(edited)

    def suspend(self, namespace: str, trial: str, *, suspended: bool) -> Trial:
        """Suspend the job of a trial, or let it start again."""
        return suspend_trial(self._scoped(namespace), Key(namespace, trial), suspended=suspended)

    def delete(self, namespace: str, experiment: str) -> None:
        """Delete an experiment and wait until it and its trials are gone, their processes included."""
        found = self._require(EXPERIMENT, Key(namespace, experiment))
        Deletion(self._scoped(namespace), found, self._aftermath, self._clock).run()
