"""Tables, and how a search space is made of values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from katib.errors import InvalidError
from katib.service.histories.reading import read_source
from katib.service.histories.records import ImportedTrials, history_of
from tests.support.golden import Golden
from tests.support.refusals import refused

RUNS = """Name,State,lr,layers,opt,seed,loss,note
a,finished,0.001,2,adam,1,0.5,x
b,crashed,0.1,4,sgd,1,,y
c,finished,0.01,3,adam,1,0.25,z
d,running,0.01,3,adam,1,,z
"""


def history(path: Path, names: tuple[str, ...], given: list[dict[str, Any]] | None = None) -> ImportedTrials:
    entries = [{"name": name} for name in names] if given is None else given
    objectives = {"loss": "minimize"}
    source = read_source(str(path), study="", objectives=objectives, parameters=[one["name"] for one in entries])
    return history_of(source, objectives, entries, str(path))


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    path = tmp_path / "runs.csv"
    path.write_text(RUNS.replace("State", "state").replace("Name", "name"))
    return path


def test_a_space_is_made_of_the_values_of_named_columns(runs: Path) -> None:
    found = history(runs, ("lr", "layers", "opt"))

    assert {one["name"]: (one["parameterType"], one["feasibleSpace"]) for one in found.spec["parameters"]} == {
        "lr": ("double", {"min": "0.001", "max": "0.1", "distribution": "logUniform"}),
        "layers": ("int", {"min": "2", "max": "4"}),
        "opt": ("categorical", {"list": ["adam", "sgd"]}),
    }
    assert {one.id: (one.values, one.failure) for one in found.trials} == {
        "a": ({"loss": "0.5"}, None),
        "b": ({}, "its state is crashed"),
        "c": ({"loss": "0.25"}, None),
    }


def test_the_bounds_of_the_user_count_and_what_lies_outside_is_left_out(runs: Path, golden: Golden) -> None:
    space = {"name": "lr", "parameterType": "double", "feasibleSpace": {"min": "0.0001", "max": "0.05"}}
    found = history(runs, (), [space])

    assert [one.id for one in found.trials] == ["a", "c"]
    golden(found.left_out)
    assert found.trials[0].assignments == {"lr": "0.001"}


def test_columns_of_optunas_data_frame_are_known(tmp_path: Path) -> None:
    path = tmp_path / "frame.csv"
    path.write_text(
        "number,value,loss,datetime_start,datetime_complete,params_x,params_fixed,state\n"
        "0,1,0.5,2024-05-01 12:00:00,2024-05-01 12:01:00,0.5,1,COMPLETE\n"
        "1,1,0.4,2024-05-01 12:00:00,2024-05-01 12:02:00,1.5,1,PRUNED\n"
    )
    found = history(path, ())

    assert [one["name"] for one in found.spec["parameters"]] == ["x"]
    assert [one.stopped for one in found.trials] == [False, True]
    assert [(one.ended - one.began).total_seconds() for one in found.trials] == [60, 120]


@pytest.mark.parametrize(
    ("names", "words"),
    [((), r"its trials have no parameters that differ; name them with -p NAME"), (("lrr",), r"no trial fits: a: lrr")],
    ids=["no parameters", "another name"],
)
def test_what_is_missing_is_said(runs: Path, names: tuple[str, ...], words: str) -> None:
    with pytest.raises(InvalidError, match=words):
        history(runs, names)


def test_the_metric_has_to_be_named(runs: Path) -> None:
    source = read_source(str(runs), study="", objectives=(), parameters=["lr"])

    with refused("import-objective"):
        history_of(source, {}, [{"name": "lr"}], str(runs))
