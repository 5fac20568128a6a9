"""Errors of `katib.tune` name its arguments, not the fields of an experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import katib
from katib.errors import InvalidError

LR = {"lr": katib.search.double(0, 1)}


def refused(directory: Path, parameters: Any, **options: Any) -> list[str]:
    with pytest.raises(InvalidError) as caught:
        katib.tune(lambda **_: 0, parameters, data_dir=directory, verbose=False, **options)
    return [str(error) for error in caught.value.errors]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        pytest.param(
            {"lr": (0.1, 1)},
            'parameters["lr"]: (0.1, 1) is not a search space; write katib.search.double(0.1, 1)',
            id="tuple",
        ),
        pytest.param(
            {"n": (1, 4)},
            'parameters["n"]: (1, 4) is not a search space; write katib.search.int(1, 4)',
            id="whole tuple",
        ),
        pytest.param(
            {"n": range(0, 9, 3)},
            'parameters["n"]: range(0, 9, 3) is not a search space; write katib.search.int(0, 6, step=3)',
            id="range",
        ),
        pytest.param(
            {"act": ["relu", "tanh"]},
            "parameters[\"act\"]: ['relu', 'tanh'] is not a search space; "
            "write katib.search.categorical(['relu', 'tanh'])",
            id="list",
        ),
        pytest.param(
            {**LR, "betas": (0.9, 0.999)},
            'parameters["betas"]: (0.9, 0.999) is not a search space; write katib.search.double(0.9, 0.999); '
            "for a constant, use functools.partial on the function",
            id="tuple beside a space",
        ),
        pytest.param(
            {"lr": 0.1},
            "parameters: nothing in it is searched; "
            "use katib.search.double, int, categorical or discrete for at least one",
            id="constants",
        ),
        pytest.param(
            [1],
            'parameters: list is not a mapping; write {"lr": katib.search.double(1e-4, 1e-1, log=True)}',
            id="no mapping",
        ),
        pytest.param(
            {"lr": katib.search.double(10, 1)},
            'parameters["lr"].min: 10 is above max 1; swap the bounds or raise max',
            id="bounds",
        ),
        pytest.param(
            {**LR, "m": katib.search.int(1, 2).when("zz", 1)},
            'parameters["m"].when: "zz" is not a parameter of the search space; use lr',
            id="condition",
        ),
    ],
)
def test_a_wrong_search_space(parameters: Any, message: str, tmp_path: Path) -> None:
    assert refused(tmp_path, parameters) == [message]


@pytest.mark.parametrize(
    ("options", "begins"),
    [
        pytest.param({"direction": "max"}, 'direction: "max" is not a direction', id="direction"),
        pytest.param({"goal": "high"}, 'goal: "high" is not a number', id="goal"),
        pytest.param({"max_trials": 0}, "max_trials: 0 is not above 0", id="max_trials"),
        pytest.param({"max_trials": "x"}, "max_trials: 'x' is not a whole number", id="max_trials type"),
        pytest.param({"parallel": -1}, "parallel: -1 is not above 0", id="parallel"),
        pytest.param({"max_failed": -1}, "max_failed: -1 is negative", id="max_failed"),
        pytest.param({"algorithm": "foo"}, 'algorithm: "foo" is unknown', id="algorithm"),
        pytest.param({"algorithm": "tpe", "settings": {"n": 1}}, 'settings["n"]: "n" is not a setting', id="settings"),
        pytest.param({"early_stopping": "foo"}, 'early_stopping: "foo" is unknown', id="early_stopping"),
        pytest.param({"objectives": {"a": "max"}}, 'objectives["a"]: "max" is not a direction', id="objectives"),
        pytest.param({"constraints": {"a": (2, 1)}}, 'constraints["a"]: 2 is above max 1', id="constraints"),
        pytest.param({"constraints": {"a": 3}}, 'constraints["a"]: 3 is not a pair; write (None, 3)', id="constraint"),
        pytest.param({"initial_trials": [{"lr": 7}]}, "initial_trials[0]: lr: 7 is not between", id="initial_trials"),
        pytest.param({"warm_start": ["nope"]}, 'warm_start: there is no experiment "nope"', id="warm_start"),
        pytest.param({"warm_start": "nope"}, "warm_start: 'nope' is one text; write ['nope']", id="warm_start text"),
        pytest.param({"name": "A_b"}, 'name: "A_b" is not a DNS label', id="name"),
    ],
)
def test_a_wrong_option(options: dict[str, Any], begins: str, tmp_path: Path) -> None:
    (message,) = refused(tmp_path, LR, **options)

    assert message.startswith(begins)
    assert "spec." not in message
