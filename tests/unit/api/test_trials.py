"""How a trial is read: its state, and the value that stands for it (`katib.model.trials`)."""

from __future__ import annotations

import math

import pytest
from msgspec import structs

from katib.engine.controllers.trial.observing import TrialLogs
from katib.model.checkpoints import CheckpointOwner, unneeded
from katib.model.defaults import with_defaults
from katib.model.metrics import ZERO_TIME, MetricLog
from katib.model.names import MEMBER_LABEL, PARENT_LABEL, STEP_LABEL
from katib.model.trials import (
    ACTIVE,
    ELIGIBLE,
    cost,
    is_feasible,
    metric_text,
    missing_objective,
    objective_costs,
    objective_number,
    reaches_goals,
    trial_state,
)
from katib.model.types import Experiment, Metric, MetricStrategySpec, ObjectiveSpec, Observation, TrialState
from katib.service.tuning.states import objective_value
from katib.wire.rpc.trial_messages import trial_message
from tests.support.experiments import an_experiment
from tests.support.observations import MemoryObservationLog
from tests.support.planning import holding, objective, observed, trial


@pytest.mark.parametrize("state", [state for state in TrialState if state != TrialState.PENDING])
def test_a_condition_that_holds_is_the_state(state: TrialState) -> None:
    assert trial_state(trial("t", "Created", state.value)) is state


@pytest.mark.parametrize("conditions", [(), ("Created",), ("Created", "Unheard")], ids=["none", "created", "foreign"])
def test_without_any_known_condition_a_trial_is_pending(conditions: tuple[str, ...]) -> None:
    assert trial_state(trial("t", *conditions)) is TrialState.PENDING


def test_a_condition_that_does_not_hold_says_nothing() -> None:
    assert trial_state(trial("t", "Created", holding("Running", status="False"))) is TrialState.PENDING


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        pytest.param(("Running", "EarlyStopped"), TrialState.EARLY_STOPPED, id="a service said early stopped"),
        pytest.param(("Running", "Succeeded"), TrialState.SUCCEEDED, id="running stayed true"),
        pytest.param(("Succeeded", "Killed"), TrialState.KILLED, id="killed counts first"),
        pytest.param(("Succeeded", "Failed"), TrialState.FAILED, id="failed before succeeded"),
        pytest.param(("EarlyStopped", "Succeeded"), TrialState.SUCCEEDED, id="succeeded before early stopped"),
        pytest.param(("MetricsUnavailable", "EarlyStopped"), TrialState.EARLY_STOPPED, id="stopped, no metrics"),
    ],
)
def test_of_several_conditions_one_counts_in_any_order(conditions: tuple[str, ...], state: TrialState) -> None:
    forward, backward = trial("t", *conditions), trial("t", *reversed(conditions))

    assert [trial_state(one) for one in (forward, backward)] == [state] * 2


def averaged(mean: str) -> Observation:
    return Observation(metrics=(Metric(name="loss", min="0.1", max="0.9", latest="0.5", mean=mean),))


@pytest.mark.parametrize(
    ("strategy", "texts", "mean"),
    [
        ("mean", ["0.1", "0.2", "0.6"], 0.3),
        ("mean(2)", ["9", "0.2", "0.6"], 0.4),
        ("mean(5)", ["0.2", "0.6"], 0.4),
        ("mean", ["0.1", "nan"], math.nan),
        ("mean", ["0.1", "inf"], math.nan),
        ("min", ["0.1"], None),
    ],
)
def test_a_mean_is_of_the_readings_that_its_strategy_names(strategy: str, texts: list[str], mean: float | None) -> None:
    log = MemoryObservationLog()
    log.report("t", [MetricLog(ZERO_TIME, "loss", text) for text in texts])
    found = TrialLogs(log).summarize(trial("t", objective_spec=objective(strategy=strategy))).observation

    assert found is not None
    assert float(found.metrics[0].mean or 0) == pytest.approx(mean or 0, nan_ok=True)


def test_active_and_eligible_states_are_apart() -> None:
    assert not ELIGIBLE & set(ACTIVE)


