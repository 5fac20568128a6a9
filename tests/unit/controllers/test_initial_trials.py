"""Trials that no algorithm proposed: which come first, what they count against, what a service hears of them."""

from __future__ import annotations

from typing import Any

import pytest

from katib.engine.controllers.kinds import SUGGESTION
from katib.engine.controllers.ports import SuggestionsReply
from katib.engine.runtime.objects import Key
from katib.errors import ConflictError, InvalidError, NotFoundError, UnavailableError
from katib.model.names import BY_DEFAULT, BY_USER, CHOSEN_BY_LABEL
from katib.model.space import first_trials
from katib.model.types import Experiment, ParameterAssignment, TrialAssignment
from katib.service.tuning.adding import add_trial
from tests.support.controllers import NAMESPACE, FakeServices, JobEnd, World, a_reply, new_store
from tests.support.experiments import an_experiment
from tests.support.faulty_store import Call, FaultyStore
from tests.support.golden import Golden
from tests.support.refusals import refused
from tests.support.waiting import eventually

DEMO = Key(NAMESPACE, "demo")


def chosen(*values: str) -> list[dict[str, Any]]:
    return [{"parameterAssignments": [{"name": "lr", "value": value}]} for value in values]


def by_hand(world: World) -> list[str]:
    return sorted(
        trial.spec.parameter_assignments[0].value
        for trial in world.trials()
        if trial.metadata.labels.get(CHOSEN_BY_LABEL) == BY_USER
    )


def test_initial_trials_run_first_and_count_against_the_budget() -> None:
    with World() as world:
        world.submit(an_experiment(initialTrials=chosen("0.05", "0.06", "0.07"), maxTrialCount=5))
        experiment = world.ended()

        assert by_hand(world) == ["0.05", "0.06", "0.07"]
        assert experiment.status.trials == 5
        assert world.suggestion().status.initial_trials_given == 3


def test_a_service_counts_only_its_own_assignments() -> None:
    with World() as world:
        world.submit(an_experiment(initialTrials=chosen("0.05", "0.06"), maxTrialCount=5, parallelTrialCount=5))
        world.ended()

        assert [(wanted, total) for wanted, total, _ in world.services.requests] == [(3, 3)]
        assert "0.010" in [trial.spec.parameter_assignments[0].value for trial in world.trials()]


def test_a_service_sees_initial_trials_in_the_history() -> None:
    with World() as world:
        world.submit(an_experiment(initialTrials=chosen("0.05", "0.06"), maxTrialCount=4, parallelTrialCount=2))
        world.ended()

        assert world.services.requests[0][2] == 2


def test_an_experiment_of_nothing_but_initial_trials_asks_no_service() -> None:
    with World() as world:
        world.submit(an_experiment(initialTrials=chosen("0.05", "0.06"), maxTrialCount=2))
        world.ended()

        assert world.services.requests == []


def test_a_trial_that_is_added_runs_before_the_next_of_the_service() -> None:
    def end(trial: Any) -> JobEnd:
        return JobEnd(ends=trial.spec.parameter_assignments[0].value != "0.010")

    with World(script=end) as world:
        world.submit(an_experiment(maxTrialCount=4, parallelTrialCount=1))
        eventually(lambda: len(world.trials()) == 1)
        assert add_trial(world.store, DEMO, {"lr": "0.09"}) == 0
        assert add_trial(world.store, DEMO, {"lr": "0.08"}) == 1
        world.finish_jobs()
        world.ended()

        assert by_hand(world) == ["0.08", "0.09"]
        assert world.suggestion().status.suggestion_count == 4


def test_a_trial_can_be_added_when_the_search_space_is_used_up() -> None:
    services = FakeServices(answer=lambda first, _count: SuggestionsReply(a_reply(first, 1).assignments, (), True))
    with World(script=lambda _trial: JobEnd(ends=False), services=services) as world:
        world.submit(an_experiment(maxTrialCount=9, parallelTrialCount=2))
        eventually(lambda: len(world.trials()) == 1)
        add_trial(world.store, DEMO, {"lr": "0.09"})
        eventually(lambda: by_hand(world) == ["0.09"])
        world.finish_jobs()

        assert world.ended().status.trials == 2


