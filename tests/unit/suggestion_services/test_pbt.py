"""Population based training: who trains on, who copies whom, and how values change."""

from __future__ import annotations

import math
import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from katib.errors import NotFoundError, UnavailableError
from katib.model.checkpoints import CHECKPOINT_ROOT_VARIABLE, NAMESPACE_VARIABLE
from katib.model.names import GENERATION_LABEL, PARENT_LABEL
from katib.model.space import SearchSpace
from katib.wire.rpc._generated import api_pb2 as pb
from suggestion_services.base import PastTrial, TrialOutcome
from suggestion_services.base.algorithm import Proposal
from suggestion_services.base.checkpoint_volume import DEFAULT_ROOT, CheckpointVolume
from suggestion_services.base.messages import experiment_spec
from suggestion_services.pbt.pbt import PopulationBasedTraining
from suggestion_services.pbt.population import MEMBER_LABEL, STEP_LABEL, perturbed
from tests.support.golden import Golden
from tests.support.searches import problem_for
from tests.support.suggestion import a_parameter, a_trial, an_experiment, served_apart

SPACE = [
    a_parameter("lr", min="0.0001", max="1", step="0.0001"),
    a_parameter("x", min="-1", max="1"),
    a_parameter("batch", pb.INT, min="8", max="64", step="8"),
    a_parameter("width", pb.DISCRETE, list=["1", "2", "4", "8"]),
    a_parameter("optimizer", pb.CATEGORICAL, list=["adam", "sgd", "rmsprop"]),
]
SETTINGS: dict[str, object] = {"n_population": 5, "random_state": 3, "suggestion_trial_dir": "/checkpoints"}


class Training:
    """An experiment: it asks, runs some trials at once, and ends them as it is told."""

    def __init__(self, *, maximize: bool = True, volume: CheckpointVolume | None = None, **changed: object) -> None:
        problem = problem_for("pbt", SPACE, settings={**SETTINGS, **changed})
        self.problem = replace(problem, maximize=maximize, directions=(maximize,))
        self.volume = volume
        self.trials: dict[str, PastTrial] = {}

    def algorithm(self) -> PopulationBasedTraining:
        return PopulationBasedTraining(self.problem, self.volume)

    def ask(self, count: int = 1) -> list[Proposal]:
        """Return proposals of a service that has just been started."""
        history = sorted(self.trials.values(), key=lambda trial: trial.name)
        return list(self.algorithm().suggest(history, first=len(self.trials), count=count))

    def start(self, count: int = 1) -> list[str]:
        """Begin new trials and return their names."""
        names = []
        for proposal in self.ask(count):
            name = proposal.trial_name or f"demo-{random.Random(len(self.trials)).randbytes(4).hex()}"
            self.trials[name] = PastTrial(name, TrialOutcome.PENDING, proposal.assignments, labels=proposal.labels)
            names.append(name)
        return names

    def end(self, name: str, value: float) -> None:
        """End a trial; NaN makes it one that failed."""
        outcome = TrialOutcome.MEASURED if math.isfinite(value) else TrialOutcome.BAD
        self.trials[name] = replace(self.trials[name], outcome=outcome, objective=value)

    def run(self, budget: int, value: Callable[[PastTrial], float], parallel: int = 1) -> None:
        """Run trials, always so many at once; the oldest ends first."""
        running: list[str] = []
        while len(self.trials) < budget or running:
            free = min(parallel - len(running), budget - len(self.trials))
            running += self.start(free) if free else []
            name = running.pop(0)
            self.end(name, value(self.trials[name]))

    def first_generation(self, *, sign: int = 1) -> list[str]:
        """Train five members, each better than the one before, or worse, and return the names of the trials."""
        names = self.start(5)
        for i, name in enumerate(names):
            if self.volume:
                (self.volume.root / "demo" / name / "weights").write_text(f"of {name}")
            self.end(name, sign * i)
        return names

    def label(self, name: str, label: str) -> str:
        return self.trials[name].labels.get(label, "")

    def generation(self, name: str) -> int:
        return int(self.label(name, GENERATION_LABEL))


def learning_rate(trial: PastTrial) -> float:
    return float(trial.assignments["lr"])


def test_the_first_members_are_spread_over_the_range_of_every_parameter() -> None:
    points = [proposal.assignments for proposal in Training().ask(5)]

    assert sorted(int(float(point["lr"]) * 5) for point in points) == [0, 1, 2, 3, 4]
    assert sorted(int((float(point["x"]) + 1) / 2 * 5) for point in points) == [0, 1, 2, 3, 4]


