"""`katib.create`: an experiment whose trials this program evaluates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from katib.errors import InvalidError
from katib.model.names import LOST_LEASES_ANNOTATION
from katib.model.types import API_VERSION
from katib.model.types import Experiment as StoredExperiment
from katib.sdk.asking import LEASE_SECONDS, Experiment
from katib.sdk.homes import ExperimentPlace, open_home
from katib.sdk.python_words import check_arguments
from katib.sdk.search import Parameter
from katib.sdk.spec import Bounds, document_of, search_arguments, search_spec, without_none
from katib.service.drafting import in_arguments, python_words, takes_its_arguments
from katib.service.tuning.service import DEFAULT_NAMESPACE, Json, TuningService


@takes_its_arguments
def create(
    name: str,
    parameters: Mapping[str, Parameter],
    *,
    objective: str = "objective",
    direction: str = "minimize",
    goal: float | None = None,
    objectives: Mapping[str, str] | None = None,
    goals: Mapping[str, float] | None = None,
    constraints: Mapping[str, Bounds] | None = None,
    max_trials: int | None = 20,
    parallel: int = 1,
    max_failed: int | None = None,
    algorithm: str = "auto",
    settings: Mapping[str, Any] | None = None,
    early_stopping: str | None = None,
    early_stopping_settings: Mapping[str, Any] | None = None,
    additional_metrics: Sequence[str] = (),
    strategy: str = "",
    where: Sequence[str] = (),
    initial_trials: Sequence[Mapping[str, Any]] = (),
    warm_start: Sequence[str] = (),
    lease_seconds: float = LEASE_SECONDS,
    lost: str = "ask-again",
    restart: bool = False,
    data_dir: str | Path | None = None,
    server: str | None = None,
    namespace: str = DEFAULT_NAMESPACE,
) -> Experiment:
    """Create an experiment whose trials this program evaluates, or continue the one of that name.

    Args:
        name: Name of the experiment.
        parameters: Search space by name, created with `katib.search`.
        objective: Name of the metric to optimize.
        direction: `minimize` or `maximize`.
        goal: Value of the objective that ends the search.
        objectives: Several objectives instead of one: the direction of each by name.
        goals: Values of several objectives that end the search when one trial reaches all that are given.
        constraints: Bounds of metrics by name, such as `{"memory": (None, 8)}`: the best trial satisfies them.
        max_trials: Number of trials; None: until the experiment is stopped.
        parallel: Number of trials evaluated in parallel, by all programs together.
        max_failed: Number of failed trials that ends the search as failed.
        algorithm: A suggestion algorithm; `katib algorithms` lists them, and `auto` chooses one of them.
        settings: Settings of the algorithm, such as `random_state`.
        early_stopping: An early stopping algorithm, such as `medianstop`; `trial.report` raises `katib.StopTrial` then.
        early_stopping_settings: Its settings.
        additional_metrics: Further metrics to keep.
        strategy: The value of a trial's readings: `min`, `max`, `latest`, `mean` or `mean(5)`; by default the best one.
        where: Comparisons of parameters that all trials satisfy, such as `["layers * units <= 4096"]`.
        initial_trials: Parameters to try first, a value for each parameter of the space.
        warm_start: Names of earlier experiments of the same place to learn from.
        lease_seconds: How long a program keeps its trial without renewing the lease.
        lost: Treatment of the trial of a lost program: `ask-again` or `fail`.
        restart: Start again if there is one of this name, which is kept under a name with a number.
        data_dir: The data directory; by default $KATIB_HOME, else `.katib`.
        server: The URL of a server that keeps it instead.
        namespace: Namespace of the experiment.

    Raises:
        InvalidError: The search space or the settings are invalid, with all errors at once; or an experiment of that
            name has another search.
        TerminalError: Another program that is not a server works in the data directory.
    """
    search = search_arguments(locals())
    arguments = {**search, "parameters": parameters, "max_trials": max_trials, "parallel": parallel, "restart": restart}
    check_arguments(parameters, {**arguments, "data_dir": data_dir}, takes_constants=False)
    place = ExperimentPlace(data_dir, server, namespace)
    spec = search_spec(parameters, **search)
    names = list(objectives or [objective])
    # The value at the end counts, whatever was reported before.
    spec["objective"]["metricStrategies"] = [{"name": one, "value": "latest"} for one in names]
    parallel = parallel if max_trials is None else min(parallel, max(max_trials, 1))
    document: Json = {
        "apiVersion": API_VERSION,
        "kind": "Experiment",
        "metadata": {"name": name, "annotations": {LOST_LEASES_ANNOTATION: lost}},
        "spec": {
            **spec,
            **without_none(maxTrialCount=max_trials),
            "parallelTrialCount": parallel,
            "resumePolicy": "FromVolume",
        },
    }

    def submit(service: TuningService) -> StoredExperiment:
        submission = (
            service.run(text, source=name, namespace=namespace, restart=True)
            if restart
            else service.submit(text, source=name, namespace=namespace)
        )
        return submission.experiment

    text = document_of(document)
    with ExitStack() as opened, python_words():
        home = open_home(place)
        opened.callback(home.close)
        try:
            stored = home.first_call(submit)
        except InvalidError as error:
            raise in_arguments(error, arguments) from None
        opened.pop_all()
    return Experiment(home, stored, lambda key, text: parameters[key].value(text), place, lease_seconds=lease_seconds)
