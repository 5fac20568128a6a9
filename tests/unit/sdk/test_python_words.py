"""Errors of `katib.tune` name its arguments, not the fields of an experiment."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from optuna.distributions import FloatDistribution
from scipy import stats

import katib
from katib.errors import CallError, InvalidError, KatibError, NotFoundError, TerminalError, invalid
from katib.sdk.results import TrialResult, TuneResult
from katib.service.drafting import foreign_words
from katib.service.drafting.argument_words import python_words
from tests.support.golden import Golden

LR = {"lr": katib.search.double(0, 1)}


def refused(directory: Path, parameters: Any, **options: Any) -> list[str]:
    with pytest.raises(InvalidError) as caught:
        katib.tune(lambda **_: 0, parameters, data_dir=directory, verbose=False, **options)
    return [str(error) for error in caught.value.errors]


@pytest.mark.parametrize(
    "parameters",
    [
        pytest.param({"lr": (0.1, 1)}, id="tuple"),
        pytest.param({"n": (1, 4)}, id="whole tuple"),
        pytest.param({"lr": (0.1, 0.001)}, id="tuple the wrong way round"),
        pytest.param({"lr": (0.001, 0.1, "log-uniform")}, id="tuple with a scale"),
        pytest.param({"n": range(0, 9, 3)}, id="range"),
        pytest.param({"act": ["relu", "tanh"]}, id="list"),
        pytest.param({**LR, "betas": (0.9, 0.999)}, id="tuple beside a space"),
        pytest.param({**LR, "opt": LR}, id="nested"),
        pytest.param({**LR, "x": FloatDistribution(0, 1)}, id="distribution of Optuna"),
        pytest.param({**LR, "opt": {"grid_search": ["a", "b"]}}, id="grid of Ray Tune"),
        pytest.param({3: LR["lr"]}, id="number as a name"),
        pytest.param({"lr": 0.1}, id="constants"),
        pytest.param([1], id="no mapping"),
        pytest.param({"lr": katib.search.double(10, 1)}, id="bounds"),
        pytest.param({**LR, "m": katib.search.int(1, 2).when("zz", 1)}, id="condition"),
    ],
)
def test_a_wrong_search_space(parameters: Any, golden: Golden, tmp_path: Path) -> None:
    golden(refused(tmp_path, parameters))


def test_the_storage_of_a_study_is_no_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cause = "data_dir: 'sqlite:///a.db' is a URL; name a directory; it needs no database"
    with pytest.raises(InvalidError, match=re.escape(cause)):
        katib.tune(lambda lr: lr, LR, data_dir="sqlite:///a.db")
    with pytest.raises(InvalidError, match=re.escape(cause)):
        katib.create("mine", LR, data_dir="sqlite:///a.db")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "begins"),
    [
        pytest.param({"direction": ["minimize"] * 2}, "direction: ['minimize', 'minimize'] is for several", id="list"),
        pytest.param({"direction": "max"}, 'direction: "max" is not a direction', id="direction"),
        pytest.param({"goal": "high"}, 'goal: "high" is not a number', id="goal"),
        pytest.param({"max_trials": None}, "max_trials: None is not a whole number", id="max_trials none"),
        pytest.param({"algorithm": Path()}, "algorithm: PosixPath is not a text; write its name, such", id="sampler"),
        pytest.param({"initial_trials": {"lr": 0.5}}, "initial_trials: {'lr': 0.5} is one trial", id="one trial"),
        pytest.param({"initial_trials": [0.5]}, "initial_trials: [0.5] has no names of parameters", id="a number"),
        pytest.param({"objectives": ["a"]}, "objectives: ['a'] is not a mapping; write {\"loss\": ", id="a list"),
        pytest.param({"settings": [1]}, "settings: [1] is not a mapping; write {", id="list of settings"),
        pytest.param({"constraints": [1]}, "constraints: [1] is not a mapping; write {", id="list of constraints"),
        pytest.param({"preload": True}, "preload: True is not a list; write the names, [...]", id="preload"),
        pytest.param({"max_trials": 0, "parallel": 2}, "max_trials: 0 is not above 0", id="max_trials beside parallel"),
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


def test_arguments_of_other_libraries_are_refused_with_ours(tmp_path: Path, golden: Golden) -> None:
    tune: Any = katib.tune
    with pytest.raises(TypeError) as caught:
        tune(lambda **_: 0, LR, data_dir=tmp_path, n_trials=3, study_name="a", max_trails=3)

    golden(caught.value)
    assert not list(tmp_path.iterdir())


def test_every_remedy_of_the_table_is_an_argument_that_there_is() -> None:
    for call in (katib.tune, katib.create, katib.search.double, katib.search.int, katib.search.categorical):
        arguments = inspect.signature(call).parameters
        words = foreign_words._WORDS[f"{call.__name__}()"]
        remedies = {remedy: re.split(r"[=, ]", remedy)[0] for remedy in words if remedy.isidentifier()}

        assert remedies
        assert not set(" ".join(words.values()).split()) & set(arguments), "a name of ours never gets there"
        assert set(remedies.values()) <= {*arguments, "function", "parallel", "verbose"}, call.__name__


@pytest.mark.parametrize(
    ("asked", "name", "remedy"),
    [
        pytest.param(katib, "create_study", "use katib.tune(function, parameters), or katib.create", id="study"),
        pytest.param(katib, "uniform", "use katib.search.double(min, max)", id="space"),
        pytest.param(katib, "tunes", "did you mean tune?", id="almost"),
        pytest.param(katib.search, "choice", "use katib.search.categorical([...])", id="search"),
        pytest.param(TrialResult("a", "Failed", {}, None), "params", "use trial.parameters", id="trial"),
        pytest.param(TuneResult("a", "", {}, ()), "best_params", "use result.best.parameters", id="result"),
        pytest.param(TuneResult("a", "", {}, ()), "datafram", "did you mean dataframe?", id="almost, of a result"),
    ],
)
def test_names_of_other_libraries_are_answered_with_ours(asked: Any, name: str, remedy: str, golden: Golden) -> None:
    with golden.raises(AttributeError):
        getattr(asked, name)


def test_an_option_of_the_space_by_another_name_is_refused_with_ours(golden: Golden) -> None:
    double: Any = katib.search.double
    with golden.raises(TypeError):
        double(low=0, high=1)
    with pytest.raises(InvalidError):
        katib.search.categorical("abc")


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda search: search.double(0.1, 1, True), id="scale without its name"),
        pytest.param(lambda search: search.categorical("a", "b"), id="choices one by one"),
        pytest.param(lambda search: search.categorical(3), id="one choice"),
        pytest.param(lambda search: search.categorical(stats.uniform(0, 1)), id="distribution"),
    ],
)
def test_a_parameter_that_is_written_as_elsewhere_is_refused_with_how_to(
    call: Callable[[Any], object], golden: Golden
) -> None:
    with pytest.raises(KatibError) as caught:
        call(katib.search)

    golden(caught.value)


def test_whole_numbers_may_be_written_as_others_and_be_of_numpy(tmp_path: Path) -> None:
    assert katib.search.int(1.0, 1e3, step=2.0) == katib.search.int(1, 1000, step=2)  # type: ignore[arg-type]
    numbers: dict[str, Any] = {"max_trials": np.int64(3), "goal": np.float32(0.5)}
    with katib.create("mine", LR, **numbers, data_dir=tmp_path, algorithm="random") as experiment:
        trial = experiment.ask()
        assert trial is not None
        trial.tell(0.25)
        assert experiment.result().best.value == 0.25


def test_choices_without_a_text_of_their_own_are_the_same_in_each_process() -> None:
    class Net:
        pass

    space = katib.search.categorical([Net(), Net(), inspect.signature, lambda: 0])

    assert space.space == {"list": ["Net", "Net-2", "signature", "<lambda>"]}
    assert space.value("signature") is inspect.signature


def test_an_error_leaves_a_call_without_the_lines_of_ours_that_led_to_it(tmp_path: Path) -> None:
    with pytest.raises(InvalidError) as caught:
        katib.tune(lambda lr: lr, {"lr": katib.search.double(2, 1)}, data_dir=tmp_path)
    with pytest.raises(CallError) as refused:
        katib.tune("train.py", LR, data_dir=tmp_path)  # type: ignore[arg-type]

    assert [len(traceback.extract_tb(one.tb)) for one in (caught, refused)] == [2, 2]


def test_a_result_with_its_own_words_is_copied_and_pickled_as_before() -> None:
    result = TuneResult("a", "", {"loss": "minimize"}, (TrialResult("b", "Failed", {}, None),))

    assert pickle.loads(pickle.dumps(result)) == result == copy.deepcopy(result)
    assert "best_params" not in dir(result)


def test_errors_of_a_data_directory_name_the_argument(tmp_path: Path, golden: Golden) -> None:
    (file := tmp_path / "file").touch()
    (empty := tmp_path / "empty").mkdir()

    with golden.raises(TerminalError):
        katib.tune(lambda x: x, {"x": katib.search.double(0, 1)}, data_dir=file)
    with golden.raises(NotFoundError):
        katib.open("mine", data_dir=empty)
    with pytest.raises(InvalidError), python_words():
        raise invalid("--data-dir", "it is read only", "start `katib serve --data-dir here`", "read-only")
