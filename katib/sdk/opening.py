"""`katib.open`: an experiment by its name alone, for reading its result and continuing it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from katib.errors import NotFoundError
from katib.model.types import Experiment
from katib.sdk.asking import Experiment as AskedExperiment
from katib.sdk.homes import ExperimentPlace, open_home, open_service
from katib.sdk.results import TuneResult, read_result
from katib.service.drafting import takes_its_arguments
from katib.service.tuning.reading import typed_value
from katib.service.tuning.titles import name_meant, namespace_in_use


@dataclass(frozen=True, slots=True, repr=False)
class OpenedExperiment(TuneResult):
    """The result of an experiment so far, with a method to continue it."""

    def resume(self, *, lease_seconds: float = 60.0) -> AskedExperiment:
        """Return the experiment, to ask for its trials: `katib.open("mine").resume()`; without trial template only.

        Args:
            lease_seconds: How long a program keeps its trial without renewing the lease.
        """
        with ExitStack() as opened:
            home = open_home(self.place)
            opened.callback(home.close)
            stored = home.first_call(lambda service: service.get(Experiment, self.place.namespace, self.name))
            opened.pop_all()
        return AskedExperiment(home, stored, _reader(stored), self.place, lease_seconds=lease_seconds)


@takes_its_arguments
def open_experiment(
    name: str = "",
    *,
    data_dir: str | Path | None = None,
    server: str | None = None,
    namespace: str = "",
) -> OpenedExperiment:
    """Return the result of an experiment so far, however it was started: `katib.open("digits").best`.

    Args:
        name: Name of the experiment, or title of the study; by default the newest one.
        data_dir: A data directory; by default that of the command line.
        server: The URL of a server.
        namespace: Of the experiment; by default the one that all experiments are in, else `default`.

    Raises:
        NotFoundError: The experiment does not exist.
        UnavailableError: No server answers, and there is no data directory.
    """
    place = ExperimentPlace(data_dir, server, namespace)
    with open_service(place) as service:
        place = replace(place, namespace=namespace or namespace_in_use(service))
        name = name or next((one.name for one in reversed(service.experiments(place.namespace))), "")
        if not name:
            raise NotFoundError(f"no experiment is in namespace {place.namespace}; run one, or give another data_dir=")
        experiment = service.get(Experiment, place.namespace, name_meant(service, place.namespace, name))
        found = read_result(service, experiment, _reader(experiment), place)
    return OpenedExperiment(**{one.name: getattr(found, one.name) for one in fields(found)})


def _reader(experiment: Experiment) -> Callable[[str, str], Any]:
    """Return a function that converts an assignment to its Python value, by the name of the parameter and the text."""
    types = {one.name: one.parameter_type for one in experiment.spec.parameters}
    return lambda name, text: typed_value(types.get(name, ""), text)
