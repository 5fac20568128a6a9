"""A page in one file, opened from the disk."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from katib.doors.ui.assets import read_asset
from katib.doors.ui.report import experiment_html, trials_json
from katib.figures.catalogue import FIGURES
from katib.figures.data import FigureOptions
from katib.figures.pictures import pictures_of
from katib.figures.reading import read_experiment
from tests.support.browser import WIDTHS, serious_violations, sideways_scroll
from tests.support.hostile import hostile_service
from tests.support.trial_tables import SEARCHES, made_table, plain_rows
from tests.support.tuning import MemoryTuningService, condition, make_experiment, make_trial

if TYPE_CHECKING:
    from playwright.sync_api import Page

MOST_BYTES = 3_000_000


def write(service: MemoryTuningService, path: Path) -> str:
    """Write the page of the experiment `demo`; return its address."""
    data = read_experiment(service, "default", "demo")
    pictures = pictures_of(service, data, [figure.name for figure in FIGURES], FigureOptions())
    path.write_text(experiment_html(data, pictures))
    return path.as_uri()


@pytest.fixture(scope="module")
def thousand(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of an experiment of 1,000 trials, of which a tenth was stopped early."""
    service, random = MemoryTuningService(), Random(1)
    service.put(make_experiment("demo", condition("Succeeded", message="all trials ran")))
    for index in range(1_000):
        x = random.random()
        state = "EarlyStopped" if index % 10 == 5 else "Succeeded"
        loss = (x - 0.5) ** 2 + math.exp(-index / 300)
        service.put(make_trial(f"demo-{index:04d}", condition(state), loss=str(loss), index=index, x=str(x)))
    path = tmp_path_factory.mktemp("report") / "demo.html"
    write(service, path)
    return path


def test_a_thousand_trials_are_a_small_file(thousand: Path) -> None:
    assert thousand.stat().st_size <= MOST_BYTES


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_figures_and_the_table_are_drawn_without_a_network(page: Page, thousand: Path, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # mypy widens the literal
    page.goto(thousand.as_uri())
    page.locator("#figure-history .chart canvas").first.wait_for()
    page.locator("#figure-parallel canvas").first.wait_for()
    page.get_by_text("1,000 trials", exact=True).wait_for()

    assert serious_violations(page) == []


def test_the_table_is_filtered_and_ordered(page: Page, thousand: Path) -> None:
    page.goto(thousand.as_uri())
    page.locator("#filters select").select_option("EarlyStopped")
    page.get_by_text("100 of 1,000 trials").wait_for()
    page.get_by_label("Filter").fill("x<0.5 loss>=0.2 demo-0")
    rows = page.locator("#table tbody tr")
    page.get_by_text("of 1,000 trials").wait_for()
    assert 0 < rows.count() < 100

    for order, marks in (("ascending", [True, False]), ("descending", [False, True])):
        page.locator("#table button[data-key=x]").click()
        page.locator(f"#table th[aria-sort={order}]", has_text="x").wait_for()
        values = [float(row.split("\t")[-2]) for row in rows.all_inner_texts()]
        assert [values == sorted(values), values == sorted(values, reverse=True)] == marks


def test_a_search_finds_in_a_file_what_a_server_finds(page: Page) -> None:
    table = made_table(300)
    page.goto("about:blank")
    exported = read_asset("search.js").body.decode().replace("export function testsOf", "globalThis.testsOf = function")
    page.add_script_tag(content=exported.replace("export ", ""), type="module")
    found = page.evaluate(
        """async ([columns, searches]) => {
            while (!globalThis.testsOf) await new Promise(setTimeout);
            const rows = [...columns[0].values.keys()];
            return searches.map((text) => {
                const tests = testsOf(text, columns);
                return rows.filter((row) => tests.every((test) => test(row)));
            });
        }""",
        [(trials_json(table) or {})["columns"], list(SEARCHES)],
    )

    expected = [[i for i, row in enumerate(plain_rows(table)) if finds(row)] for finds in SEARCHES.values()]
    assert dict(zip(SEARCHES, found, strict=True)) == dict(zip(SEARCHES, expected, strict=True))


def test_a_brush_filters_the_table(page: Page, thousand: Path) -> None:
    page.goto(thousand.as_uri())
    page.locator("#figure-parallel canvas").first.wait_for()
    condition_ = {"name": "x", "of": "parameter", "type": "double", "ranges": [[0, 0.25]], "absent": False}
    page.evaluate(
        """(condition) => document.getElementById("figure-parallel")
           .dispatchEvent(new CustomEvent("brush", { detail: { conditions: [condition] } }))""",
        condition_,
    )
    page.get_by_text("of 1,000 trials").wait_for()
    values = [float(row.split("\t")[-2]) for row in page.locator("#table tbody tr").all_inner_texts()]

    assert 0 < max(values) <= 0.25


def test_a_phone_reads_it_without_sideways_scrolling(page: Page, thousand: Path) -> None:
    page.set_viewport_size({"width": WIDTHS["phone"], "height": 780})
    page.goto(thousand.as_uri())
    page.locator("#figure-history .chart canvas").first.wait_for()

    assert sideways_scroll(page) == 0


def test_no_script_of_others_runs(page: Page, tmp_path: Path) -> None:
    page.goto(write(hostile_service(), tmp_path / "demo.html"))
    page.locator("#table tbody tr").first.wait_for()
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    page.locator(".main-svg, .parallel, .chart").first.wait_for()

    assert page.evaluate("window.hacked") is None
