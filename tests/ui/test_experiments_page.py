"""The list of experiments: search, filter, order, and what changes while it is open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.browser import WIDTHS, sideways_scroll
from tests.support.tuning import MemoryTuningService, condition, document, make_experiment

if TYPE_CHECKING:
    from playwright.sync_api import Page


def put(service: MemoryTuningService, name: str, *conditions: dict[str, str], done: int = 0, **more: str) -> None:
    service.put(make_experiment(name, *conditions, trialsSucceeded=done, **more))


def names(page: Page) -> list[str]:
    return page.locator("#list tbody a.row").all_inner_texts()


def test_an_empty_list_says_what_to_do_first(root: str, page: Page, service: MemoryTuningService) -> None:
    page.goto(root)
    page.get_by_text("No experiment yet.").wait_for()
    assert page.get_by_role("link", name="Start one here").get_attribute("href") == "new"

    service.submit(document("demo"), source="demo.yaml")

    page.locator("#list a.row", has_text="demo").wait_for()


def test_a_list_is_searched_filtered_and_ordered(root: str, page: Page, service: MemoryTuningService) -> None:
    put(service, "beta", condition("Running"), done=3)
    put(service, "alpha", condition("Succeeded"), done=12)
    put(service, "gamma", condition("Failed", message="too many failures"), done=1)
    page.goto(root)
    page.get_by_text("3 experiments").wait_for()
    assert "too many failures" in page.locator("#list tbody tr", has_text="gamma").inner_text()

    page.get_by_role("link", name="Name", exact=True).click()
    page.locator("#list th[aria-sort=ascending]", has_text="Name").wait_for()
    assert names(page) == ["alpha", "beta", "gamma"]

    page.get_by_label("State").select_option("Running")
    page.get_by_text("1 of 3 experiments").wait_for()
    assert names(page) == ["beta"]

    page.get_by_label("State").select_option("")
    page.get_by_label("Search").fill("alp")
    page.get_by_text("1 of 3 experiments").wait_for()
    assert names(page) == ["alpha"]


def test_a_list_of_a_thousand_is_shown_in_pages_and_stays_live(
    root: str, page: Page, service: MemoryTuningService
) -> None:
    for index in range(1000):
        put(service, f"e-{index:04d}", condition("Running"))
    page.goto(f"{root}?sort=name")
    page.get_by_text("1,000 experiments").wait_for()
    assert len(names(page)) == 50

    put(service, "e-0007", condition("Running"), condition("Succeeded"), done=12)
    page.locator('[id="default/e-0007"]', has_text="12 / 12").wait_for()

    page.get_by_role("link", name="Last").click()
    page.locator("a.row", has_text="e-0999").wait_for()


def test_keys_open_an_experiment(root: str, page: Page, service: MemoryTuningService) -> None:
    service.submit(document("one"), source="one.yaml")
    service.submit(document("two"), source="two.yaml")
    page.goto(root)
    page.get_by_text("2 experiments").wait_for()
    for key in ("j", "j", "k", "j"):
        page.keyboard.press(key)
    page.keyboard.press("Enter")

    page.wait_for_url("**/experiments/default/*")


def test_a_list_fits_a_phone(root: str, page: Page, service: MemoryTuningService) -> None:
    put(service, "a-name-that-is-as-long-as-names-can-be-40", condition("Failed", message="because " * 30), done=2)
    page.set_viewport_size({"width": WIDTHS["phone"], "height": 780})
    page.goto(root)
    page.get_by_text("1 experiment").wait_for()

    assert sideways_scroll(page) == 0