def test_a_first_step_has_generation_0_and_no_parent() -> None:
    labels = [dict(proposal.labels) for proposal in Training().ask(2)]

    assert labels == [{GENERATION_LABEL: "0", MEMBER_LABEL: str(i), STEP_LABEL: "0"} for i in range(2)]


@pytest.mark.parametrize("maximize", [True, False])
def test_the_worst_copies_the_best_and_starts_from_the_checkpoint_of_the_best(maximize: bool) -> None:
    training = Training(maximize=maximize)
    first = training.first_generation(sign=1 if maximize else -1)

    second = training.start(5)

    assert [training.label(name, PARENT_LABEL) for name in second] == [first[4], *first[1:]]
    assert [training.label(name, GENERATION_LABEL) for name in second] == ["1"] * 5
    assert [training.label(name, MEMBER_LABEL) for name in second] == ["0", "1", "2", "3", "4"]


def test_who_copies_gets_changed_values_and_all_others_keep_theirs() -> None:
    training = Training()
    first = training.first_generation()
    second = training.start(5)

    copied, model = training.trials[second[0]].assignments, training.trials[first[4]].assignments
    assert all(copied[name] != model[name] for name in copied)
    assert [training.trials[n].assignments for n in second[1:]] == [training.trials[n].assignments for n in first[1:]]


def test_nothing_waits_for_a_generation() -> None:
    training = Training()
    slow, *others = training.start(5)
    for step in range(4):
        for name in others:
            training.end(name, step)
        others = training.start(4)

    assert training.trials[slow].outcome is TrialOutcome.PENDING
    assert {training.generation(name) for name in others} == {4}


def test_a_member_that_lags_behind_is_compared_with_what_others_had_at_its_age() -> None:
    training = Training()
    first = training.start(5)
    for name in first[1:]:
        training.end(name, 1.0)
    for name in training.start(4):
        training.end(name, 100.0)
    training.end(first[0], 2.0)

    (name,) = training.start()

    assert training.label(name, MEMBER_LABEL) == "0"
    assert training.label(name, PARENT_LABEL) == first[0]


def test_more_trials_at_once_than_members_are_more_members() -> None:
    training = Training()

    assert [training.label(name, MEMBER_LABEL) for name in training.start(8)] == [str(i) for i in range(8)]


@pytest.mark.parametrize("outcome", [TrialOutcome.BAD, TrialOutcome.SILENT])
def test_what_fails_is_tried_again_with_the_same_values_from_the_same_checkpoint(outcome: TrialOutcome) -> None:
    training = Training()
    training.run(5, learning_rate)
    (failed,) = training.start()
    training.trials[failed] = replace(training.trials[failed], outcome=outcome)

    (again,) = [name for name in training.start(2) if training.label(name, MEMBER_LABEL) == "0"]

    assert training.trials[again].assignments == training.trials[failed].assignments
    assert training.label(again, PARENT_LABEL) == training.label(failed, PARENT_LABEL)
    assert training.label(again, GENERATION_LABEL) == training.label(failed, GENERATION_LABEL)


def test_what_fails_twice_gives_its_place_to_a_copy_of_the_best() -> None:
    training = Training()
    first = training.start(5)
    for name in first[:4]:
        training.end(name, learning_rate(training.trials[name]))
    training.end(first[4], math.nan)
    for _ in range(20):
        (name,) = training.start()
        is_last = training.label(name, MEMBER_LABEL) == "4"
        training.end(name, math.nan if is_last else learning_rate(training.trials[name]))
        if is_last:
            break

    children = [name for name in training.start(6) if training.label(name, MEMBER_LABEL) == "4"]

    parent = training.label(children[0], PARENT_LABEL)
    assert training.trials[parent].outcome is TrialOutcome.MEASURED
    assert training.label(parent, MEMBER_LABEL) != "4"


def test_a_population_that_fails_as_a_whole_begins_anew_again_and_again() -> None:
    training = Training()

    training.run(25, lambda _trial: math.nan)

    assert {training.generation(name) for name in training.trials} == {0}
    assert len({str(trial.assignments) for trial in training.trials.values()}) >= 10


def test_no_trial_ever_starts_from_one_that_failed() -> None:
    training, chance = Training(), random.Random(5)

    training.run(80, lambda trial: math.nan if chance.random() < 0.3 else learning_rate(trial), parallel=3)

    parents = [training.label(name, PARENT_LABEL) for name in training.trials]
    assert {training.trials[parent].outcome for parent in parents if parent} == {TrialOutcome.MEASURED}