def test_two_that_add_at_once_lose_nothing() -> None:
    store = new_store()
    busy = [ConflictError("written"), ConflictError("written")]

    def conflict(call: Call) -> BaseException | None:
        return busy.pop() if busy and call.before and (call.verb, call.kind) == ("patch", SUGGESTION) else None

    with World(store, script=lambda _trial: JobEnd(ends=False)) as world:
        world.submit(an_experiment(maxTrialCount=4, parallelTrialCount=1))
        eventually(lambda: len(world.trials()) == 1)
        add_trial(FaultyStore(store, conflict), DEMO, {"lr": "0.09"})

        assert len(world.suggestion().spec.initial_trials) == 1
        world.finish_jobs()
        world.ended()


REFUSED = {"unknown parameter": {"lrr": "0.05"}, "no value": {}, "outside": {"lr": "5"}, "no number": {"lr": "much"}}


@pytest.mark.parametrize("assignments", REFUSED.values(), ids=REFUSED)
def test_what_is_no_point_of_the_space_is_refused(assignments: dict[str, str], golden: Golden) -> None:
    with World(script=lambda _trial: JobEnd(ends=False)) as world:
        world.submit(an_experiment())
        eventually(lambda: len(world.trials()) == 2)
        with golden.raises(InvalidError):
            add_trial(world.store, DEMO, assignments)

        assert world.suggestion().spec.initial_trials == ()


def test_there_has_to_be_room_in_the_budget() -> None:
    with World(script=lambda _trial: JobEnd(ends=False)) as world:
        world.submit(an_experiment(maxTrialCount=2, parallelTrialCount=2))
        eventually(lambda: len(world.trials()) == 2)

        with refused("add-trial-budget"):
            add_trial(world.store, DEMO, {"lr": "0.09"})


def test_an_experiment_that_has_ended_takes_no_trial() -> None:
    with World() as world:
        world.submit(an_experiment())
        world.ended()

        with refused("add-trial-ended"):
            add_trial(world.store, DEMO, {"lr": "0.09"})


def test_an_experiment_that_is_not_there_or_has_not_started_says_so() -> None:
    store = new_store()
    with pytest.raises(NotFoundError):
        add_trial(store, DEMO, {"lr": "0.09"})
    store.create(an_experiment())

    with pytest.raises(UnavailableError, match="has not started yet"):
        add_trial(store, DEMO, {"lr": "0.09"})


def with_defaults_of(**defaults: str) -> dict[str, Any]:
    space = {
        "lr": {"parameterType": "double", "feasibleSpace": {"min": "0.0001", "max": "1", "distribution": "logUniform"}},
        "opt": {"parameterType": "categorical", "feasibleSpace": {"list": ["adam", "sgd", "lion"]}},
    }
    parameters = [
        {"name": name, **spec, **({"default": defaults[name]} if name in defaults else {})}
        for name, spec in space.items()
    ]
    return an_experiment(parameters=parameters, maxTrialCount=2, maxFailedTrialCount=1, parallelTrialCount=1)


@pytest.mark.parametrize(
    ("defaults", "first"),
    [
        ({"lr": "3e-4", "opt": "sgd"}, {"lr": "3e-4", "opt": "sgd"}),
        ({"lr": "3e-4"}, {"lr": "3e-4", "opt": "adam"}),
        ({"opt": "lion"}, {"lr": "0.01", "opt": "lion"}),
    ],
    ids=["all given", "the first choice", "the middle of a range"],
)
def test_the_first_trial_has_the_defaults_as_written(defaults: dict[str, str], first: dict[str, str]) -> None:
    (trial,) = first_trials(Experiment.decode(with_defaults_of(**defaults)).spec)

    found = {a.name: a.value for a in trial.parameter_assignments}
    assert {**found, "lr": float(found["lr"])} == pytest.approx({**first, "lr": float(first["lr"])})
    assert all(found[name] == text for name, text in defaults.items())


