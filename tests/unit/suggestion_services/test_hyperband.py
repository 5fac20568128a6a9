"""Hyperband: which trials there are, and that any parallelism, end or restart gives the same brackets."""

from __future__ import annotations

import itertools
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from katib.model.checkpoints import CHECKPOINT_ROOT_VARIABLE
from katib.model.names import PARENT_LABEL
from katib.wire.rpc._generated import api_pb2 as pb
from suggestion_services.base.algorithm import AwaitingTrials, PastTrial, Proposal, TrialOutcome
from suggestion_services.hyperband.schedule import plans_of
from tests.support.golden import Golden
from tests.support.halving import (
    SETTINGS,
    SPACE,
    Run,
    a_learning_curve,
    algorithm_of,
    ends_as,
    halving_problem,
    measured,
)
from tests.support.refusals import INVALID, refusal
from tests.support.suggestion import a_parameter, a_trial, an_experiment, served_apart, served_here

BRACKETS = {
    ("0", "0", "1"): 9,
    ("0", "1", "3"): 3,
    ("0", "2", "9"): 1,
    ("1", "0", "3"): 5,
    ("1", "1", "9"): 1,
    ("2", "0", "9"): 3,
}
"""Of R = 9 and eta = 3, by table 1 of the paper's scheme."""


@pytest.mark.parametrize("parallel", [1, 2, 3, 20, 100])
def test_the_brackets_are_those_of_the_paper_with_any_parallelism(parallel: int) -> None:
    run = Run(halving_problem(), parallel=parallel).to_the_end()

    assert run.rungs() == BRACKETS
    assert run.algorithm.explain() == "all brackets have ended"


@pytest.mark.parametrize("type_", [pb.INT, pb.DOUBLE], ids=["int", "double"])
def test_a_resource_of_one_value_gets_the_amounts_of_the_rungs(type_: pb.ParameterType) -> None:
    pinned: Any = [*SPACE[:2], a_parameter("epochs", type_, min="20", max="20")]
    rungs = Run(halving_problem(parameters=pinned), parallel=9).to_the_end().rungs()

    assert {
        (bracket, rung, f"{float(amount):g}"): count for (bracket, rung, amount), count in rungs.items()
    } == BRACKETS


@pytest.mark.parametrize(
    ("largest", "eta", "s_max", "sizes"),
    [
        (81, 3, 4, [[81, 27, 9, 3, 1], [34, 11, 3, 1], [15, 5, 1], [8, 2], [5]]),
        (243, 3, 5, [[243, 81, 27, 9, 3, 1]]),
        (125, 5, 3, [[125, 25, 5, 1]]),
        (2, 2, 1, [[2, 1], [2]]),
    ],
    ids=["the paper's", "log of 243", "log of 125", "Katib's example"],
)
def test_sizes_of_rungs(largest: float, eta: float, s_max: int, sizes: list[list[int]]) -> None:
    plans = plans_of(largest, eta, s_max, halving_problem(r_l=largest, eta=eta).space.parameters[2])
    wide = [a_parameter("epochs", pb.INT, min="1", max="1000")]
    found = algorithm_of(halving_problem(parameters=wide, r_l=largest, eta=eta))

    assert [plan.s for plan in plans] == list(range(s_max, -1, -1))
    assert found.reply_settings()["s_max"] == str(s_max)
    wide_plans = plans_of(largest, eta, s_max, found.problem.space.parameters[0])
    assert [[rung.size for rung in plan.rungs] for plan in wide_plans[: len(sizes)]] == sizes


