"""What early stopping saved, in one sentence."""

from __future__ import annotations

import pytest

from katib.api.types import Experiment
from katib.explaining.answer import saved_share, savings_sentence


@pytest.mark.parametrize(
    ("stopped", "complete", "share"),
    [
        pytest.param([4, 4], [10, 10], 12 / 40, id="the rest of what was stopped"),
        pytest.param([10, 12], [10, 10], 0.0, id="stopped at the end"),
        pytest.param([0], [10], 0.5, id="stopped before the first reading"),
        pytest.param([5], [10, 10, 1000], 5 / 1030, id="one long trial is not the usual one"),
    ],
)
def test_the_share_is_of_what_all_trials_would_have_reported(
    stopped: list[int], complete: list[int], share: float
) -> None:
    assert saved_share(stopped, complete, stopped=len(stopped), complete=len(complete)) == pytest.approx(share)


def test_a_sample_stands_for_all() -> None:
    assert saved_share([4], [10], stopped=200, complete=200) == pytest.approx(6 / 20)


@pytest.mark.parametrize(("stopped", "complete"), [([], [10]), ([4], []), ([0], [0])])
def test_nobody_knows_the_share_without_a_trial_of_each_kind(stopped: list[int], complete: list[int]) -> None:
    assert saved_share(stopped, complete, stopped=1, complete=1) is None


def experiment(stopped: int, succeeded: int, algorithm: str = "asha") -> Experiment:
    spec = {"earlyStopping": {"algorithmName": algorithm}} if algorithm else {}
    total = stopped + succeeded
    status = {"trials": total, "trialsEarlyStopped": stopped, "trialsSucceeded": succeeded}
    return Experiment.decode({"spec": spec, "status": status})


def test_the_sentence_counts_trials_and_readings() -> None:
    assert savings_sentence(experiment(14, 46), saved_share([4], [10], stopped=14, complete=46)) == (
        "Early stopping ended 14 of 60 trials and saved about 14% of the readings."
    )
    assert (
        savings_sentence(experiment(0, 60), saved_share([], [10], stopped=0, complete=60))
        == "Early stopping ended none of 60 trials."
    )


def test_without_early_stopping_or_before_the_first_end_there_is_nothing_to_say() -> None:
    assert savings_sentence(experiment(0, 60, algorithm=""), None) == ""
    assert savings_sentence(experiment(0, 0), None) == ""