def test_a_search_finds_good_values_and_trains_them_for_long() -> None:
    training = Training(truncation_threshold=0.4)

    training.run(60, learning_rate, parallel=2)

    last = [learning_rate(trial) for name, trial in training.trials.items() if training.generation(name) >= 9]
    assert last
    assert min(last) >= 0.7  # copies explore: at most a factor of 0.8 or 1.2 from a good value
    assert fmean(last) >= 0.8


def test_it_begins_and_goes_on_with_trials_that_somebody_added() -> None:
    training = Training()
    point = dict(training.ask()[0].assignments)
    training.trials["mine"] = PastTrial("mine", TrialOutcome.MEASURED, point, objective=1000.0)
    training.run(11, learning_rate)

    children = [name for name in training.trials if training.label(name, PARENT_LABEL) == "mine"]

    assert {training.label(name, MEMBER_LABEL) for name in children} > {"mine"}


def test_every_second_first_step_has_values_of_earlier_trials_and_none_has_their_checkpoint() -> None:
    training = Training()
    points = [dict(proposal.assignments, width="8") for proposal in Training(random_state=8).ask(5)]
    for i, point in enumerate(points):
        training.trials[f"old-{i}"] = PastTrial(f"old-{i}", TrialOutcome.MEASURED, point, objective=i, is_earlier=True)

    proposals = training.ask(5)

    assert [proposal.assignments in points for proposal in proposals] == [False, True, False, True, False]
    assert [proposals[1].assignments, proposals[3].assignments] == [points[4], points[3]]
    assert all(PARENT_LABEL not in proposal.labels for proposal in proposals)


@pytest.mark.parametrize("threshold", [0, 0.29, 0.5, 1])
def test_any_threshold_works(threshold: float) -> None:
    training = Training(truncation_threshold=threshold)

    training.run(40, learning_rate, parallel=2)

    copies = [
        name
        for name in training.trials
        if (parent := training.label(name, PARENT_LABEL))
        and training.label(parent, MEMBER_LABEL) != training.label(name, MEMBER_LABEL)
    ]
    assert bool(copies) is (threshold > 0)