@pytest.mark.parametrize(
    ("parameter", "settings", "expected"),
    [
        pytest.param(a_parameter("r", pb.INT, min="1", max="9"), {}, ["1", "3", "9"], id="int"),
        pytest.param(a_parameter("r", pb.INT, min="0", max="100", step="2"), {}, ["0", "4", "8"], id="stepped"),
        pytest.param(a_parameter("r", pb.INT, min="1", max="5"), {}, ["1", "3", "5"], id="clamped"),
        pytest.param(
            a_parameter("r", pb.INT, min="1", max="1"), {"r_l": 2, "eta": 2}, ["1", "2"], id="Katib's example"
        ),
        pytest.param(a_parameter("r", pb.INT, min="2", max="18"), {"r_l": 18}, ["2", "6", "18"], id="begins-higher"),
        pytest.param(a_parameter("r", pb.DISCRETE, list=["8", "1", "4.0"]), {}, ["1", "4.0", "8"], id="discrete"),
        pytest.param(a_parameter("r", min="0.1", max="0.9"), {"r_l": 0.9}, ["0.1", "0.3", "0.9"], id="double"),
        pytest.param(a_parameter("r", min="0", max="1"), {"r_l": 1, "s_max": 1, "eta": 4}, ["0.25", "1.0"], id="share"),
    ],
)
def test_the_resource_is_a_value_of_its_parameter(
    parameter: pb.ParameterSpec, settings: dict[str, object], expected: list[str]
) -> None:
    problem = halving_problem(parameters=[a_parameter("x"), parameter], **{"resource_name": "r", **settings})
    run = Run(problem, parallel=3, end=lambda t: replace(t, outcome=TrialOutcome.MEASURED, objective=0.5)).to_the_end()
    of_first = [t for t in run.trials if t.labels["hyperband.suggestion.katib.kubeflow.org/bracket"] == "0"]
    values = dict.fromkeys(trial.assignments["r"] for trial in of_first)

    assert [float(v) for v in values] == pytest.approx([float(v) for v in expected])
    assert all(problem.space.parameters[1].contains(trial.assignments["r"]) for trial in run.trials)


def test_the_best_of_a_rung_are_continued_with_their_own_values() -> None:
    run = Run(halving_problem(), parallel=4).to_the_end()
    by_name = {trial.name: trial for trial in run.trials}
    parent_label = "hyperband.suggestion.katib.kubeflow.org/parent"
    children = [trial for trial in run.trials if parent_label in trial.labels]
    first = [t for t in run.trials if t.assignments["epochs"] == "1"]
    best = {t.name for t in sorted(first, key=lambda t: t.objective)[:3]}

    assert {t.labels[parent_label] for t in children if t.assignments["epochs"] == "3"} == best
    for child in children:
        parent = by_name[child.labels[parent_label]]
        assert {**child.assignments, "epochs": ""} == {**parent.assignments, "epochs": ""}


def test_with_maximize_the_highest_go_on() -> None:
    run = Run(replace(halving_problem(), maximize=True), parallel=9).to_the_end()
    first = sorted((t for t in run.trials if t.assignments["epochs"] == "1"), key=lambda t: -t.objective)
    parents = {t.labels.get("hyperband.suggestion.katib.kubeflow.org/parent") for t in run.trials}

    assert {t.name for t in first[:3]} <= parents


def test_a_trial_within_its_constraints_goes_before_a_better_one_beyond_them() -> None:
    def end(trial: PastTrial) -> PastTrial:
        return replace(measured(trial), violations=(max(0.5 - float(trial.assignments["x"]), 0.0),))

    run = Run(halving_problem(), parallel=9, end=end).to_the_end()
    first = [t for t in run.trials if t.assignments["epochs"] == "1"]
    parents = {t.labels.get("hyperband.suggestion.katib.kubeflow.org/parent") for t in run.trials}

    assert {t.name for t in sorted((t for t in first if t.is_feasible), key=lambda t: t.objective)[:3]} <= parents


@pytest.mark.parametrize("restarts", [False, True], ids=["undisturbed", "restarted before each question"])
@pytest.mark.parametrize("parallel", [1, 3, 20])
def test_a_restart_at_any_moment_changes_nothing(parallel: int, *, restarts: bool) -> None:
    undisturbed = Run(halving_problem(), parallel=parallel).to_the_end()

    assert Run(halving_problem(), parallel=parallel, restarts=restarts).to_the_end().trials == undisturbed.trials


