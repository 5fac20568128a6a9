"""Which unfinished experiments of a data directory an engine runs.

Laws. An experiment that a command runs (`katib run`, `katib.tune`) is that command's: however the command ends, no
other engine takes it up, neither the next command's nor a server's, until it is submitted again or resumed. A command
runs no experiment that was there before it but its own. All others are the servers': each server takes them up.

An annotation names the owner, so a crash at any moment leaves the right one: a command writes its own before anything
of the experiment runs. Experiments whose trials callers evaluate have no programs here, and belong to every engine.
"""

from __future__ import annotations

import secrets
from contextlib import suppress

from katib.engine.controllers.kinds import EXPERIMENT
from katib.engine.runtime.objects import Key, Object, ObjectStore
from katib.errors import KatibError
from katib.model.conditions import has_ended
from katib.model.names import ENGINE_ANNOTATION, OF_SERVERS
from katib.model.restarts import awaits_restart
from katib.model.types import Experiment


class Ownership:
    """The experiments of one engine, that of a server until `take` is called."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._engine = OF_SERVERS
        self._own: Key | None = None

    def take(self, own: Key | None) -> None:
        """Make this the engine of a command that runs one experiment, or none. Before any controller works."""
        self._engine, self._own = secrets.token_hex(4), own
        for found in self._store.list(EXPERIMENT).items:
            experiment = Experiment.decode(found)
            if not _is_run(experiment):
                continue
            if Key.of(found) == own:
                self._write(found, self._engine)
            elif ENGINE_ANNOTATION not in experiment.metadata.annotations:
                self._write(found, OF_SERVERS)

    def release(self) -> None:
        """Give up the experiment of a command that has ended: with a larger budget, any engine may run it."""
        own, self._own = self._own, None
        if own is not None:
            with suppress(KatibError):
                found = self._store.get(EXPERIMENT, own)
                if has_ended(Experiment.decode(found).status.conditions):
                    self._write(found, None)

    def is_interrupted(self, experiment: Experiment) -> bool:
        """Return whether an unfinished experiment is not for this engine."""
        owner = experiment.metadata.annotations.get(ENGINE_ANNOTATION, self._engine)
        return owner != self._engine and _is_run(experiment)

    def _write(self, found: Object, engine: str | None) -> None:
        self._store.patch(found, {"metadata": {"annotations": {ENGINE_ANNOTATION: engine}}})


def _is_run(experiment: Experiment) -> bool:
    """Return whether programs of an experiment may run: it is unfinished, and its trials are jobs."""
    is_over = has_ended(experiment.status.conditions) and not awaits_restart(experiment)
    return experiment.spec.trial_template is not None and not is_over
