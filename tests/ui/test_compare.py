"""The page that compares, in a browser."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.support.tuning import MemoryTuningService, document

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture
def two(service: MemoryTuningService) -> MemoryTuningService:
    """Two experiments that have ended, of three and of two trials."""
    for name, trials in (("first", 3), ("second", 2)):
        service.submit(document(name, trials=trials), source=f"{name}.yaml")
        service.play("default", name)
    return service


def test_two_experiments_stand_in_one_axis_and_in_one_table(root: str, two: MemoryTuningService, page: Page) -> None:
    page.goto(f"{root}compare?experiment=first&experiment=default/second")
    page.locator("[data-history] .main-svg").first.wait_for()
    row = page.get_by_role("row").filter(has_text="Best value")

    assert page.evaluate("document.querySelector('[data-history]').data.map((trace) => trace.name)") == [
        "first",
        "second",
    ]
    assert row.get_attribute("class") == "differs"
    assert row.get_by_text("best", exact=True).count() == 1
    page.get_by_label("Best so far by").select_option("time")
    page.wait_for_function("() => document.querySelector('[data-history]').layout.xaxis.title.text.includes('since')")


def test_two_trials_stand_side_by_side_and_one_can_be_removed(root: str, two: MemoryTuningService, page: Page) -> None:
    page.goto(f"{root}compare?trial=first-0000&trial=second-0001")
    page.locator("[data-trial-curves] .main-svg").first.wait_for()
    row = page.locator("tbody tr").filter(has=page.locator("th", has_text=re.compile("^x ")))

    assert row.get_by_role("cell").all_inner_texts() == ["0.5", "0.4"]
    page.get_by_role("link", name="Remove first-0000").click()
    page.wait_for_url("**/compare?trial=default/second-0001")
    assert page.get_by_role("row").filter(has_text="Experiment").get_by_role("cell").all_inner_texts() == ["second"]


def test_what_is_missing_is_said_and_the_rest_is_shown(root: str, two: MemoryTuningService, page: Page) -> None:
    page.goto(f"{root}compare?experiment=first&experiment=ghost")

    assert "experiment default/ghost is not there" in page.locator(".problems").inner_text()
    assert page.get_by_role("link", name="first", exact=True).count() == 1
    page.get_by_role("link", name="Leave it out").click()
    page.wait_for_url("**/compare?experiment=default/first")


@pytest.mark.slow
def test_a_trial_is_found_by_a_part_of_its_name_and_added(root: str, two: MemoryTuningService, page: Page) -> None:
    page.goto(f"{root}compare")
    page.get_by_label("Add a trial").press_sequentially("sec")
    page.wait_for_function("() => document.querySelectorAll('#known-trials option').length === 2")
    page.get_by_label("Add a trial").fill("default/second-0001")
    page.keyboard.press("Enter")

    page.wait_for_url("**/compare?trial=default*second-0001")
    assert page.get_by_role("link", name="second-0001", exact=True).count() == 1


@pytest.mark.slow
def test_an_experiment_is_added_to_those_that_are_there(root: str, two: MemoryTuningService, page: Page) -> None:
    page.goto(f"{root}compare?experiment=first")
    page.get_by_label("Add an experiment").fill("second")
    page.keyboard.press("Enter")

    page.locator("[data-history] .main-svg").first.wait_for()