@pytest.mark.parametrize("parallel", [1, 3, 20])
def test_where_labels_do_not_come_back_the_values_tell_the_rungs(parallel: int) -> None:
    """Katib's own controllers never send them."""
    run = Run(halving_problem(), parallel=parallel, keeps_labels=False).to_the_end()

    assert Counter(t.assignments["epochs"] for t in run.trials) == {"1": 9, "3": 8, "9": 5}


@pytest.mark.parametrize("outcome", [TrialOutcome.BAD, TrialOutcome.SILENT], ids=lambda o: o.value)
def test_a_trial_without_a_value_is_never_continued_and_holds_nothing_up(outcome: TrialOutcome) -> None:
    number = itertools.count()
    bad = ends_as(outcome)
    run = Run(halving_problem(), parallel=5, end=lambda t: bad(t) if next(number) % 2 else measured(t)).to_the_end()
    valueless = {t.name for t in run.trials if t.outcome is outcome}
    parents = {t.labels.get("hyperband.suggestion.katib.kubeflow.org/parent") for t in run.trials}

    assert valueless
    assert not valueless & parents
    assert run.rungs()["0", "0", "1"] == 9


@pytest.mark.parametrize("outcome", [TrialOutcome.BAD, TrialOutcome.SILENT], ids=lambda o: o.value)
def test_when_no_trial_has_a_value_the_first_rungs_are_all_there_is(outcome: TrialOutcome) -> None:
    run = Run(halving_problem(), parallel=5, end=ends_as(outcome)).to_the_end()

    assert {rung for _, rung, _ in run.rungs()} == {"0"}
    assert len(run.trials) == 9 + 5 + 3


def test_trials_that_are_never_shown_again_are_replaced_but_not_forever() -> None:
    """Katib's controllers do not show services a trial whose metrics are unavailable."""
    run = Run(
        halving_problem(),
        parallel=2,
        end=ends_as(TrialOutcome.SILENT),
        shows=lambda t: t.outcome is not TrialOutcome.SILENT,
    ).to_the_end()

    assert 22 < len(run.trials) <= 2 * 22 + 2
    assert "given up" in run.algorithm.explain()


@pytest.mark.parametrize("budget", [1, 5, 9, 13, 22, 50])
def test_the_budget_is_used_and_kept_with_any_parallelism(budget: int) -> None:
    for parallel in (1, 4, 30):
        run = Run(halving_problem(max_trial_count=budget), parallel=parallel).to_the_end()

        assert len(run.trials) == min(budget, 22)


def test_with_little_budget_a_bracket_is_finished_before_the_next_one_begins() -> None:
    run = Run(halving_problem(max_trial_count=13), parallel=20).to_the_end()

    assert run.rungs() == {("0", "0", "1"): 9, ("0", "1", "3"): 3, ("0", "2", "9"): 1}
    assert run.waits


@pytest.mark.parametrize("rounds", [2, 3])
def test_brackets_are_repeated_with_other_configurations(rounds: int) -> None:
    run = Run(halving_problem(rounds=rounds), parallel=7).to_the_end()

    assert len(run.trials) == 22 * rounds
    assert len({t.assignments["x"] for t in run.trials}) == 17 * rounds


def test_two_experiments_search_differently_and_neither_is_changed_by_the_other() -> None:
    alone = Run(halving_problem(experiment="b"), parallel=3).to_the_end()
    one, other = (Run(halving_problem(experiment=name), parallel=3) for name in "ab")
    while one.step() | other.step():
        pass

    assert other.trials == alone.trials
    assert one.trials[0].assignments != other.trials[0].assignments


