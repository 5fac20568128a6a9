"""The page of the algorithms says what the list of algorithms says."""

from __future__ import annotations

from suggestion_services.algorithms import ENTRIES
from tools.algorithm_page import PAGE, updated


def test_what_is_missing_or_wrong_is_written_and_the_rest_left_alone() -> None:
    text = PAGE.read_text()
    worn = text.replace("| `sigma` |", "| `sigmund` |").replace("At least 0.", "At least 1.").replace("| yes |", "|  |")
    head, _, rest = worn.partition("\n### tpe\n")
    without_tpe = head + "\n### " + rest.partition("\n### ")[2]

    found = updated(without_tpe)

    assert "\n### tpe\n\nTree-structured Parzen estimator, each parameter for itself.\n\n| setting |" in found
    assert found.replace("\n### tpe\n", "").count("\n### ") == len(ENTRIES) - 1
    assert [line for line in found.splitlines() if line.startswith("|")] == [
        line for line in text.splitlines() if line.startswith("|")
    ]


def test_writing_twice_changes_nothing() -> None:
    once = updated(PAGE.read_text().replace("\n### grid\n", "\n### grid\n\n\n"))

    assert updated(once) == once
