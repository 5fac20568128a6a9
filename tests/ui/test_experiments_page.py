"""The list of experiments: search, filter, order, and what changes while it is open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from katib.model.marks import marks_of
from katib.model.types import Experiment
from katib.service.tuning.service import Diagnosis
from tests.support.browser import OPTUNA, WIDTHS, Watched, serious_violations, sideways_scroll
from tests.support.tuning import MemoryTuningService, condition, document, make_experiment, make_trial, patched
from tests.support.waiting import eventually

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
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy: A study of Optuna").click()
    page.get_by_text("Copied.").wait_for()
    assert page.evaluate("navigator.clipboard.readText()").endswith("storage = " + OPTUNA)

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
    eventually(lambda: names(page) == ["alpha"], "the found one alone")


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
    for name in ("one", "two"):
        service.submit(document(name), source=f"{name}.yaml")
        service.explain("default", Diagnosis("Experiment", name, "Created", "It was created."))
    page.goto(root)
    page.get_by_text("2 experiments").wait_for()
    for key in ("j", "j", "k", "j"):
        page.keyboard.press(key)
    page.keyboard.press("Enter")

    page.wait_for_url("**/experiments/default/*")


def test_tags_and_notes_are_set_in_the_list(
    root: str, page: Page, service: MemoryTuningService, watched: Watched
) -> None:
    watched.expected.append("422")
    put(service, "alpha", condition("Succeeded"))
    put(service, "beta", condition("Succeeded"))
    page.goto(root)
    page.keyboard.press("Escape")
    page.locator("a.row", has_text="beta").focus()
    page.keyboard.press("t")
    page.get_by_label("Tags, separated by commas").fill("baseline, <b>x</b>")
    page.get_by_role("textbox", name="Notes").fill("try again")
    page.get_by_role("button", name="Save").click()
    page.locator("a.tag", has_text="baseline").click()
    page.get_by_text("1 of 2 experiments").wait_for()
    assert names(page) == ["beta"]
    assert "<b>x</b>" in page.locator("#list tbody tr").inner_text()
    marks = marks_of(service.get(Experiment, "default", "beta").metadata.annotations)
    assert (marks.tags, marks.notes) == (("baseline", "<b>x</b>"), "try again")
    assert serious_violations(page) == []

    page.get_by_label("Tags and notes of beta").click()
    page.get_by_label("Tags, separated by commas").fill("y" * 64)
    page.get_by_role("button", name="Save").click()
    page.get_by_text("give 1 to 63 printable characters").wait_for()


def test_a_row_shows_the_best_so_far_as_a_line(root: str, page: Page, service: MemoryTuningService) -> None:
    put(service, "demo", condition("Succeeded"), done=2)
    for index, loss in enumerate(("0.5", "0.25")):
        ends = f"2030-01-01T00:0{index}:00Z"
        trial = make_trial(f"demo-{index}", condition("Succeeded"), loss=loss, index=index)
        service.put(patched(trial, status={"completionTime": ends}))
    page.goto(root)

    page.locator("td.spark path").wait_for(state="attached")


def test_a_list_fits_a_phone(root: str, page: Page, service: MemoryTuningService) -> None:
    put(service, "a-name-that-is-as-long-as-names-can-be-40", condition("Failed", message="because " * 30), done=2)
    page.set_viewport_size({"width": WIDTHS["phone"], "height": 780})
    page.goto(root)
    page.get_by_text("1 experiment").wait_for()

    assert sideways_scroll(page) == 0
