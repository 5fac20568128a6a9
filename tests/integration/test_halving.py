"""Algorithms with rungs in the whole engine: real services, real trials, and kills in mid-bracket."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from katib.model.checkpoints import parent_of
from katib.model.types import Experiment
from katib.places.machine.processes.proc import descendants
from katib.service.tuning.reading import assignments_of
from katib.service.tuning.service import TuningService
from katib.service.tuning.states import is_completed, last_condition
from tests.support.cli import a_server, katib_here
from tests.support.engines import working
from tests.support.experiments import a_double, a_template, an_experiment
from tests.support.golden import Golden
from tests.support.refusals import refused
from tests.support.waiting import eventually

NS = "default"
EPOCHS = {"name": "epochs", "parameterType": "int", "feasibleSpace": {"min": "1", "max": "9"}}
COMMAND = "awk 'BEGIN {print \"loss=\" (${trialParameters.learningRate} - 0.05)^2 + 1 / ${trialParameters.epochs}}'"
BRACKETS = {("0", "0"): 9, ("0", "1"): 3, ("0", "2"): 1, ("1", "0"): 5, ("1", "1"): 1, ("2", "0"): 3}


def a_halving(name: str = "demo", algorithm: str = "hyperband", command: str = COMMAND, **spec: Any) -> dict[str, Any]:
    settings = [{"name": "r_l", "value": "9"}, {"name": "resource_name", "value": "epochs"}]
    if algorithm == "bohb":
        settings.append({"name": "rounds", "value": "1"})
    template = a_template(command, {"learningRate": "lr", "epochs": "epochs"})
    return an_experiment(
        name=name,
        parameters=[a_double("lr"), EPOCHS],
        algorithm={"algorithmName": algorithm, "algorithmSettings": settings},
        trialTemplate=template,
        **{"parallelTrialCount": 4, "maxTrialCount": None, **spec},
    )


def submit(service: TuningService, document: dict[str, Any]) -> None:
    service.submit(yaml.safe_dump(document), source="demo.yaml")


def ended(service: TuningService, name: str = "demo") -> Experiment:
    for change in service.changes(NS, name, timeout_seconds=180):
        if isinstance(change.object, Experiment) and is_completed(change.object):
            return change.object
    raise AssertionError(service.why(NS, name))


def rungs(service: TuningService, name: str = "demo", algorithm: str = "hyperband") -> Counter[tuple[str, str]]:
    kind = f"{algorithm}.suggestion.katib.kubeflow.org"
    found = [trial.metadata.labels for trial in service.trials(NS, name).items]
    return Counter((labels[f"{kind}/bracket"], labels[f"{kind}/rung"]) for labels in found)


@pytest.mark.parametrize("algorithm", ["hyperband", "bohb"])
@pytest.mark.parametrize("parallel", [1, 20])
def test_all_brackets_run_and_the_experiment_ends_by_itself(
    service: TuningService, algorithm: str, parallel: int, golden: Golden
) -> None:
    submit(service, a_halving(algorithm=algorithm, parallelTrialCount=parallel))

    assert last_condition(ended(service)).reason == "ExperimentSuggestionEndReached"
    assert rungs(service, algorithm=algorithm) == BRACKETS
    best = service.best(NS, "demo")
    assert best is not None
    assert assignments_of(best)["epochs"] == "9"
    golden(service.why(NS, "demo").verdict)


@pytest.mark.parametrize("algorithm", ["hyperband", "bohb"])
def test_a_trial_that_prints_no_metric_keeps_its_place_and_its_values_are_not_tried_again(
    service: TuningService, algorithm: str
) -> None:
    """Here whatever trains for three epochs prints nothing, and ends well."""
    silent = f'if [ "${{trialParameters.epochs}}" != 3 ]; then {COMMAND}; fi'
    submit(service, a_halving(algorithm=algorithm, command=silent))
    ended(service)

    assert rungs(service, algorithm=algorithm) == {("0", "0"): 9, ("0", "1"): 3, ("1", "0"): 5, ("2", "0"): 3}
    kind = f"{algorithm}.suggestion.katib.kubeflow.org"
    labels = [trial.metadata.labels for trial in service.trials(NS, "demo").items]
    assert sorted(Counter(found.get(f"{kind}/parent") for found in labels).values()) == [1, 1, 1, 17]


def test_slow_trials_are_waited_for_which_is_told_also_after_a_restart_of_the_engine(tmp_path: Path) -> None:
    """Trials wait for a file; nothing can be continued before they have ended."""
    go = tmp_path / "go"
    held = f"until [ -e {go} ]; do sleep 0.05; done; {COMMAND}"
    with working(tmp_path / "katib") as service:
        submit(service, a_halving(command=held, parallelTrialCount=30))
        eventually(lambda: "waits for 9 trials of rung 0 of bracket 0" in " ".join(service.why(NS, "demo").findings))
        eventually(lambda: rungs(service) == {("0", "0"): 9, ("1", "0"): 5, ("2", "0"): 3})
    with working(tmp_path / "katib") as service:
        eventually(lambda: "waits for 9 trials of rung 0 of bracket 0" in " ".join(service.why(NS, "demo").findings))
        go.touch()
        ended(service)

        assert rungs(service) == BRACKETS


def test_a_service_that_is_killed_in_mid_bracket_is_replaced_and_two_experiments_do_not_mix(
    service: TuningService,
) -> None:
    for name in ("demo", "other"):
        submit(service, a_halving(name, parallelTrialCount=2))
    eventually(lambda: service.trials(NS, "demo").total >= 4)
    for pid in services_of("hyperband"):
        os.kill(pid, signal.SIGKILL)
    for name in ("demo", "other"):
        ended(service, name)

    assert rungs(service) == rungs(service, "other") == BRACKETS


def services_of(algorithm: str, server: int | None = None) -> list[int]:
    """Return the processes of ours, or of a server, that serve an algorithm."""
    found = []
    for pid in descendants(os.getpid() if server is None else server):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"suggestion_services" in words and algorithm.encode() in words:
            found.append(pid)
    assert found
    return found


def test_without_its_resource_parameter_it_is_refused_with_the_path_of_the_field(service: TuningService) -> None:
    document = a_halving()
    settings = document["spec"]["algorithm"]["algorithmSettings"]
    settings[1]["value"] = "epoch"
    with refused("setting-parameter"):
        submit(service, document)
    del settings[1]
    with refused("setting-missing"):
        submit(service, document)


def test_a_promoted_trial_goes_on_from_what_the_other_left(tmp_path: Path) -> None:
    command = f'echo ${{trialParameters.epochs}} >> "$KATIB_CHECKPOINT_DIR/history"; {COMMAND}'
    raw = a_halving(command=command)
    raw["spec"]["algorithm"]["algorithmSettings"].append({"name": "suggestion_trial_dir", "value": "/checkpoints"})
    with working(tmp_path) as service:
        submit(service, raw)
        ended(service)
        folder = tmp_path / "checkpoints" / NS / "demo"
        histories = Counter(path.read_text().replace("\n", " ") for path in folder.glob("*/history"))

        assert rungs(service) == BRACKETS
    assert histories == {"1 ": 9, "1 3 ": 3, "1 3 9 ": 1, "3 ": 5, "3 9 ": 1, "9 ": 3}


@pytest.mark.parametrize("algorithm", ["asha", "auto", "hyperband"])
def test_kills_lose_no_paused_trial_and_no_checkpoint_that_is_needed(tmp_path: Path, algorithm: str) -> None:
    """The service is killed, then twice the whole server, while trials pause and continue from checkpoints."""
    command = f'echo ${{trialParameters.epochs}} >> "$KATIB_CHECKPOINT_DIR/history"; {COMMAND}'
    raw = a_halving(algorithm=algorithm, command=command, maxTrialCount=22, parallelTrialCount=3)
    raw["spec"]["algorithm"]["algorithmSettings"].append({"name": "suggestion_trial_dir", "value": "/checkpoints"})
    (tmp_path / "demo.yaml").write_text(yaml.safe_dump(raw))
    data = tmp_path / ".katib"
    folder = data / "checkpoints" / NS / "demo"
    with a_server(tmp_path, "--orphans", "0") as server:
        server.wait_until_ready()
        applied = katib_here("apply", "demo.yaml", "--server", server.url, cwd=tmp_path)
        assert applied.returncode == 0, applied.stderr
        assert server.process is not None
        eventually(lambda: any(folder.glob("*/history")))
        for pid in services_of(algorithm, server.process.pid):
            os.kill(pid, signal.SIGKILL)
        for _ in range(2):
            begun = len(list(folder.iterdir()))
            eventually(lambda begun=begun: len(list(folder.iterdir())) > begun)  # type: ignore[misc]
            server.kill()
            eventually(lambda: not server.descendants())
            server.start()
            server.wait_until_ready()
        server.stop()
    with working(data) as service:
        ended(service)
        trials = {trial.name: trial for trial in service.trials(NS, "demo").items}
        best = service.best(NS, "demo")

    parent_of_trial = {name: parent_of(trial.metadata.labels) for name, trial in trials.items()}
    continued = Counter(filter(None, parent_of_trial.values()))
    left = {path.parent.name: path.read_text().split() for path in folder.glob("*/history")}
    assert len(trials) == 22
    assert continued.keys() <= trials.keys()
    assert max(continued.values()) == 1
    assert best is not None
    assert left.keys() == (trials.keys() - continued.keys()) | {best.name}
    for name, history in left.items():
        chain = [name]
        while parent := parent_of_trial[chain[-1]]:
            chain.append(parent)
        epochs = [assignments_of(trials[link])["epochs"] for link in reversed(chain)]
        assert list(dict.fromkeys(history)) == epochs  # one that was interrupted wrote its line twice