def test_earlier_trials_and_strangers_are_passed_over() -> None:
    stranger = PastTrial("a", TrialOutcome.MEASURED, {"x": "1"}, 0.1)
    odd = PastTrial("b", TrialOutcome.MEASURED, {**SETTINGS, "epochs": "no"}, 0.1, labels=labels("99", "7"))  # type: ignore[dict-item]
    earlier = PastTrial("c", TrialOutcome.MEASURED, {"x": "1", "y": "1", "epochs": "1"}, 0.1, is_earlier=True)
    algorithm = algorithm_of(halving_problem())
    given = list(algorithm.suggest([earlier, stranger, odd], first=2, count=9))

    assert len(given) == 9
    assert {p.assignments["epochs"] for p in given} == {"1"}  # type: ignore[union-attr]


def labels(bracket: str, rung: str) -> dict[str, str]:
    kind = "hyperband.suggestion.katib.kubeflow.org"
    return {f"{kind}/bracket": bracket, f"{kind}/rung": rung}


@given(st.lists(st.sampled_from(["value", "bad", "silent"]), min_size=30, max_size=30), st.integers(1, 30))
def test_it_always_comes_to_an_end_and_never_waits_for_nothing(ends: list[str], parallel: int) -> None:
    order = itertools.cycle(ends)
    kinds = {"value": measured, "bad": ends_as(TrialOutcome.BAD), "silent": ends_as(TrialOutcome.SILENT)}

    def end(trial: PastTrial) -> PastTrial:
        return kinds[next(order)](trial)

    run = Run(halving_problem(), parallel=parallel, end=end, restarts=True).to_the_end(100)

    assert len(run.trials) <= 22
    assert all(count <= BRACKETS[place] for place, count in run.rungs().items())


# --- over the wire ----------------------------------------------------------------------------------------------------


def refused(parameters: Any = SPACE, **settings: object) -> str:
    """Return with which words a validation is refused."""
    chosen = {key: value for key, value in {**SETTINGS, **settings}.items() if value is not None}
    with served_here("hyperband") as service:
        code, details = refusal(service.validate, an_experiment("hyperband", parameters, settings=chosen))
    assert code == INVALID
    return details


@pytest.mark.parametrize(
    "settings",
    [
        {"r_l": None},
        {"resource_name": None},
        {"resource_name": "--num-epochs"},
        {"r_l": "-1"},
        {"r_l": "many"},
        {"eta": "1"},
        {"r_l": "1"},
        {"eta": "1.01"},
    ],
    ids=["no-r_l", "no-resource", "no-such-parameter", "negative", "text", "eta", "no-room", "too-many"],
)
def test_a_wrong_setting_is_refused(settings: dict[str, object], golden: Golden) -> None:
    golden(refused(**settings))


def test_a_categorical_resource_is_refused(golden: Golden) -> None:
    space = [a_parameter("x"), a_parameter("c", pb.CATEGORICAL, list=["a", "b"])]

    golden(refused(space, resource_name="c"))


def test_a_resource_that_is_no_parameter_gets_suggestions_all_the_same() -> None:
    """Katib's own test of its service asks that."""
    parameters = [
        a_parameter("param-1", pb.INT, min="1", max="5"),
        a_parameter("param-2", pb.CATEGORICAL, list=["cat1", "cat2", "cat3"]),
        a_parameter("param-3", pb.DISCRETE, list=["3", "2", "6"]),
        a_parameter("param-4", min="1", max="5"),
    ]
    experiment = an_experiment(
        "hyperband", parameters, settings={"r_l": 10, "resource_name": "--num-epochs"}, maximize=True
    )
    points = [{"param-1": "2", "param-2": "cat1", "param-3": "2", "param-4": "3.44"}] * 2
    trials = [a_trial(f"t{i}", point, condition=pb.TrialStatus.CREATED) for i, point in enumerate(points)]
    with served_here("hyperband") as service:
        assert len(service.ask(experiment, trials, count=2, first=0)) == 2


