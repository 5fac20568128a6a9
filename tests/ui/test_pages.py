"""Every page: it opens, nobody is kept from using it, and it fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from katib.service.tuning.service import Diagnosis
from tests.support.browser import WIDTHS, serious_violations, sideways_scroll
from tests.support.tuning import MemoryTuningService, condition, document, make_pareto_experiment

if TYPE_CHECKING:
    from playwright.sync_api import Page

PAGES = {
    "experiments": "",
    "experiment": "experiments/default/demo",
    "several": "experiments/default/several",
    "trial": "trials/default/demo-0001",
    "compare": "compare?experiment=demo&trial=demo-0000&trial=demo-0001",
    "new": "new",
    "algorithms": "algorithms",
    "health": "health",
}
"""Addresses by name, below the root. Each new page is an entry."""


@pytest.fixture
def played(service: MemoryTuningService) -> MemoryTuningService:
    """An experiment that has ended."""
    service.submit(document("demo"), source="demo.yaml")
    service.play("default", "demo")
    service.put(make_pareto_experiment("several", condition("Running")))
    service.explain("default", Diagnosis("Experiment", "demo", "Succeeded", "It has ended."))
    service.explain("default", Diagnosis("Experiment", "several", "Running", "It runs."))
    return service


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_a_page_fits_a_phone_and_keeps_nobody_from_using_it(
    root: str, played: MemoryTuningService, page: Page, name: str, scheme: str
) -> None:
    desktop = page.viewport_size
    assert desktop is not None
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # mypy widens the literal
    page.set_viewport_size({"width": WIDTHS["phone"], "height": 780})
    page.goto(root + PAGES[name])
    page.wait_for_load_state("load")

    assert sideways_scroll(page) == 0
    page.set_viewport_size(desktop)
    assert serious_violations(page) == []


def test_the_history_is_drawn(root: str, played: MemoryTuningService, page: Page) -> None:
    page.goto(root + PAGES["experiment"])

    page.locator('[data-figure="history"] .chart canvas').first.wait_for()
