"""What `enas` tells the training, that it learns, and that a restarted service answers as the undisturbed one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from katib.wire.rpc._generated import api_pb2 as pb
from suggestion_services.enas.enas import NUMBER_LABEL
from tests.support.architectures import an_architecture_search, an_operation
from tests.support.suggestion import Assignments, Status, a_parameter, a_trial, served_apart, served_here

QUICK = {"controller_hidden_size": 8, "controller_train_steps": 5, "controller_learning_rate": 0.01}


def ended(
    points: Sequence[Assignments], reward: Callable[[Assignments], object], *, condition: int = Status.SUCCEEDED
) -> list[pb.Trial]:
    """Return trials as the controllers would send them."""
    trials = []
    for k, point in enumerate(points):
        trial = a_trial(f"t{(k * 37) % 1000:03}", point, reward(point), condition)  # names are not in this order
        trial.spec.labels[NUMBER_LABEL] = str(k)
        trials.append(trial)
    return trials


def a_reward(point: Assignments) -> float:
    return float(sum(map(sum, json.loads(point["architecture"]))))


def share_of_first_operation(points: Sequence[Assignments]) -> float:
    layers = [layer[0] for point in points for layer in json.loads(point["architecture"])]
    return Counter(layers)[0] / len(layers)


def test_an_architecture_and_its_network_are_told_as_the_training_reads_them() -> None:
    operations = [
        an_operation(
            "convolution",
            a_parameter("filter_size", pb.CATEGORICAL, list=["3", "5"]),
            a_parameter("stride", pb.CATEGORICAL, list=["1"]),
        ),
        an_operation(
            "reduction",
            a_parameter("reduction_type", pb.CATEGORICAL, list=["max_pooling"]),
            a_parameter("pool_size", pb.INT, min="2", max="3", step="1"),
            a_parameter("rate", pb.DOUBLE, min="0.1", max="0.35", step="0.1"),
        ),
    ]
    experiment = an_architecture_search(operations=operations, layers=1, settings={"random_state": 1})
    with served_here("enas") as service:
        points = service.ask(experiment, count=200)

    last = next(point for point in points if point["architecture"] == "[[7]]")
    assert list(last) == ["architecture", "nn_config"]
    assert last["nn_config"] == (
        "{'num_layers': 1, 'input_sizes': [32, 32, 3], 'output_sizes': [10], 'embedding': {'7': {'opt_id': 7, "
        "'opt_type': 'reduction', 'opt_params': {'reduction_type': 'max_pooling', 'pool_size': 3, 'rate': 0.3}}}}"
    )
    parts: dict[str, object] = {}
    for point in points:
        parts |= json.loads(point["nn_config"].replace("'", '"'))["embedding"]
    assert sorted(parts) == list("01234567")
    assert parts["1"] == {"opt_id": 1, "opt_type": "convolution", "opt_params": {"filter_size": "5", "stride": "1"}}
    assert parts["2"] == {
        "opt_id": 2,
        "opt_type": "reduction",
        "opt_params": {"reduction_type": "max_pooling", "pool_size": 2, "rate": 0.1},
    }


def test_an_architecture_of_three_layers_literally() -> None:
    experiment = an_architecture_search(operations=[an_operation("convolution")], settings={"random_state": 1})
    with served_here("enas") as service:
        texts = {point["architecture"] for point in service.ask(experiment, count=100)}

    assert texts == {f"[[0], [0, {a}], [0, {b}, {c}]]" for a in (0, 1) for b in (0, 1) for c in (0, 1)}


@pytest.mark.parametrize("maximize", [True, False])
def test_an_operation_that_is_rewarded_becomes_frequent(*, maximize: bool) -> None:
    settings = {"random_state": 3, "controller_learning_rate": 0.003, "controller_temperature": 1, "seed": 3}
    experiment = an_architecture_search(layers=2, settings=settings, maximize=maximize)
    trials: list[pb.Trial] = []
    sign = 1 if maximize else -1

    def reward(point: Assignments) -> float:
        return sign * share_of_first_operation([point])

    with served_here("enas") as service:
        before = share_of_first_operation(service.ask(experiment, count=100, first=1000))
        points: list[Assignments] = []
        for _ in range(20):
            points += service.ask(experiment, trials, count=2)
            trials = ended(points, reward)
        after = share_of_first_operation(service.ask(experiment, trials, count=100, first=1000))

    assert abs(before - 0.5) < 0.1
    assert after > 0.8


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="seeded-by-name"),
        pytest.param({"random_state": 7}, id="seeded"),
        pytest.param(
            dict.fromkeys(
                (
                    "controller_temperature",
                    "controller_tanh_const",
                    "controller_entropy_weight",
                    "controller_skip_weight",
                ),
                "None",
            ),
            id="turned-off",
        ),
    ],
)
def test_a_restarted_service_answers_as_the_undisturbed_one(tmp_path: Path, settings: dict[str, object]) -> None:
    experiment = an_architecture_search(settings={**QUICK, **settings})
    with served_here("enas") as service:
        points: list[Assignments] = []
        for k in range(6):  # the last ones end out of order: each request has one pending trial before a finished one
            trials = ended(points, a_reward)
            if trials:
                trials[-min(k, 2)] = a_trial("t999", points[-min(k, 2)], condition=Status.RUNNING)
            points += service.ask(experiment, trials, count=3)
        trials = ended(points, a_reward)
        undisturbed = service.ask(experiment, trials, count=4)
    with served_apart("enas", tmp_path) as service:
        restarted = service.ask(experiment, trials, count=4)
        shuffled = service.ask(experiment, trials[::-1], count=4)

    assert undisturbed == restarted == shuffled
    assert len({point["architecture"] for point in undisturbed}) > 1


def test_more_old_states_than_are_kept_are_learned_anew() -> None:
    experiment = an_architecture_search(settings=QUICK)
    with served_here("enas") as service:
        trials = ended(service.ask(experiment, count=40), a_reward)
        whole = service.ask(experiment, trials, count=2)
        beginning = service.ask(experiment, trials[:3], count=2)
        again = service.ask(experiment, trials, count=2)
    with served_here("enas") as service:
        fresh = service.ask(experiment, trials[:3], count=2)

    assert whole == again
    assert beginning == fresh


@pytest.mark.parametrize("condition", [Status.FAILED, Status.KILLED, Status.RUNNING, Status.METRICSUNAVAILABLE])
def test_there_are_suggestions_while_no_trial_has_succeeded(condition: int) -> None:
    experiment = an_architecture_search(settings=QUICK)
    with served_here("enas") as service:
        points = service.ask(experiment, count=3)

        assert len(service.ask(experiment, ended(points, lambda _: None, condition=condition), count=2)) == 2


def test_failed_trials_make_what_they_tried_rare() -> None:
    settings = {"random_state": 3, "controller_learning_rate": 0.005, "controller_temperature": 1}
    experiment = an_architecture_search(layers=1, settings=settings)
    with served_here("enas") as service:
        points = service.ask(experiment, count=30)
        good = [i for i, point in enumerate(points) if point["architecture"] == "[[0]]"]
        trials = [
            a_trial(
                f"t{i:02}",
                point,
                0.5 + i / 100 if i in good else None,
                Status.SUCCEEDED if i in good else Status.FAILED,
            )
            for i, point in enumerate(points)
        ]
        after = service.ask(experiment, trials, count=200, first=1000)

    assert share_of_first_operation(after) > 0.6


def test_trials_that_are_not_of_this_search_are_passed_over() -> None:
    experiment = an_architecture_search(settings=QUICK)
    odd = ["", "[]", "{", "[[0], [0, 2], [0, 0, 0]]", "[[9], [0, 1], [0, 0, 0]]", "[[0], [0], [0]]", "[[true], 1, 2]"]
    with served_here("enas") as service:
        trials = [a_trial(f"t{i}", {"architecture": text}, 1.0) for i, text in enumerate(odd)]
        trials.append(a_trial("u", {}, 1.0))

        assert service.ask(experiment, trials, count=3, first=0) == service.ask(experiment, count=3)


def test_suggestions_carry_their_number() -> None:
    with served_here("enas") as service:
        service.ask(an_architecture_search(), count=2, first=5)

    assert service.labels == [{NUMBER_LABEL: "5"}, {NUMBER_LABEL: "6"}]
