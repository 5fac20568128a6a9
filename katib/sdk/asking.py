"""Ask and tell from Python: trials that this program evaluates, one after the other or many at once.

Theory of operation. Every request has an id and is repeated if its answer is lost, so that nothing is lost or doubled.
While this program evaluates a trial, a thread renews the trial's lease; when the program ends, or forgets the trial,
the lease expires, and another program gets the trial. If the engine belongs to another program, and that one ends, one
of the remaining programs starts the next engine.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sys
import threading
import time
import uuid
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, SupportsFloat, SupportsIndex, TypeVar

from katib.errors import KatibError
from katib.model.names import trial_seed
from katib.model.types import Experiment as StoredExperiment
from katib.model.types import Trial
from katib.sdk.homes import PATIENCE_SECONDS, ExperimentHome, ExperimentPlace
from katib.sdk.reporting import metric_texts, step_number
from katib.sdk.results import NearestNames, TuneResult, read_result
from katib.service.drafting import takes_its_arguments
from katib.service.tuning.reading import assignments_of
from katib.service.tuning.service import CallerAnswer, TrialForCaller, TuningService
from katib.service.tuning.states import is_completed, last_condition

R = TypeVar("R")

LEASE_SECONDS = 60.0
_SIGNS_OF_LIFE = 3
"""Renewals per lease: two may be lost."""

_LOOK_SECONDS = 20.0
"""Timeout of one request for a trial."""

_UNSAID_SECONDS = 5.0
"""Timeout of the first request, after which the reason of the wait is printed."""

_left: dict[str, dict[str, tuple[dict[str, Any], str]]] = {}
"""The trials whose loop was left before their end, for example by an exception in a cell of a notebook: by the uid of
their experiment and their names, the arguments of `Experiment.taken_again`. The next loop of this program starts with
them."""


class StopTrial(Exception):  # noqa: N818 - not an error: the trial ends here
    """The trial should stop, by early stopping or because it is no longer needed. It has already been ended."""


class AskedTrial(NearestNames):
    """A trial that this program evaluates.

    Leave it by `tell` or `fail`. As a context manager it fails with the exception that leaves the block, and is ended
    by `StopTrial`.

    Attributes:
        name: Name of the trial.
        parameters: Its arguments, with their Python types, without absent ones.
    """

    def __init__(self, experiment: Experiment, name: str, parameters: dict[str, Any], ask_id: str) -> None:
        self.name = name
        self.parameters = parameters
        self._experiment = experiment
        self._ask_id = ask_id
        self._stop = ""
        self._ended = False

    @property
    def ask_id(self) -> str:
        """The request that got it."""
        return self._ask_id

    @property
    def seed(self) -> int:
        """A number for random generators, 1 to 2**31 - 1: the same whenever this trial is evaluated."""
        return trial_seed(self._experiment.namespace, self.name)

    @property
    def has_ended(self) -> bool:
        """Whether its end was sent: its value, a failure or a stop."""
        return self._ended

    @property
    def should_stop(self) -> str:
        """The reason to stop the trial, as far as this program knows; empty while it may continue."""
        return self._stop

    def report(
        self,
        metrics: SupportsFloat | Mapping[str, SupportsFloat] | None = None,
        /,
        step: SupportsIndex | None = None,
        **named: SupportsFloat,
    ) -> None:
        """Report readings, such as once per epoch: `trial.report(loss=0.3, step=4)`, or `trial.report(0.3, 4)`.

        Args:
            metrics: A reading of the objective, or readings by name, for names that are not valid in Python.
            step: The training step: an integer from 0.
            **named: Further readings by name.

        Raises:
            StopTrial: The trial should stop. It has been ended: continue with the next one.
            InvalidError: It was ended before.
            TypeError: A value, a name or the step is invalid.
        """
        texts = self._texts(metrics, named)
        number = None if step is None else step_number(step)
        if not texts:
            return
        request_id = _new_id()
        answer = self._experiment.call(
            lambda service, namespace: service.report(
                namespace, self.name, texts, step=number, request_id=request_id, ask_id=self._ask_id
            )
        )
        self._note(answer)
        if self._stop:
            if not self._ended:
                self._end({}, stopped=True)
            raise StopTrial(self._stop)

    def tell(
        self, metrics: SupportsFloat | Mapping[str, SupportsFloat] | None = None, /, **named: SupportsFloat
    ) -> str:
        """End the trial with its value, `trial.tell(loss=0.3)`; with one objective a number alone is enough.

        Args:
            metrics: The value of the objective, or values by name; by default the reported one.
            **named: Further values by name.

        Returns:
            The reason why the trial was no longer needed, such as a reached goal; usually empty.

        Raises:
            InvalidError: It has ended before, the objective is missing, or its lease ended and another program has it.
        """
        return self._end(self._texts(metrics, named))

    def fail(self, reason: str = "") -> None:
        """End the trial as failed."""
        self._end({}, failure=reason)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None, /
    ) -> bool:
        if isinstance(exc, StopTrial):
            return True
        if exc is not None and not self._ended:
            self.fail(f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__)
        return False

    def __repr__(self) -> str:
        return f"AskedTrial({self.name}, {self.parameters})"

    def renew(self) -> None:
        """Renew the lease. The experiment's thread does so by itself."""
        answer = self._experiment.call(
            lambda service, namespace: service.renew(namespace, self.name, ask_id=self._ask_id), patience_seconds=0.0
        )
        self._note(answer)

    def _texts(
        self, metrics: SupportsFloat | Mapping[str, SupportsFloat] | None, named: Mapping[str, SupportsFloat]
    ) -> dict[str, str]:
        if metrics is not None and not isinstance(metrics, Mapping):
            metrics = {self._experiment.objective: metrics}
        return dict(metric_texts({**(metrics or {}), **named}))

    def _note(self, answer: CallerAnswer) -> None:
        self._stop = answer.stop or self._stop

    def _end(self, texts: Mapping[str, str], *, failure: str | None = None, stopped: bool = False) -> str:
        request_id = _new_id()
        answer = self._experiment.call(
            lambda service, namespace: service.tell(
                namespace,
                self.name,
                texts,
                failure=failure,
                stopped=stopped,
                request_id=request_id,
                ask_id=self._ask_id,
            )
        )
        self._ended = True
        _left.get(self._experiment.uid, {}).pop(self.name, None)
        self._experiment.trial_ended(self)
        return answer.stop


