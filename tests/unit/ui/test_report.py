"""What a page in one file holds."""

from __future__ import annotations

import re

from katib.figures.trials import TrialTable
from katib.ui.report import bundled_script, trials_json
from tests.support.tuning import condition, make_experiment, make_trial


def test_the_script_of_a_file_imports_nothing_and_names_nothing_twice() -> None:
    text = bundled_script().text
    names = re.findall(r"^(?:async )?(?:function|class|const|let) (\w+)", text, re.MULTILINE)

    assert not re.findall(r"^(?:import|export)\b", text, re.MULTILINE)
    assert "</script" not in text
    assert sorted(set(names)) == sorted(names)


def test_values_without_a_number_in_json_are_null_or_text() -> None:
    experiment = make_experiment("demo")
    trials = [
        make_trial("demo-0", condition("Succeeded"), loss="inf", x="1"),
        make_trial("demo-1", condition("Failed"), index=1, x="2"),
    ]
    made = trials_json(TrialTable.of(experiment, trials))

    assert made is not None
    assert next(column["values"] for column in made["columns"] if column["key"] == "loss") == ["inf", None]
    assert made["best"] is None
