"""Our services under Katib's own controllers: hyperband comes to its end, also when its service is killed meanwhile.

The controller here does what Katib's does, as far as a service can see: which requests it makes, what they hold, and
that it takes exactly as many assignments as it asked for or nothing at all.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from katib.wire.rpc._generated import api_pb2 as pb
from katib.wire.rpc.services import calls_over
from tests.support.halving import SETTINGS, SPACE, a_learning_curve
from tests.support.suggestion import PATIENCE_SECONDS, Service, Status, a_trial, an_experiment, start_apart

KATIBS_SETTINGS = {
    *("r_l", "resource_name", "eta", "s_max", "b_l"),
    *("n", "r", "current_s", "current_i", "evaluating_trials"),
}
BRACKETS = {"1": 9, "3": 3 + 5, "9": 1 + 1 + 3}
"""Trials by epochs, of r_l 9 and eta 3."""

End = Callable[[str], int]


def succeeds(_name: str) -> int:
    return Status.SUCCEEDED


@dataclass
class KatibsController:
    """Katib's experiment and suggestion controllers, with one experiment.

    Attributes:
        parallel: parallelTrialCount.
        budget: maxTrialCount.
        end: As what a trial ends.
        restart_after: Of how many ended trials the service is killed and started again.
        settings: What the status of the Suggestion keeps of replies.
        trials: Of the experiment, in the order of their creation.
        refused: How many replies were not taken.
    """

    parallel: int
    budget: int = sum(BRACKETS.values())
    end: End = succeeds
    restart_after: frozenset[int] = frozenset()
    settings: dict[str, str] = field(default_factory=dict)
    trials: list[pb.Trial] = field(default_factory=list)
    refused: int = 0

    def run(self, folder: Path) -> None:
        """Run the experiment to its end."""
        random, ended = Random(self.parallel), 0
        with ExitStack() as stack:
            service = self._start(stack, folder / "0")
            while self._completed() < self.budget:
                self._fill(service)
                running = [trial for trial in self.trials if trial.status.condition == Status.RUNNING]
                assert running, f"nothing runs, and {self.refused} replies were refused"
                self._finish(random.choice(running), ended)
                ended += 1
                if ended in self.restart_after:
                    self.process.kill()
                    service = self._start(stack, folder / str(ended))

    def points(self) -> list[tuple[tuple[str, str], ...]]:
        """Return the values of all trials, in the order of their creation."""
        return [tuple((a.name, a.value) for a in t.spec.parameter_assignments.assignments) for t in self.trials]

    def epochs(self) -> Counter[str]:
        return Counter(dict(point)["epochs"] for point in self.points())

    def _start(self, stack: ExitStack, folder: Path) -> Service:
        folder.mkdir()
        self.process, service = stack.enter_context(start_apart("hyperband", folder))
        service.validate(self._experiment(SETTINGS))  # without the settings of the status
        return service

    def _completed(self) -> int:
        return sum(trial.status.condition not in (Status.CREATED, Status.RUNNING) for trial in self.trials)

    def _fill(self, service: Service) -> None:
        """Ask for as many trials as may run; a reply with another number of assignments is refused."""
        unseen = (Status.METRICSUNAVAILABLE,)  # neither sent to services nor counted as done
        done = self._completed() - sum(trial.status.condition in unseen for trial in self.trials)
        active = len(self.trials) - self._completed()
        wanted = min(self.budget - done, self.parallel) - active
        if wanted <= 0:
            return
        sent = [trial for trial in self.trials if trial.status.condition not in unseen]
        Random(len(sent)).shuffle(sent)  # the order of a cache
        request = pb.GetSuggestionsRequest(
            experiment=self._experiment({**SETTINGS, **self.settings}),
            trials=sent,
            current_request_number=wanted,
            total_request_number=len(self.trials) + wanted,
        )
        reply = calls_over(service.channel, pb).GetSuggestions(request, timeout=PATIENCE_SECONDS)
        if len(reply.parameter_assignments) != wanted:
            self.refused += 1
            return
        self.settings |= {setting.name: setting.value for setting in reply.algorithm.algorithm_settings}
        for one in reply.parameter_assignments:
            values = {assignment.name: assignment.value for assignment in one.assignments}
            name = one.trial_name or f"demo-{Random(len(self.trials)).randrange(16**8):08x}"
            # Labels go to the object's metadata, where services never see them.
            self.trials.append(a_trial(name, values, condition=Status.RUNNING, start_time="2024-05-01T10:00:00Z"))

    def _finish(self, trial: pb.Trial, number: int) -> None:
        point = {a.name: a.value for a in trial.spec.parameter_assignments.assignments}
        trial.status.condition = self.end(point["epochs"]) if number == 4 else Status.SUCCEEDED
        trial.status.completion_time = "2024-05-01T10:05:30Z"
        if trial.status.condition == Status.SUCCEEDED:
            trial.status.observation.metrics.add(name="loss", value=str(a_learning_curve(point)))

    def _experiment(self, settings: Mapping[str, object]) -> pb.Experiment:
        experiment = an_experiment("hyperband", SPACE, settings=settings, max_trial_count=self.budget)
        experiment.spec.parallel_trial_count = self.parallel
        return experiment


@pytest.mark.parametrize("parallel", [1, 4, 9, 22])
def test_hyperband_runs_all_brackets_with_any_parallelism(tmp_path: Path, parallel: int) -> None:
    """Katib's own service runs the first rung, and needs at least nine trials at once for that."""
    controller = KatibsController(parallel)
    controller.run(tmp_path)

    assert controller.epochs() == BRACKETS
    assert set(controller.settings) == KATIBS_SETTINGS
    assert {**controller.settings, "eta": "3.0", "r_l": "9.0", "s_max": "2", "b_l": "27.0"} == controller.settings
    begun = {point[:2] for point in controller.points() if dict(point)["epochs"] == "1"}
    assert len(begun & {point[:2] for point in controller.points() if dict(point)["epochs"] == "3"}) == 3


@pytest.mark.parametrize("parallel", [3, 9])
def test_a_service_that_is_killed_in_every_bracket_gives_the_same_trials(tmp_path: Path, parallel: int) -> None:
    undisturbed = KatibsController(parallel)
    killed = KatibsController(parallel, restart_after=frozenset({3, 11, 19}))
    for controller, folder in ((undisturbed, tmp_path / "a"), (killed, tmp_path / "b")):
        folder.mkdir()
        controller.run(folder)

    assert killed.points() == undisturbed.points()
    assert killed.settings == undisturbed.settings
    assert json.dumps(killed.settings)


@pytest.mark.parametrize("condition", [Status.FAILED, Status.KILLED, Status.METRICSUNAVAILABLE])
def test_a_trial_without_a_value_does_not_keep_it_from_its_end(tmp_path: Path, condition: int) -> None:
    """One whose metric is unavailable is replaced: the controller does not show it, and gives one trial more for it."""
    lost = condition == Status.METRICSUNAVAILABLE
    controller = KatibsController(9, sum(BRACKETS.values()) + lost, end=lambda _: condition)
    controller.run(tmp_path)

    found = controller.epochs()
    assert {epochs: found[epochs] for epochs in ("1", "3")} == {"1": 9 + lost, "3": 8}
    assert found["9"] == 5 + lost


def test_a_larger_budget_is_used_with_all_of_the_resource(tmp_path: Path) -> None:
    """Katib knows no end of a search: it would ask forever."""
    controller = KatibsController(9, budget=30)
    controller.run(tmp_path)

    assert controller.epochs() == {**BRACKETS, "9": 5 + 8}
