"""What templates do to text."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from katib.api.marks import Marks
from katib.api.types import TrialState
from katib.tuning.service import Diagnosis
from katib.ui.rendering import fragment, visible
from katib.ui.trial_reading import Attempt


@pytest.mark.parametrize("mark", ["\u061c", "\u200e", "\u200f", "\u202a", "\u202e", "\u2066", "\u2069"])
def test_marks_that_turn_the_direction_of_output_are_shown(mark: str) -> None:
    assert visible(f"a{mark}b") == f"a\\u{ord(mark):04x}b"


def test_letters_of_every_direction_stay() -> None:
    assert visible("loss שלום مرحبا \u200d") == "loss שלום مرحبا \u200d"


def test_the_end_of_an_output_cannot_turn_the_direction_of_a_page() -> None:
    why = Diagnosis("Trial", "demo", "Failed", "ended \u202ewith", ("x\u2066y",), ("do\u2069",), log_tail=("a\u202eb",))
    trial = {"version": "1", "reason": "turns \u202e", "state": str(TrialState.FAILED), "name": "demo"}
    trial |= dict.fromkeys(("suspendField", "started", "ended", "best", "distance", "namespace", "experiment"), "") | {
        "values": [],
        "runs": False,
        "marks": asdict(Marks()),
    }
    values = dict.fromkeys(("parameters", "observed", "replicas", "lineage", "events"), ())
    problems = {"replicas_problem": "", "events_problem": ""}
    page = fragment("parts/trial_parts.html", trial=trial, why=Attempt(why), **values, **problems)

    assert not {"\u202e", "\u2066", "\u2069"} & set(page)
    assert "a\\u202eb" in page
