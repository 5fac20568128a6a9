"""The page that compares, in a browser."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.support.browser import serious_violations
from tests.support.tuning import MemoryTuningService, document

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture
def two(service: MemoryTuningService) -> MemoryTuningService:
    """Two experiments that have ended, of three and of two trials."""
    for name, trials in (("first", 3), ("second", 2)):
        service.submit(document(name, trials=trials), source=f"{name}.yaml")
        service.play("default", name)
        service.edit("default", name, tags=("both", name), notes="")
    return service


HISTORY, CURVES = (f"[data-figure={name}] .chart canvas[data-drawn]" for name in ("history", "curves"))
FOCUS = "() => document.activeElement.matches('#pick [data-search]')"
LINES = "() => document.querySelector('[data-figure=history]').figure.data.map((trace) => trace.name)"


def test_two_experiments_stand_in_one_axis_and_in_one_table(root: str, two: MemoryTuningService, page: Page) -> None:
    page.goto(f"{root}compare?experiment=first&experiment=default/second")
    page.locator(HISTORY).wait_for()
    row = page.get_by_role("row").filter(has_text="Best value")

    assert page.evaluate(LINES) == ["first", "second"]
    colours = page.locator("thead .swatch line").evaluate_all("all => all.map(one => one.getAttribute('stroke'))")
    assert colours == page.evaluate(LINES.replace("trace.name", "trace.line.color"))
    assert row.get_attribute("class") == "differs"
    assert row.get_by_text("best", exact=True).count() == 1
    page.get_by_label("Best so far by").select_option("time")
    title = "document.querySelector('[data-figure=history]').figure.layout.xaxis.title.text"
    page.wait_for_function(f"() => {title}.includes('since')")
    page.reload()
    page.wait_for_function(f"() => document.querySelector('[data-figure=history]').figure && {title}.includes('since')")


def test_experiments_are_ticked_in_their_list_by_keys_and_compared_by_groups(
    root: str, two: MemoryTuningService, page: Page
) -> None:
    two.submit(document("third", trials=2), source="third.yaml")
    two.play("default", "third")
    page.goto(root)
    page.locator("body[data-live]").wait_for()
    for key in "jxj":
        page.keyboard.press(key)
    page.locator("#picks", has_text="choose 1 more").wait_for()
    page.get_by_label("Compare all rows shown").check()
    page.locator("#picks", has_text="3 chosen").wait_for()
    two.edit("default", "third", tags=("first",), notes="")  # a row that changes stays ticked
    page.locator("#list tr", has_text="third").locator(".tag").wait_for()
    assert page.get_by_label("Compare third", exact=True).is_checked()
    page.keyboard.press("c")
    page.wait_for_url("**/compare?experiment=**")
    page.locator(HISTORY).wait_for()

    page.get_by_label("Mean by").select_option("tag")

    page.wait_for_url("**experiment_group=tag")
    page.locator(HISTORY).wait_for()
    assert [name for name in page.evaluate(LINES) if "(2)" not in name] == ["second (1)"]
    assert page.locator("thead th", has_text="third").locator(".of-group").inner_text().strip() == "first"
    page.wait_for_function("() => document.activeElement.dataset.group === 'experiment_group'")
    assert serious_violations(page) == []


def test_two_trials_stand_side_by_side_and_one_can_be_removed(root: str, two: MemoryTuningService, page: Page) -> None:
    page.goto(f"{root}compare?trial=first-0000&trial=second-0001")
    page.locator(CURVES).wait_for()
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


def test_what_to_compare_is_searched_and_ticked_by_keys(root: str, two: MemoryTuningService, page: Page) -> None:
    page.goto(f"{root}compare")
    page.wait_for_function(FOCUS)
    page.keyboard.type("tag:first")
    page.wait_for_function("() => document.querySelector('[data-tally]').textContent === '1 found'")
    page.get_by_role("button", name="Tick all found").click()
    page.get_by_label("Search").fill("second-0")
    page.locator("[data-found] legend", has_text="Trials").wait_for()
    assert serious_violations(page) == []
    page.get_by_label("second-0001").check()
    page.keyboard.press("Enter")

    page.wait_for_url("**/compare?experiment=**")
    assert page.get_by_role("link", name="first", exact=True).count() == 1
    assert page.get_by_role("link", name="second-0001", exact=True).count() == 1

    page.keyboard.press("a")
    page.wait_for_function(FOCUS)
    page.keyboard.press("Escape")
    page.get_by_label("What to compare").wait_for(state="hidden")
