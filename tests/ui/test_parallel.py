"""Parallel coordinates in the page: brushes by pointer and by key, and figures that a strict policy lets be drawn."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from katib.model.types import Experiment
from katib.service.tuning.service import Diagnosis
from tests.support.experiments import a_choice, a_double, a_template, an_experiment
from tests.support.tuning import MemoryTuningService, condition, make_trial, patched

if TYPE_CHECKING:
    from playwright.sync_api import Page

PAGE = "experiments/default/demo"
FIGURE = '[data-figure="parallel"]'


@pytest.fixture
def service() -> MemoryTuningService:
    """Twenty trials of a logarithmic parameter, one of choices, and one that every other trial does not have."""
    service = MemoryTuningService()
    parameters = [
        a_double("lr", low="0.0001", high="1", distribution="logUniform"),
        a_choice("optimizer", ("adam", "sgd")),
    ]
    names = ("lr", "optimizer", "momentum")
    command = " ".join(["echo loss=1", *(f"${{trialParameters.{name}}}" for name in names)])
    template = a_template(command, {name: name for name in names})
    experiment = an_experiment(
        parameters=[*parameters, a_double("momentum", low="0", high="1")], trialTemplate=template
    )
    service.submit(json.dumps(experiment), source="demo.json")
    for index in range(20):
        trial = make_trial(f"demo-{index:04d}", condition("Succeeded"), index=index, x="1", loss=f"{0.1 * index:.2f}")
        values = {"lr": f"{10 ** (-4 + index / 5):.6g}", "optimizer": ("adam", "sgd")[index % 2]}
        if index % 2:
            values["momentum"] = f"{index / 20}"
        trial = patched(
            trial, spec={"parameterAssignments": [{"name": name, "value": value} for name, value in values.items()]}
        )
        service.put(trial)
    status = {"conditions": [condition("Running")], "trials": 20, "trialsSucceeded": 20}
    service.put({**service.get(Experiment, "default", "demo").encode(), "status": status})
    service.explain("default", Diagnosis("Experiment", "demo", "Running", "It runs."))
    return service


@pytest.fixture
def figure(root: str, page: Page) -> Page:
    """The page once the lines are drawn, with all that brushes tell in `window.told`."""
    page.goto(root + PAGE)
    page.locator(f"{FIGURE} canvas[data-selected]").first.wait_for()
    page.evaluate(
        "selector => { window.told = []; document.querySelector(selector).addEventListener("
        "'brush', ({ detail }) => window.told.push(detail.conditions)); }",
        FIGURE,
    )
    return page


def told(page: Page) -> list[dict[str, Any]]:
    """Return what the brushes told last."""
    conditions: list[dict[str, Any]] = page.evaluate("window.told.at(-1)")
    return conditions


def drag(page: Page, axis: str, start: float, end: float, *keys: str) -> None:
    """Drag along an axis, from one share of its height to another, from the bottom up."""
    handle = page.locator(f'{FIGURE} [data-axis="{axis}"] .handle')
    handle.scroll_into_view_if_needed()  # which waits until it has its place
    box = handle.bounding_box()
    assert box is not None
    x, bottom, height = box["x"] + box["width"] / 2, box["y"] + box["height"] - 8, box["height"] - 16
    for key in keys:
        page.keyboard.down(key)
    page.mouse.move(x, bottom - start * height)
    page.mouse.down()
    page.mouse.move(x, bottom - end * height, steps=5)
    page.mouse.up()
    for key in keys:
        page.keyboard.up(key)


def selected(page: Page, count: int) -> None:
    """Wait until so many lines are selected."""
    page.locator(f'{FIGURE} canvas[data-selected="{count}"]').wait_for()


def test_brushes_of_the_pointer_select_the_lines_that_pass_all(figure: Page) -> None:
    drag(figure, "lr", 0.5, 1.0)
    drag(figure, "optimizer", 0.55, 0.95)
    lr, optimizer = told(figure)

    assert lr["ranges"][0] == pytest.approx([0.01, 1.45], rel=0.1)
    assert optimizer["choices"] == ["sgd"]
    selected(figure, 5)

    drag(figure, "lr", 0.0, 0.1, "Shift")
    assert len(told(figure)[0]["ranges"]) == 2

    drag(figure, "lr", 0.4, 0.4)
    drag(figure, "optimizer", 0.75, 0.75)
    assert told(figure) == []
    selected(figure, 20)

    drag(figure, "optimizer", 0.25, 0.25)
    assert told(figure)[0]["choices"] == ["adam"]
    drag(figure, "optimizer", 0.25, 0.25)

    drag(figure, "momentum", 0.0, 0.1)
    selected(figure, 10)
    assert told(figure)[0]["absent"]
    assert told(figure)[0]["ranges"][0][0] > 0


def test_keys_make_move_and_remove_a_brush(figure: Page) -> None:
    axis = figure.locator(f'{FIGURE} [data-axis="optimizer"]')
    axis.focus()
    figure.keyboard.press("ArrowUp")
    assert axis.get_attribute("aria-valuetext") == "adam"
    figure.keyboard.press("ArrowUp")
    assert axis.get_attribute("aria-valuetext") == "sgd"
    figure.keyboard.press("Delete")

    assert axis.get_attribute("aria-valuetext") == "all"
    selected(figure, 20)


def test_figures_are_drawn_under_the_policy_of_the_page(root: str, page: Page) -> None:
    page.goto(f"{root}{PAGE}?tab=analysis")
    for name in ("slice", "contour", "rank", "importances"):
        shown = page.locator(f'[data-figure="{name}"]')
        shown.scroll_into_view_if_needed()

        shown.locator(".main-svg .cartesianlayer").first.wait_for(state="attached")
        assert shown.locator(".problem").count() == 0
