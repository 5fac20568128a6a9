"""`katib.integrations.ray.KatibSearch`, called as Ray Tune calls it, and by Ray Tune itself."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import katib
from katib.errors import InvalidError
from tests.support.waiting import eventually

pytest.importorskip("ray.tune", reason="ray is not installed", exc_type=ImportError)

from ray import tune

from katib.integrations.ray import KatibSearch, parameter_of

pytestmark = pytest.mark.filterwarnings("default")  # those of Ray are its own

SPACE = {"lr": tune.loguniform(1e-4, 1e-1), "model": {"width": tune.randint(1, 4)}, "epochs": 3}


@pytest.fixture
def searcher(tmp_path: Path) -> Iterator[KatibSearch]:
    made = KatibSearch(algorithm="random", max_trials=3, options={"data_dir": tmp_path})
    assert made.set_search_properties("loss", "min", SPACE)
    yield made
    if made._experiment is not None:
        made._experiment.close()


def suggested(searcher: KatibSearch, trial_id: str) -> Any:
    while (config := searcher.suggest(trial_id)) is None:
        pass
    return config


@pytest.mark.parametrize(
    ("domain", "space"),
    [
        (tune.uniform(0, 1), {"min": "0", "max": "1"}),
        (tune.loguniform(0.1, 1), {"min": "0.1", "max": "1", "distribution": "logUniform"}),
        (tune.quniform(0, 1, 0.25), {"min": "0", "max": "1", "step": "0.25"}),
        (tune.randint(1, 4), {"min": "1", "max": "3"}),
        (tune.lograndint(1, 9), {"min": "1", "max": "8", "distribution": "logUniform"}),
        (tune.choice(["a", "b"]), {"list": ["a", "b"]}),
    ],
    ids=["uniform", "loguniform", "quniform", "randint", "lograndint", "choice"],
)
def test_domains_are_parameters(domain: Any, space: dict[str, Any]) -> None:
    assert parameter_of("x", domain).space == space


@pytest.mark.parametrize("domain", [tune.randn(0, 1), tune.grid_search([1, 2]), tune.sample_from(lambda _: 1)])
def test_a_domain_without_bounds_is_refused(domain: Any) -> None:
    with pytest.raises(InvalidError, match="has no bounds and no list; use uniform"):
        parameter_of("x", domain)


def test_trials_end_as_they_do_in_ray(searcher: KatibSearch, tmp_path: Path) -> None:
    for trial_id in "abc":
        config = suggested(searcher, trial_id)
        assert set(config) == {"lr", "model", "epochs"}
        assert 1 <= config["model"]["width"] <= 3
        searcher.on_trial_result(trial_id, {"loss": 0.5, "training_iteration": 1})
    searcher.on_trial_complete("a", {"loss": 0.25})
    searcher.on_trial_complete("b", error=True)
    searcher.on_trial_complete("c", {"other": 1})
    while (last := searcher.suggest("d")) is None:
        pass
    assert last == "FINISHED"
    found = katib.open(searcher.experiment_name, data_dir=tmp_path)
    assert max((trial.state, trial.value or 0) for trial in found.trials) == ("Succeeded", 0.25)
    assert [trial.state for trial in found.trials].count("Failed") == 2


def test_a_search_goes_on_from_its_checkpoint_and_needs_a_metric(searcher: KatibSearch, tmp_path: Path) -> None:
    suggested(searcher, "a")
    searcher.save(str(tmp_path / "state"))
    other = pickle.loads(pickle.dumps(searcher))
    other.restore(str(tmp_path / "state"))
    other.on_trial_complete("a", {"loss": 0.125})

    eventually(lambda: [trial.value for trial in other._experiment.result().trials] == [0.125])
    other._experiment.close()

    with pytest.raises(InvalidError, match="it does not know the metric; give param_space"):
        KatibSearch(options={"data_dir": tmp_path}).suggest("a")


WITH_RAY = """
import sys
import ray
from ray import tune
from katib.integrations.ray import KatibSearch
ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
def train(config):
    for step in range(2):
        tune.report({"accuracy": config["x"] + step})
search = KatibSearch(algorithm="random", options={"data_dir": sys.argv[1], "name": "mine"})
results = tune.Tuner(
    train,
    param_space={"x": tune.uniform(0, 1)},
    tune_config=tune.TuneConfig(metric="accuracy", mode="max", num_samples=3, search_alg=search),
    run_config=tune.RunConfig(storage_path=sys.argv[1], name="exp", verbose=0),
).fit()
print(results.get_best_result().metrics["accuracy"])
"""


@pytest.mark.slow
def test_ray_tune_runs_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITH_RAY, str(tmp_path)], check=True, cwd=tmp_path, capture_output=True, text=True
    )
    found = katib.open("mine", data_dir=tmp_path)

    assert [trial.state for trial in found.trials] == ["Succeeded"] * 3
    assert float(done.stdout.split()[-1]) == found.best.value