@pytest.mark.parametrize(
    ("strategy", "reading", "text"),
    [
        pytest.param("min", observed("0.5", low="0.1", high="0.9"), "0.1", id="min"),
        pytest.param("max", observed("0.5", low="0.1", high="0.9"), "0.9", id="max"),
        pytest.param("latest", observed("0.5", low="0.1", high="0.9"), "0.5", id="latest"),
        pytest.param("", observed("0.5", low="0.1", high="0.9"), None, id="no strategy"),
        pytest.param("sum", observed("0.5", low="0.1", high="0.9"), None, id="unknown strategy"),
        pytest.param("mean", averaged("0.25"), "0.25", id="mean"),
        pytest.param("mean(5)", averaged("nan"), "nan", id="mean of the last"),
        pytest.param("mean", averaged(""), None, id="no mean"),
        pytest.param("min", observed("0.5", low="", high="0.9"), "0.5", id="no min"),
        pytest.param("min", observed("nan", low="unavailable", high="unavailable"), "nan", id="min falls back"),
        pytest.param("max", observed("conv", low="unavailable", high="unavailable"), "conv", id="max falls back"),
        pytest.param("latest", observed("unavailable", low="0.1", high="0.9"), None, id="latest does not fall back"),
        pytest.param("min", observed("unavailable", low="unavailable"), None, id="all unavailable"),
        pytest.param("min", observed("0.5", name="other"), None, id="another metric"),
        pytest.param("latest", Observation(), None, id="empty observation"),
        pytest.param("latest", None, None, id="no observation"),
        pytest.param("latest", observed(""), None, id="empty text"),
    ],
)
def test_the_strategy_picks_the_reading(strategy: str, reading: Observation | None, text: str | None) -> None:
    assert metric_text(objective(strategy=strategy), reading) == text


@pytest.mark.parametrize("strategies", [["loss"], ["acc"], []], ids=["min", "of another metric", "none"])
def test_controllers_tables_and_services_read_the_same_value(strategies: list[str]) -> None:
    """A trial that passed no defaulting may have an objective without strategy."""
    named = tuple(MetricStrategySpec(name=name, value="min") for name in strategies)
    spec = structs.replace(objective("minimize"), metric_strategies=named)
    read = observed("0.9", low="0.5", high="0.9")
    one = trial("t", "Succeeded", objective_spec=spec)
    one = structs.replace(one, status=structs.replace(one.status, observation=read))

    number = objective_number(spec, read)
    table = objective_value(one)
    wire = {metric.name: metric.value for metric in trial_message(one).status.observation.metrics}.get("loss")

    expected = "0.5" if strategies == ["loss"] else None
    assert (table, wire) == (expected, expected)
    assert number == (0.5 if expected else None)


def test_without_an_objective_there_is_no_value() -> None:
    assert metric_text(None, observed("1")) is None
    assert missing_objective(None, observed("1")) is not None
    assert not reaches_goals(None, (1.0,))


@pytest.mark.parametrize("text", ["nan", "inf", "-Infinity", "unavailable", "conv", "1_000", " 1"])
def test_only_finite_numbers_may_be_compared(text: str) -> None:
    assert objective_number(objective(), observed(text)) is None


@pytest.mark.parametrize(("text", "value"), [("1e-3", 0.001), ("+5", 5.0), (".5", 0.5), ("-0", 0.0)])
def test_numbers_are_read_as_programs_print_them(text: str, value: float) -> None:
    assert objective_number(objective(), observed(text)) == value


@pytest.mark.parametrize(
    ("latest", "available"), [("0.1", True), ("conv", True), ("nan", True), ("unavailable", False), ("", False)]
)
def test_an_objective_is_available_when_it_was_read_at_all(latest: str, *, available: bool) -> None:
    assert (missing_objective(objective(), observed(latest)) is None) == available


@pytest.mark.parametrize(
    ("type_", "goal", "value", "reached"),
    [
        pytest.param("minimize", 0.1, 0.1, True, id="minimize, exactly"),
        pytest.param("minimize", 0.1, 0.11, False, id="minimize, above"),
        pytest.param("minimize", 0.0, -1.0, True, id="minimize, zero is a goal"),
        pytest.param("maximize", 0.9, 0.9, True, id="maximize, exactly"),
        pytest.param("maximize", 0.9, 0.89, False, id="maximize, below"),
        pytest.param("maximize", None, 5.0, False, id="no goal"),
    ],
)
def test_the_goal_is_reached_when_the_value_is_as_good(
    type_: str, goal: float | None, value: float, *, reached: bool
) -> None:
    spec = objective(type_, goal=goal)

    assert reaches_goals(spec, objective_costs(spec, observed(str(value))) or ()) is reached


def test_smaller_cost_is_better() -> None:
    assert cost(objective("minimize"), 1.0) < cost(objective("minimize"), 2.0)
    assert cost(objective("maximize"), 2.0) < cost(objective("maximize"), 1.0)


# --- several objectives and constraints -------------------------------------------------------------------------------