@pytest.mark.parametrize(("r_l", "epochs"), [("27", "27"), ("81", "14")], ids=["in the range", "beyond it"])
def test_the_trial_of_the_defaults_is_a_whole_training(r_l: str, epochs: str) -> None:
    document = with_defaults_of(lr="3e-4")
    spec = document["spec"]
    spec["parameters"].append({"name": "epochs", "parameterType": "int", "feasibleSpace": {"min": "1", "max": "27"}})
    settings = [{"name": "resource_name", "value": "epochs"}, {"name": "r_l", "value": r_l}]
    spec["algorithm"] = {"algorithmName": "asha", "algorithmSettings": settings}
    (trial,) = first_trials(Experiment.decode(document).spec)

    assert {a.name: a.value for a in trial.parameter_assignments}["epochs"] == epochs


def test_the_trial_of_the_defaults_runs_once_and_is_labelled() -> None:
    with World() as world:
        document = an_experiment(initialTrials=chosen("0.05", "0.03"), maxTrialCount=4, parallelTrialCount=1)
        document["spec"]["parameters"][0]["default"] = "0.03"
        world.submit(document)
        world.ended()

        chosen_by = {
            trial.spec.parameter_assignments[0].value: trial.metadata.labels.get(CHOSEN_BY_LABEL)
            for trial in world.trials()
        }
        assert {value: label for value, label in chosen_by.items() if label} == {"0.03": BY_DEFAULT, "0.05": BY_USER}
        assert world.suggestion().status.initial_trials_given == 2


def test_the_status_compares_the_best_trial_with_that_of_the_defaults() -> None:
    with World() as world:
        document = an_experiment(maxTrialCount=3, parallelTrialCount=1)
        document["spec"]["parameters"][0]["default"] = "0.03"
        world.submit(document)

        found = world.ended().status.default_trial
        assert found is not None
        assert [a.value for a in found.parameter_assignments] == ["0.03"]
        assert found.state == "Succeeded"
        assert "your configuration" in found.comparison


def test_suggestions_that_violate_a_constraint_are_asked_for_again() -> None:
    """A service of another vendor does not know constraints: here only every tenth suggestion satisfies this one."""

    def answer(first: int, count: int) -> SuggestionsReply:
        values = [0.09 if (first + i) % 10 == 9 else 0.01 + 0.0001 * (first + i) for i in range(count)]
        pairs = [(ParameterAssignment(name="lr", value=f"{value:.4f}"),) for value in values]
        return SuggestionsReply(tuple(TrialAssignment(parameter_assignments=pair) for pair in pairs))

    with World(services=FakeServices(answer=answer)) as world:
        world.submit(an_experiment(parameterConstraints=["lr >= 0.05"], maxTrialCount=3, parallelTrialCount=1))
        experiment = world.ended()

        values = [trial.spec.parameter_assignments[0].value for trial in world.trials()]
        assert (experiment.status.trials_succeeded, values) == (3, ["0.0900"] * 3)


def test_a_service_that_always_violates_a_constraint_is_given_up() -> None:
    def answer(_first: int, count: int) -> SuggestionsReply:
        pair = (ParameterAssignment(name="lr", value="0.02"),)
        return SuggestionsReply((TrialAssignment(parameter_assignments=pair),) * count)

    with World(services=FakeServices(answer=answer)) as world:
        world.submit(an_experiment(parameterConstraints=["lr >= 0.05"], maxTrialCount=3, parallelTrialCount=1))

        message = world.ended().status.conditions[-1].message
        assert "violate spec.parameterConstraints" in message
        assert "lr >= 0.05" in message


def test_without_defaults_there_is_no_comparison() -> None:
    with World() as world:
        world.submit(an_experiment(maxTrialCount=2, parallelTrialCount=1))

        assert world.ended().status.default_trial is None