@settings(max_examples=60, deadline=None)
@given(
    script=st.lists(st.tuples(st.integers(0, 3), st.sampled_from([-1.0, 0.0, 2.5, math.nan])), max_size=30),
    resample=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_every_step_is_feasible_and_labelled_whatever_ends_when(
    script: Sequence[tuple[int, float]], resample: float
) -> None:
    training = Training(resample_probability=resample)
    space = SearchSpace.of(experiment_spec(an_experiment("pbt", SPACE)).parameters)
    running = training.start(4)
    for place, value in script:
        training.end(running.pop(place), value)
        running += training.start()

    for trial in training.trials.values():
        assert all(p.contains(trial.assignments[p.name]) for p in space.parameters)
        parent = trial.labels.get(PARENT_LABEL)
        assert (int(trial.labels[GENERATION_LABEL]) == 0) is (parent is None)
        assert parent is None or training.trials[parent].outcome is TrialOutcome.MEASURED
    steps = Counter((t.labels[MEMBER_LABEL], t.labels[STEP_LABEL]) for t in training.trials.values())
    assert set(steps.values()) == {1}


def test_two_asked_for_together_are_those_asked_for_one_by_one() -> None:
    training = Training()
    training.run(9, learning_rate)
    together = training.ask(3)

    one_by_one = []
    for _ in range(3):
        (proposal,) = training.ask()
        one_by_one.append(proposal)
        name = f"next-{len(one_by_one)}"
        training.trials[name] = PastTrial(name, TrialOutcome.PENDING, proposal.assignments, labels=proposal.labels)

    assert together == one_by_one


# --- perturbation -----------------------------------------------------------------------------------------------------


def parameter_of(**space: object) -> object:
    kind = space.pop("kind", pb.DOUBLE)
    spec = an_experiment("pbt", [a_parameter("p", kind, **space)])  # type: ignore[arg-type]  # by name
    return SearchSpace.of(experiment_spec(spec).parameters).parameters[0]


@pytest.mark.parametrize(
    ("space", "value", "expected"),
    [
        pytest.param({"min": "0", "max": "10"}, 5.0, {4.0, 6.0}, id="double"),
        pytest.param({"min": "0", "max": "10"}, 10.0, {8.0}, id="at-the-upper-bound"),
        pytest.param({"min": "4", "max": "10"}, 4.0, {4.8}, id="at-the-lower-bound"),
        pytest.param({"min": "-10", "max": "10"}, 0.0, {-1.0, 1.0}, id="zero"),
        pytest.param({"min": "0", "max": "10", "step": "1"}, 5.0, {4.0, 6.0}, id="stepped"),
        pytest.param({"min": "0", "max": "1", "step": "0.1"}, 0.1, {0.0, 0.2}, id="less-than-a-step"),
        pytest.param({"kind": pb.INT, "min": "1", "max": "10"}, 1, {2}, id="int-at-the-lower-bound"),
        pytest.param({"kind": pb.INT, "min": "1", "max": "99"}, 50, {40, 60}, id="int"),
        pytest.param({"kind": pb.INT, "min": "-9", "max": "9"}, -1, {-2, 0}, id="negative-int"),
        pytest.param({"kind": pb.DISCRETE, "list": ["1", "4", "2"]}, "1", {"2"}, id="discrete-at-its-end"),
        pytest.param({"kind": pb.CATEGORICAL, "list": ["a", "b", "c"]}, "a", {"b", "c"}, id="categorical-wraps"),
        pytest.param({"kind": pb.CATEGORICAL, "list": ["a"]}, "a", {"a"}, id="only-one"),
        pytest.param({"min": "3", "max": "3"}, 3.0, {3.0}, id="one-number"),
    ],
)
def test_a_value_is_moved_and_stays_feasible(space: dict[str, object], value: object, expected: set[object]) -> None:
    parameter = parameter_of(**space)

    moved = {perturbed(parameter, value, random.Random(seed)) for seed in range(30)}  # type: ignore[arg-type]  # by case

    assert moved == expected


# --- checkpoints on a volume ------------------------------------------------------------------------------------------


@pytest.fixture
def volume(tmp_path: Path) -> CheckpointVolume:
    return CheckpointVolume(tmp_path / "data", "team")


def test_a_trial_on_a_volume_has_a_name_and_an_empty_folder(volume: CheckpointVolume) -> None:
    names = Training(volume=volume).start(3)

    assert all(name.startswith("demo-") and len(name) == 13 for name in names)
    assert sorted(path.name for path in (volume.root / "demo").glob("[!.]*")) == sorted(names)
    assert all((volume.root / "demo" / name).stat().st_mode & 0o777 == 0o777 for name in names)


def test_a_copy_starts_with_the_files_of_the_winner(volume: CheckpointVolume) -> None:
    training = Training(volume=volume)
    first = training.first_generation()

    contents = [(volume.root / "demo" / name / "weights").read_text() for name in training.start(5)]
    assert contents == [f"of {name}" for name in (first[4], *first[1:])]


def test_folders_on_a_volume_go_when_no_trial_starts_from_them(volume: CheckpointVolume) -> None:
    training = Training(volume=volume)
    first = training.first_generation()
    second = training.start(5)
    for i, name in enumerate(second):
        training.end(name, float(i))

    third = training.start(2)

    left = {path.name for path in (volume.root / "demo").glob("[!.]*")}
    assert left == {max(first, key=lambda name: training.trials[name].objective), *second, *third}


def test_a_service_that_is_asked_again_after_a_crash_answers_alike(volume: CheckpointVolume) -> None:
    training = Training(volume=volume)
    first = training.first_generation()
    lost = training.ask(2)
    part = volume.root / "demo" / f".{lost[1].trial_name}.part"
    (volume.root / "demo" / lost[1].trial_name).rename(part)  # as if the service had ended in mid-copy
    (volume.root / "demo" / f".{lost[1].trial_name}.origin").unlink()

    again = training.ask(2)

    assert again == lost
    assert not part.exists()
    assert (volume.root / "demo" / again[1].trial_name / "weights").read_text() == f"of {first[1]}"


def test_a_folder_made_for_an_answer_that_was_lost_is_made_anew_for_another_parent(volume: CheckpointVolume) -> None:
    training = Training(volume=volume)
    first = training.first_generation()
    (lost,) = training.ask()
    training.end(first[0], 100.0)

    (other,) = training.ask()

    assert other.trial_name == lost.trial_name
    assert other.labels[PARENT_LABEL] == first[0] != lost.labels[PARENT_LABEL]
    assert (volume.root / "demo" / other.trial_name / "weights").read_text() == f"of {first[0]}"


def test_a_parent_whose_folder_is_gone_is_named(volume: CheckpointVolume, golden: Golden) -> None:
    training = Training(volume=volume)
    (volume.root / "demo" / training.first_generation()[4]).rename(volume.root / "elsewhere")

    with golden.raises(NotFoundError):
        training.ask()


def test_a_volume_that_cannot_be_written_is_named(tmp_path: Path, golden: Golden) -> None:
    (tmp_path / "data").write_text("a file where the volume should be")

    with golden.raises(UnavailableError):
        Training(volume=CheckpointVolume(tmp_path / "data")).ask()


def test_long_names_of_experiments_leave_names_of_trials_that_are_labels(volume: CheckpointVolume) -> None:
    name = volume.trial_name("a" * 53 + ".b" * 100, 7, ())

    assert len(name) <= 63
    assert name[:-9] == "a" * 53


def test_equal_experiments_of_two_namespaces_name_their_trials_differently() -> None:
    names = {CheckpointVolume(Path("/"), namespace).trial_name("demo", 0, ()) for namespace in ("red", "blue")}

    assert len(names) == 2


def test_the_volume_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(CHECKPOINT_ROOT_VARIABLE, str(tmp_path))
    assert CheckpointVolume.of_environment() == CheckpointVolume(tmp_path)

    monkeypatch.setenv(CHECKPOINT_ROOT_VARIABLE, "")
    assert CheckpointVolume.of_environment() is None

    monkeypatch.delenv(CHECKPOINT_ROOT_VARIABLE)
    assert (CheckpointVolume.of_environment() is not None) is Path(DEFAULT_ROOT).is_dir()


def test_trials_that_keep_checkpoints_in_a_store_of_the_users_need_no_volume(volume: CheckpointVolume) -> None:
    (proposal,) = Training(volume=volume, suggestion_trial_dir="s3://bucket/pbt").ask()

    assert proposal.trial_name == ""
    assert not volume.root.exists()


def test_a_service_with_a_volume_is_killed_and_its_successor_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    monkeypatch.setenv(CHECKPOINT_ROOT_VARIABLE, str(tmp_path / "data"))
    monkeypatch.setenv(NAMESPACE_VARIABLE, "team")
    experiment = an_experiment("pbt", SPACE, settings=SETTINGS)
    trials = []
    with served_apart("pbt", tmp_path) as service:
        points = service.ask(experiment, count=5)
        for i, one in enumerate(service.reply.parameter_assignments):
            (tmp_path / "data" / "demo" / one.trial_name / "weights").write_text(one.trial_name)
            trials.append(a_trial(one.trial_name, points[i], i, labels=one.labels))
    best = trials[0].name  # the loss counts up
    with served_apart("pbt", tmp_path) as service:
        service.ask(experiment, trials)

        (child,) = service.reply.parameter_assignments
        assert child.labels[PARENT_LABEL] == best
        assert (tmp_path / "data" / "demo" / child.trial_name / "weights").read_text() == best

        shutil.rmtree(tmp_path / "data" / "demo")
        with golden.raises(grpc.RpcError):
            service.ask(experiment, trials)


# --- settings ---------------------------------------------------------------------------------------------------------


def test_a_budget_without_a_second_generation_is_explained(golden: Golden) -> None:
    problem = replace(Training().problem, max_trial_count=5)

    golden(PopulationBasedTraining(problem).explain())
    assert PopulationBasedTraining(replace(problem, max_trial_count=6)).explain() == ""


@pytest.mark.parametrize("parallel", [1, 3, 5])
def test_each_of_the_worst_at_its_age_copies_however_many_train_at_once(parallel: int) -> None:
    training, ends = Training(n_population=10), random.Random(parallel)
    training.run(80, lambda trial: int(trial.labels[GENERATION_LABEL]) + ends.random() / 2, parallel=parallel)
    by_age: dict[str, list[PastTrial]] = {}
    for trial in training.trials.values():
        by_age.setdefault(trial.labels[GENERATION_LABEL], []).append(trial)
    worst = [
        trial for same in by_age.values() for trial in sorted(same, key=lambda trial: trial.objective)[: len(same) // 5]
    ]
    next_steps = {(t.labels[MEMBER_LABEL], int(t.labels[STEP_LABEL])): t for t in training.trials.values()}
    after = [(t, next_steps.get((t.labels[MEMBER_LABEL], int(t.labels[STEP_LABEL]) + 1))) for t in worst]

    assert len(worst) > 5
    assert [t.name for t, step in after if step is not None and step.labels[PARENT_LABEL] == t.name] == []
