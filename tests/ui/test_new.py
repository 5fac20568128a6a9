"""The page New in a browser: writing, errors while one types, the first trial, creating."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from katib.model.types import Experiment
from katib.service.tuning.service import Diagnosis
from tests.support.tuning import MemoryTuningService, document

pytest.importorskip("playwright")
from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture
def editor(root: str, page: Page) -> Page:
    page.goto(f"{root}new")
    page.locator("#text").fill(document("mine"))
    page.locator("#verdict", has_text="Ready to create").wait_for()
    return page


def test_form_and_text_say_the_same(editor: Page) -> None:
    assert editor.get_by_label("Metric", exact=True).input_value() == "loss"
    editor.get_by_label("Trials in all").fill("9")
    expect(editor.locator("#text")).to_have_value(re.compile("maxTrialCount: 9"))
    editor.locator("#text").fill(editor.locator("#text").input_value().replace("name: mine", "name: yours"))
    expect(editor.get_by_label("Name", exact=True).first).to_have_value("yours")


def test_an_error_is_at_its_field_and_in_the_list_while_one_types(editor: Page) -> None:
    editor.get_by_label("Trials in all").fill("0")
    editor.locator(".field .field-error").first.wait_for()

    assert editor.get_by_label("Trials in all").get_attribute("aria-invalid") == "true"
    assert "spec.maxTrialCount" in editor.locator("#errors li").first.inner_text()
    assert editor.get_by_role("button", name="Create").is_disabled()
    editor.locator("#errors button").first.click()
    assert editor.evaluate("document.activeElement.id") == "text"


def test_a_parameter_is_added_and_removed_in_the_form(editor: Page) -> None:
    editor.get_by_role("button", name="Add a parameter").click()
    row = editor.locator(".parameter").last
    row.locator('[data-key="name"]').fill("rate")
    row.locator('[data-key="min"]').fill("5")
    row.locator('[data-key="max"]').fill("1")
    editor.locator(".parameter .field-error:not([hidden])").wait_for()
    row.get_by_role("button", name="Remove").click()
    editor.locator("#verdict", has_text="Ready to create").wait_for()

    assert "name: rate" not in editor.locator("#text").input_value()


def test_the_first_trial_is_shown_with_values_in_it(editor: Page) -> None:
    assert "${trialParameters.x}" not in editor.locator("#trial").inner_text()
    assert "echo loss=" in editor.locator("#trial").inner_text()


def test_lines_that_are_pasted_show_what_is_found(editor: Page) -> None:
    editor.get_by_label("Printed lines").fill("loss=0.25 <b>x</b>\nnothing here")
    editor.locator("#readings", has_text="line 1: loss = 0.25").wait_for()
    editor.get_by_label("Patterns").fill("(lo ss")
    editor.locator("#readings .field-error").wait_for()


def test_creating_leads_to_the_experiment(editor: Page, service: MemoryTuningService) -> None:
    service.explain("default", Diagnosis("Experiment", "mine", "Created", "It was created."))
    editor.get_by_role("button", name="Create").click()
    editor.wait_for_url("**/experiments/default/mine")

    assert service.get(Experiment, "default", "mine").encode()["spec"]["maxTrialCount"] == 3


def test_a_clone_starts_from_the_other_experiment(root: str, page: Page, service: MemoryTuningService) -> None:
    service.submit(document("mine"), source="mine.yaml")
    page.goto(f"{root}new?from=default/mine")
    page.locator("#verdict", has_text="Ready to create").wait_for()

    assert page.get_by_label("Name", exact=True).first.input_value() == "mine-2"


def test_what_was_typed_is_there_again_after_a_visit_to_another_page_and_can_be_left(root: str, editor: Page) -> None:
    editor.get_by_label("Trials in all").fill("9")
    expect(editor.locator("#text")).to_have_value(re.compile("maxTrialCount: 9"))
    editor.get_by_role("link", name="Algorithms").click()
    editor.wait_for_url("**/algorithms")
    editor.goto(f"{root}new")
    expect(editor.get_by_label("Trials in all")).to_have_value("9")
    editor.get_by_text("Your draft is back").wait_for()
    editor.get_by_role("button", name="Start over").click()
    expect(editor.get_by_label("Name", exact=True).first).not_to_have_value("mine")
    editor.reload()

    expect(editor.locator("#draft")).to_be_hidden()
    expect(editor.get_by_label("Name", exact=True).first).not_to_have_value("mine")


def test_the_form_is_beside_its_text_in_one_window(editor: Page) -> None:
    boxes = [editor.locator(part).bounding_box() for part in ("#form", ".editor .text")]
    height = editor.viewport_size["height"] if editor.viewport_size else 0

    for box in boxes:
        assert box is not None
        assert box["y"] + box["height"] <= height