def several(*terms: dict[str, object], constraints: tuple[dict[str, object], ...] = ()) -> ObjectiveSpec:
    """Return objectives with defaults."""
    document = an_experiment(objective={"objectives": list(terms), "constraints": list(constraints)})
    spec = with_defaults(Experiment.decode(document)).spec.objective
    assert spec is not None
    return spec


def read(**values: str) -> Observation:
    return Observation(metrics=tuple(Metric(name=n, min=v, max=v, latest=v) for n, v in values.items()))


ACCURATE = {"name": "accuracy", "type": "maximize"}
QUICK = {"name": "seconds", "type": "minimize"}


def test_each_of_several_objectives_costs_by_its_own_direction() -> None:
    assert objective_costs(several(ACCURATE, QUICK), read(accuracy="0.9", seconds="3")) == (-0.9, 3.0)


@pytest.mark.parametrize("seconds", [None, "nan", "inf", "unavailable", "fast"])
def test_a_trial_without_a_number_for_each_objective_is_not_compared(seconds: str | None) -> None:
    observation = read(accuracy="0.9") if seconds is None else read(accuracy="0.9", seconds=seconds)

    assert objective_costs(several(ACCURATE, QUICK), observation) is None


def test_an_objective_that_was_not_read_is_named() -> None:
    objective_, observation = several(ACCURATE, QUICK), read(accuracy="0.9")

    assert missing_objective(objective_, observation) == "seconds"


@pytest.mark.parametrize(
    ("accuracy_goal", "seconds_goal", "reached"),
    [
        pytest.param(0.9, 3, True, id="both"),
        pytest.param(0.9, 2, False, id="one of two"),
        pytest.param(0.9, None, True, id="the only one"),
        pytest.param(None, None, False, id="none is asked for"),
    ],
)
def test_goals_are_reached_by_one_trial_that_reaches_all(
    accuracy_goal: float | None, seconds_goal: float | None, *, reached: bool
) -> None:
    goals = [{} if goal is None else {"goal": goal} for goal in (accuracy_goal, seconds_goal)]

    assert reaches_goals(several({**ACCURATE, **goals[0]}, {**QUICK, **goals[1]}), (-0.9, 3.0)) is reached


@pytest.mark.parametrize(
    ("text", "holds"),
    [("10", True), ("30", True), ("30.1", False), ("9.9", False), ("nan", False), ("inf", False), (None, False)],
)
def test_constraints_hold_at_their_bounds_and_for_what_was_read(text: str | None, *, holds: bool) -> None:
    spec = several(ACCURATE, QUICK, constraints=({"metricName": "latency", "min": 10, "max": 30},))

    assert is_feasible(spec, read(accuracy="1") if text is None else read(accuracy="1", latency=text)) == holds


def test_without_constraints_every_trial_is_feasible() -> None:
    assert is_feasible(objective(), None)


def a_step(name: str, parent: str = "", *, state: str = "measured") -> CheckpointOwner:
    """Return a step of a population, named by its member and its number; or a trial of hyperband, without a number."""
    labels = {PARENT_LABEL: parent} if parent else {}
    if name[1:]:
        labels |= {MEMBER_LABEL: name[0], STEP_LABEL: name[1:]}
    return CheckpointOwner(name, labels, state != "running", state == "measured")


def test_a_trial_is_needed_until_what_continues_it_has_been_measured() -> None:
    assert unneeded([a_step("a0"), a_step("b0")]) == []
    assert unneeded([a_step("a0"), a_step("a1", "a0"), a_step("b0")]) == ["a0"]
    assert unneeded([a_step("a0"), a_step("a1", "a0", state="failed"), a_step("a2", "a0")]) == ["a0", "a1"]
    assert unneeded([a_step(f"a{i}") for i in range(11)]) == [f"a{i}" for i in range(10)]

    steps = [a_step("a0"), a_step("a1", "a0"), a_step("b0")]

    assert unneeded([*steps, a_step("b1", "a0", state="running")]) == []
    assert unneeded([*steps, a_step("b1", "a1", state="running")]) == ["a0"]

    steps = [a_step("a0"), a_step("a1", "a0"), a_step("b0"), a_step("b1", "a0", state="failed")]

    assert unneeded(steps) == []
    assert unneeded([*steps, a_step("b2", "a0")]) == ["a0", "b0", "b1"]

    assert unneeded([a_step("a"), a_step("b", "a", state="running"), a_step("c")]) == []
    assert unneeded([a_step("a"), a_step("b", "a", state="failed"), a_step("c")]) == []
    assert unneeded([a_step("a"), a_step("b", "a"), a_step("c")]) == ["a"]
