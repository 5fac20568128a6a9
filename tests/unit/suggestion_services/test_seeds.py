"""The seed of a search, under both of its names, for every algorithm."""

from __future__ import annotations

import pytest

from katib.model.algorithms import AlgorithmInfo, check_settings
from katib.model.types import AlgorithmSetting
from suggestion_services.algorithms import ENTRIES
from suggestion_services.base.settings import read_settings
from tests.support.golden import Golden
from tests.support.refusals import refused

SEARCHES = [entry.info for entry in ENTRIES if not entry.info.early_stopping]


def settings(**values: object) -> list[AlgorithmSetting]:
    return [AlgorithmSetting(name=name, value=str(value)) for name, value in values.items()]


@pytest.mark.parametrize("info", SEARCHES, ids=lambda info: info.name)
def test_every_algorithm_has_a_seed(info: AlgorithmInfo) -> None:
    assert [spec.name for spec in info.settings or () if spec.name == "seed"] == ["seed"]
    assert {error.origin for error in check_settings(info, settings(seed=3), "s")} <= {"setting-missing"}
    assert read_settings(info, settings(seed=3)).get("seed") == 3


def test_two_seeds_that_differ_are_refused_in_both_places(golden: Golden) -> None:
    info, both = SEARCHES[0], settings(seed=3, random_state=4)

    golden(check_settings(info, both, "spec.algorithm.algorithmSettings"))
    with refused("setting-conflict"):
        read_settings(info, both)


def test_the_same_seed_twice_is_no_contradiction() -> None:
    assert check_settings(SEARCHES[0], settings(seed=3, random_state=3), "s") == []
