"""Stand-in for `katib.places.machine` and clusters in tests of the command line: a tuning service in memory.

It differs from the real engine in that it keeps nothing on disk and that its trials are played, not run. Run as a
program, it is the `katib` command over itself, for tests that need a real process; FAKE_PAUSE is how long each of its
trials takes, FAKE_GATE a file that has to be there before any of them ends, FAKE_START and FAKE_STOP how long it takes
to start and to stop.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Self

from katib.engine.runtime.objects import Key
from katib.errors import FieldError, InvalidError
from katib.places import machine
from katib.service.tuning.service import Document, SubmittedExperiment, TuningService
from katib.service.tuning.states import is_completed
from katib.service.tuning.submission import Admitted
from tests.support.tuning import ALGORITHMS, MemoryTuningService, condition
from tests.support.waiting import eventually


class FakeEngine:
    """Plays every unfinished experiment once it is started; trials of experiments named `bad...` fail."""

    def __init__(
        self,
        service: MemoryTuningService,
        pause_seconds: float,
        *,
        can_leave: bool = False,
        data_dir: Path | None = None,
    ) -> None:
        self.service = service
        self.chosen_trials = self.in_slurm = None
        self.is_cut_off = False
        self.objects = SimpleNamespace(structures={}, written=None)
        """No client of Optuna or of Kubernetes calls, and no trial runs in Slurm."""
        self._data_dir = data_dir
        self.can_leave = can_leave
        self.started = self.stopped = self.left = False
        self._pause = pause_seconds

    def __enter__(self) -> Self:
        if self._data_dir is not None:
            self._data_dir.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def admit(self, document: Document, *, source: str, namespace: str | None = None) -> Admitted:
        return self.service.admit(self.service.load(document, source=source, namespace=namespace))

    def start_for(self, _own: Key | None) -> None:
        self.start()

    def start(self) -> None:
        time.sleep(float(os.environ.get("FAKE_START", "0")))
        self.started = True
        threading.Thread(target=self._play, daemon=True).start()

    def interrupted(self) -> Sequence[str]:
        return ()

    def readiness(self) -> dict[str, bool]:
        return {"controllers": self.started}

    def leave(self) -> None:
        self.left = True
        self.stop()

    def stop(self, *, interrupted: bool = False) -> None:
        time.sleep(float(os.environ.get("FAKE_STOP", "0")))
        self.stopped = True

    def _play(self) -> None:
        for experiment in [e for e in self.service.experiments() if not is_completed(e)]:
            namespace, name = experiment.namespace, experiment.name
            if not name.startswith("bad"):
                self.service.play(namespace, name, pause_seconds=self._pause)
                continue
            failed = condition("Failed", "ExperimentFailed", "max failed count has reached")
            status = {"conditions": [condition("Created"), failed], "trials": 1, "trialsFailed": 1}
            self.service.put({**experiment.encode(), "status": status})


class Catalog:
    def all(self) -> Sequence[object]:
        return ALGORITHMS


def make_module(service: MemoryTuningService, pause_seconds: float = 0) -> ModuleType:
    """Return a module with the functions that the command line asks of `katib.places.machine`."""
    module = ModuleType("katib.places.machine")
    module.__path__ = machine.__path__  # the modules below it are the real ones
    module.__getattr__ = machine.__getattr__  # and so are other names
    engines: list[FakeEngine] = []

    def open_engine(
        *,
        data_dir: Path,
        config: Path | None = None,
        metrics: object = None,
        containers: str | None = None,
        orphan_seconds: float = 0.0,
        slurm: object = None,
        slurm_wins: bool = False,
        own_process: bool = True,
    ) -> FakeEngine:
        engine = FakeEngine(service, pause_seconds, can_leave=orphan_seconds > 0, data_dir=data_dir)
        engines.append(engine)
        return engine

    def open_offline(data_dir: Path) -> TuningService:
        return service

    def validate_document(
        document: Document,
        *,
        source: str,
        namespace: str | None = None,
        config: Path | None = None,
        containers: str | None = None,
    ) -> Sequence[str]:
        return service.validate(document, source=source, namespace=namespace)

    def open_catalog(*, config: Path | None = None) -> Catalog:
        return Catalog()

    for function in (open_engine, open_offline, validate_document, open_catalog):
        setattr(module, function.__name__, function)
    module.engines = engines  # type: ignore[attr-defined]  # for assertions
    return module


class _Played:
    """The service of a cluster: what is submitted is played at once."""

    def __init__(self, service: MemoryTuningService, pause_seconds: float) -> None:
        self._service = service
        self._pause = pause_seconds

    def submit(self, document: Document, *, source: str, namespace: str | None = None) -> SubmittedExperiment:
        submission = self._service.submit(document, source=source, namespace=namespace)
        FakeEngine(self._service, self._pause).start()
        return submission

    def __getattr__(self, name: str) -> object:
        return getattr(self._service, name)


def make_cluster_module(service: MemoryTuningService, pause_seconds: float = 0) -> ModuleType:
    """Return a module with the function that the command line asks of `katib.places.cluster.access.tuning_service`.

    The namespace of its context is `team`; `asked` holds how the cluster was named each time.
    """
    module = ModuleType("katib.places.cluster.access.tuning_service")
    asked: list[tuple[Path | None, str | None, str]] = []

    @contextmanager
    def open_cluster(
        kubeconfig: Path | None = None, context: str | None = None, *, db_manager: str = ""
    ) -> Iterator[SimpleNamespace]:
        asked.append((kubeconfig, context, db_manager))
        played = _Played(service, pause_seconds)
        yield SimpleNamespace(service=played, namespace="team", host="https://cluster.example:6443")

    module.open_cluster = open_cluster  # type: ignore[attr-defined]  # a module made by hand
    module.asked = asked  # type: ignore[attr-defined]  # for assertions
    return module


def refuse(*_args: object, **_kwargs: object) -> Sequence[str]:
    """Raise two field errors, as validation would."""
    raise InvalidError(
        [
            FieldError("spec.parameters[0].feasibleSpace.min", "10 is above max 1", "swap the bounds", "bounds-order"),
            FieldError("spec.algorithm.algorithmName", 'unknown algorithm "tpee"', "did you mean tpe", "algorithm"),
        ]
    )


def stand_in() -> None:
    """Let commands of this process find a service in memory."""
    made, pause = MemoryTuningService(), float(os.environ.get("FAKE_PAUSE", "0"))
    if gate := os.environ.get("FAKE_GATE"):
        made.gate = lambda: eventually(Path(gate).exists)
    sys.modules["katib.places.machine"] = make_module(made, pause)
    sys.modules["katib.places.cluster.access.tuning_service"] = make_cluster_module(made, pause)
    sys.modules["katib.places.cluster.access.connect"] = answering = ModuleType("katib.places.cluster.access.connect")
    answering.await_api_server = lambda *_asked: True  # type: ignore[attr-defined]  # a module made by hand


if __name__ == "__main__":
    from katib.doors.cli import main

    stand_in()
    sys.exit(main())