def test_the_state_travels_as_katibs_settings_and_comes_back_unharmed(golden: Golden) -> None:
    experiment = an_experiment("hyperband", SPACE, settings={**SETTINGS})
    with served_here("hyperband") as service:
        points = service.ask(experiment, count=2)
        reply = service.reply
        told = {s.name: s.value for s in reply.algorithm.algorithm_settings}
        for echo in ({**SETTINGS, **told}, {**told, "current_s": "x"}):
            assert service.ask(an_experiment("hyperband", SPACE, settings=echo), count=2) == points
            assert service.reply.parameter_assignments == reply.parameter_assignments

    assert told == {
        "eta": "3.0",
        "s_max": "2",
        "r_l": "9.0",
        "b_l": "27.0",
        "r": "1.0",
        "n": "9",
        "current_s": "2",
        "current_i": "0",
        "resource_name": "epochs",
        "evaluating_trials": "2",
    }
    golden(reply.explanation)


def test_a_service_that_is_killed_in_mid_bracket_is_replaced_by_one_that_goes_on_alike(tmp_path: Path) -> None:
    experiment = an_experiment("hyperband", SPACE, settings=SETTINGS)
    with served_here("hyperband") as service:
        trials = service.search(experiment, a_learning_curve, budget=15, parallel=3)
        service.ask(experiment, trials, count=30)
    with served_apart("hyperband", tmp_path) as other:
        points = other.ask(experiment, trials, count=30)

    assert other.reply == service.reply
    assert other.waits
    assert 0 < len(points) < 30


@pytest.mark.parametrize("name", ["hyperband", "bohb"])
@pytest.mark.parametrize("place", ["", "/checkpoints", "s3://bucket/run"])
def test_promoted_trials_go_on_from_checkpoints_where_there_are_any(name: str, place: str) -> None:
    run = Run(halving_problem(name, rounds=1, suggestion_trial_dir=place or None), name, parallel=3).to_the_end()
    continued = [trial.labels.get(f"{name}.suggestion.katib.kubeflow.org/parent", "") for trial in run.trials]

    assert sum(map(bool, continued)) == 5
    assert [trial.labels.get(PARENT_LABEL, "") for trial in run.trials] == [
        parent * bool(place) for parent in continued
    ]


def test_a_trial_that_is_continued_before_it_ended_has_no_checkpoint_yet() -> None:
    algorithm = algorithm_of(halving_problem(suggestion_trial_dir="/checkpoints"))
    begun = list(algorithm.suggest([], first=0, count=9))
    trials = [PastTrial(f"t{k}", TrialOutcome.PENDING, p.assignments, labels=p.labels) for k, p in enumerate(begun)]

    with suppress(AwaitingTrials):
        list(algorithm.suggest([*trials[:8], measured(trials[8])], first=9, count=0))

    assert [p.labels.get(PARENT_LABEL, "") for p in list(algorithm.ahead(first=9, count=3))] == ["t8", "", ""]


def test_on_a_volume_the_folder_of_a_promoted_trial_is_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CHECKPOINT_ROOT_VARIABLE, str(tmp_path))
    problem = halving_problem(rounds=1, suggestion_trial_dir="/checkpoints")
    algorithm, trials = algorithm_of(problem), list[PastTrial]()
    for k in range(9):
        (given,) = algorithm.suggest(trials, first=k, count=1)
        assert isinstance(given, Proposal)
        (tmp_path / "demo" / given.trial_name / "weights").write_text(given.trial_name)
        trials.append(
            measured(PastTrial(given.trial_name, TrialOutcome.PENDING, given.assignments, labels=given.labels))
        )

    (promoted,) = algorithm.suggest(sorted(trials, key=lambda t: t.name), first=9, count=1)

    assert isinstance(promoted, Proposal)
    assert (tmp_path / "demo" / promoted.trial_name / "weights").read_text() == promoted.labels[PARENT_LABEL]


def test_a_place_of_checkpoints_that_no_program_could_use_is_refused() -> None:
    with served_here("hyperband") as service:
        experiment = an_experiment("hyperband", SPACE, settings={**SETTINGS, "suggestion_trial_dir": "checkpoints"})

        assert "is not an absolute path of a directory" in refusal(service.validate, experiment)[1]