class Experiment(NearestNames):
    """An experiment whose trials this program evaluates. Thread-safe; close it after its last use.

    Created by `katib.create`, or by `katib.open(name).resume()`.

    Attributes:
        name: Name of the experiment.
        namespace: Its namespace.
        uid: Its identity: another experiment of the same name has another one.
        objective: Name of the objective metric, or of the first of several.
    """

    def __init__(
        self,
        home: ExperimentHome,
        stored: StoredExperiment,
        value: Callable[[str, str], Any],
        place: ExperimentPlace,
        *,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self.name = stored.name
        self.uid = stored.metadata.uid
        objective = stored.spec.objective
        self.objective = objective.objective_metric_name if objective is not None else ""
        self._home = home
        self.namespace = stored.namespace
        self._value = value
        self._place = place
        self._lease_seconds = lease_seconds
        self._client = f"{platform.node()}-{os.getpid()}"
        self._changed = threading.Condition()
        self._out: weakref.WeakSet[AskedTrial] = weakref.WeakSet()
        self._closed = False
        self._has_said = False
        self._heart: threading.Thread | None = None

    @takes_its_arguments
    def ask(self, timeout_seconds: float | None = None) -> AskedTrial | None:
        """Return the next trial for this program; wait while none is free.

        Args:
            timeout_seconds: Timeout; None: until there is one, or the experiment has ended.

        Returns:
            None if the experiment has ended (`reason` says how), or after the timeout.

        Raises:
            InvalidError: The trials of this experiment run as jobs.
        """
        request_id = _new_id()
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        look = _LOOK_SECONDS if self._has_said else _UNSAID_SECONDS
        while True:
            left = look if deadline is None else min(max(deadline - time.monotonic(), 0.0), look)

            def request(service: TuningService, namespace: str, wait_seconds: float = left) -> TrialForCaller:
                return service.ask(
                    namespace,
                    self.name,
                    request_id=request_id,
                    client=self._client,
                    lease_seconds=self._lease_seconds,
                    wait_seconds=wait_seconds,
                )

            given = self.call(request)
            if given.trial is not None:
                return self._taken(given.trial, request_id)
            if given.is_over or (deadline is not None and time.monotonic() >= deadline):
                return None
            look = _LOOK_SECONDS
            self._say_what_is_waited_for()

    def ask_until_done(self, parallel: int = 1) -> Iterator[AskedTrial]:
        """Yield trials until the experiment has ended, with at most `parallel` of them running.

        In a plain loop one trial runs at a time. With a pool of threads or processes, submit each trial and call its
        `tell` there: the next one is yielded as soon as there is room.

        Args:
            parallel: Number of parallel trials. An experiment that allows fewer is changed.

        Raises:
            RuntimeError: With `parallel=1`, the trial before has not ended.
        """
        allowed = self._stored().spec.parallel_trial_count or 1
        if allowed < parallel:
            self.call(lambda service, namespace: service.edit(namespace, self.name, parallel_trial_count=parallel))
        mine: weakref.WeakSet[AskedTrial] = weakref.WeakSet()
        while True:
            self._await_room(mine, parallel)
            trial = (self._left_before() if parallel == 1 else None) or self.ask()
            if trial is None:
                return
            mine.add(trial)
            try:
                yield trial
            except GeneratorExit:
                if parallel == 1 and not trial.has_ended:
                    _left.setdefault(self.uid, {})[trial.name] = (trial.parameters, trial.ask_id)
                raise
            del trial

    def asynchronous(self) -> AsyncExperiment:
        """Return the same experiment with calls to `await`."""
        return AsyncExperiment(self)

    @property
    def reason(self) -> str:
        """How the experiment ended, in a sentence; while it runs, its state."""
        return last_condition(self._stored()).message

    @property
    def has_ended(self) -> bool:
        return is_completed(self._stored())

    def result(self) -> TuneResult:
        """Return the result of the experiment so far."""
        stored = self._stored()
        return self._home.call(lambda service: read_result(service, stored, self._value, self._place))

    def close(self) -> None:
        """Stop renewing leases, and close the resources of this experiment. Closing twice is fine."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        heart = self._heart
        if heart is not None and heart is not threading.current_thread():
            heart.join()
        self._home.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, request: Callable[[TuningService, str], R], *, patience_seconds: float = PATIENCE_SECONDS) -> R:
        """Return the answer to a request, which is repeated if it may be lost."""
        return self._home.call(lambda service: request(service, self.namespace), patience_seconds=patience_seconds)

    def trial_ended(self, trial: AskedTrial) -> None:
        """Record that a trial has ended."""
        with self._changed:
            self._out.discard(trial)
            self._changed.notify_all()

    def _stored(self) -> StoredExperiment:
        return self.call(lambda service, namespace: service.get(StoredExperiment, namespace, self.name))

    def _taken(self, given: Trial, request_id: str) -> AskedTrial:
        parameters = {key: self._value(key, text) for key, text in assignments_of(given).items()}
        return self.taken_again(given.name, parameters, request_id)

    def taken_again(self, name: str, parameters: dict[str, Any], ask_id: str) -> AskedTrial:
        """Return a trial that was given to this program before, from its attributes."""
        trial = AskedTrial(self, name, parameters, ask_id)
        with self._changed:
            self._out.add(trial)
            if self._heart is None and not self._closed:
                self._heart = threading.Thread(target=self._beat, name=f"leases-{self.name}", daemon=True)
                self._heart.start()
        return trial

    def _left_before(self) -> AskedTrial | None:
        """Return a trial whose loop was left before its end; None if there is none that this program still holds."""
        left = _left.get(self.uid, {})
        while left:
            name = next(iter(left))
            trial = self.taken_again(name, *left.pop(name))
            with suppress(KatibError):
                trial.renew()
                return trial
            self.trial_ended(trial)
        return None

    def _say_what_is_waited_for(self) -> None:
        """Print once which trials have not ended: while they hold the places, there is no next one."""
        if self._has_said:
            return
        listed = self.call(lambda service, namespace: service.trials(namespace, self.name, states=("Running",)))
        if names := ", ".join(trial.name for trial in listed.items):
            self._has_said = True
            ways = "tell(...) or fail() of a trial makes room for the next one"
            sys.stderr.write(f"{self.name} waits for a trial, and these have not ended: {names}; {ways}\n")

    def _await_room(self, mine: weakref.WeakSet[AskedTrial], parallel: int) -> None:
        with self._changed:
            while len(left := [trial for trial in mine if not trial.has_ended]) >= parallel:
                if parallel == 1:
                    raise RuntimeError(f"{left[0].name} has not ended; call its tell(...) in the loop")
                del left
                self._changed.wait(1.0)  # forgotten trials do not notify

    def _beat(self) -> None:
        """Renew the leases of the trials that this program still knows."""
        while True:
            with self._changed:
                if not self._closed:
                    self._changed.wait_for(lambda: self._closed, self._lease_seconds / _SIGNS_OF_LIFE)
                if self._closed:
                    return
            with self._changed:
                trials = list(self._out)
            for trial in trials:
                with suppress(KatibError):  # reported by the trial's next request
                    trial.renew()


class AsyncTrial:
    """A trial for coroutines: each call of `AskedTrial` runs in a thread, and is awaited.

    Attributes:
        trial: The trial with blocking calls.
    """

    def __init__(self, trial: AskedTrial) -> None:
        self.trial = trial

    @property
    def name(self) -> str:
        return self.trial.name

    @property
    def parameters(self) -> dict[str, Any]:
        """Its arguments, with their Python types."""
        return self.trial.parameters

    async def report(
        self,
        metrics: SupportsFloat | Mapping[str, SupportsFloat] | None = None,
        /,
        step: SupportsIndex | None = None,
        **named: SupportsFloat,
    ) -> None:
        """Report readings. Raises as `AskedTrial.report`."""
        await asyncio.to_thread(self.trial.report, metrics, step=step, **named)

    async def tell(
        self, metrics: SupportsFloat | Mapping[str, SupportsFloat] | None = None, /, **named: SupportsFloat
    ) -> str:
        """End the trial with its value. Raises as `AskedTrial.tell`."""
        return await asyncio.to_thread(self.trial.tell, metrics, **named)

    async def fail(self, reason: str = "") -> None:
        """End the trial as failed."""
        await asyncio.to_thread(self.trial.fail, reason)


class AsyncExperiment:
    """An experiment for coroutines, like `AsyncTrial`."""

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment

    async def ask(self, timeout_seconds: float | None = None) -> AsyncTrial | None:
        """Return the next trial; None if the experiment has ended, or after the timeout."""
        trial = await asyncio.to_thread(self._experiment.ask, timeout_seconds)
        return None if trial is None else AsyncTrial(trial)

    async def ask_until_done(self) -> AsyncIterator[AsyncTrial]:
        """Yield trials until the experiment has ended; for several at once, iterate in several tasks."""
        while (trial := await self.ask()) is not None:
            yield trial


def _new_id() -> str:
    return uuid.uuid4().hex
