"""Figures in the page: outliers, scales, the width of parallel coordinates, what is linked, printing, images."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from katib.doors.ui.report import experiment_html
from katib.figures.data import FigureOptions
from katib.figures.pictures import pictures_of
from katib.figures.reading import read_experiment
from katib.model.types import Experiment
from katib.service.tuning.service import Diagnosis
from tests.support.browser import WIDTHS, serious_violations, sideways_scroll
from tests.support.experiments import a_choice, a_double, a_template, an_experiment
from tests.support.tuning import MemoryTuningService, condition, make_pareto_experiment, make_trial, patched

if TYPE_CHECKING:
    from playwright.sync_api import Page

PAGE = "experiments/default/demo"
HISTORY, PARALLEL = '[data-figure="history"]', '[data-figure="parallel"]'
NAMES = ("learning_rate", "optimizer", "momentum", "weight_decay", "label_smoothing", "warmup_epochs")
TRIALS, DIVERGED = 100, (3, 40, 77)


@pytest.fixture
def service() -> MemoryTuningService:
    """A hundred trials of six parameters, of which three diverged and some were stopped early."""
    service, random = MemoryTuningService(), Random(5)
    parameters = [
        a_choice(name, ("adam", "stochastic-gradient")) if name == "optimizer" else a_double(name) for name in NAMES
    ]
    command = " ".join(["echo loss=1", *(f"${{trialParameters.{name}}}" for name in NAMES)])
    template = a_template(command, {name: name for name in NAMES})
    service.submit(json.dumps(an_experiment(parameters=parameters, trialTemplate=template)), source="demo.json")
    for index in range(TRIALS):
        loss = 1e5 if index in DIVERGED else 0.1 + 0.9 * random.random()
        state = "EarlyStopped" if index % 10 == 5 else "Succeeded"
        trial = make_trial(f"demo-{index:04d}", condition(state), index=index, x="1", loss=f"{loss:.4f}")
        values = {name: "adam" if name == "optimizer" else f"{random.random():.4f}" for name in NAMES}
        values["optimizer"] = "stochastic-gradient" if index % 4 == 0 else "adam"
        assigned = [{"name": name, "value": value} for name, value in values.items()]
        service.put(patched(trial, spec={"parameterAssignments": assigned}))
    status = {"conditions": [condition("Running")], "trials": TRIALS, "trialsSucceeded": TRIALS}
    service.put({**service.get(Experiment, "default", "demo").encode(), "status": status})
    service.explain("default", Diagnosis("Experiment", "demo", "Running", "It runs."))
    return service


def opened(page: Page, root: str, query: str = "") -> None:
    page.goto(f"{root}{PAGE}{query}")
    for figure, drawn in ((HISTORY, ".chart canvas"), (PARALLEL, "canvas[data-selected]")):
        page.locator(figure).scroll_into_view_if_needed()
        page.locator(f"{figure} {drawn}").first.wait_for()


def chart(page: Page, script: str) -> Any:
    """Return what a script finds of the chart of the history."""
    module = "new URL(`${document.body.dataset.assets}/chart.js`, document.baseURI)"
    found = f"(await import({module})).chartOf(document.querySelector({HISTORY!r}))"
    return page.evaluate(f"async () => {{ const chart = {found}; return {script}; }}")


def test_a_chip_counts_what_is_beyond_and_shows_it(root: str, page: Page) -> None:
    opened(page, root)
    for figure in (HISTORY, PARALLEL):
        chip = page.locator(f"{figure} .tools").get_by_role("button", name="3 beyond · show")
        chip.click()
        page.locator(f"{figure} .tools").get_by_role("button", name="hide outliers").wait_for()
        assert "beyond" not in page.locator(figure).inner_text()

        page.locator(f"{figure} .tools").get_by_role("button", name="hide outliers").click()
        chip.wait_for()

    page.locator(f"{HISTORY} .tools").get_by_role("button", name="log", exact=True).click()
    page.locator(f"{HISTORY} .tools").get_by_role("button", name="linear", exact=True).wait_for()
    assert chart(page, "chart.layout.yaxis.type") == "log"


@pytest.mark.parametrize("figure", ["slice", "edf", "durations"])
def test_figures_of_plotly_have_the_same_chip_and_a_double_click_hides_nothing_more(
    root: str, page: Page, figure: str
) -> None:
    page.goto(f"{root}{PAGE}?tab=analysis")
    shown = page.locator(f'[data-figure="{figure}"]')
    shown.scroll_into_view_if_needed()
    chip = shown.get_by_role("button", name="3 beyond · show")
    chip.wait_for()
    axis = {"edf": "xaxis", "durations": "yaxis2"}.get(figure, "yaxis")

    assert shown.evaluate(f"element => element.layout.{axis}.range[1]") < 2
    chip.click()
    page.wait_for_function(
        f"() => document.querySelector('[data-figure={figure}]').layout.{axis}.range[1] > 1e4", timeout=20_000
    )
    assert "beyond the axis" not in shown.inner_text()


def test_any_two_quantities_are_shown_against_each_other(root: str, page: Page) -> None:
    page.goto(f"{root}{PAGE}?tab=analysis")
    scatter = page.locator("#figure-scatter")
    scatter.scroll_into_view_if_needed()
    scatter.get_by_label("Across").select_option("duration")
    page.wait_for_function(
        "() => document.querySelector('[data-figure=scatter]').layout?.xaxis.title.text.startsWith('duration')"
    )
    scatter.get_by_role("button", name="log y").click()
    page.wait_for_function("() => document.querySelector('[data-figure=scatter]').layout.yaxis.type === 'log'")


def test_axes_of_a_matrix_are_chosen_and_switched_by_keys(root: str, page: Page) -> None:
    page.goto(f"{root}{PAGE}?tab=analysis&matrix.axis=momentum&matrix.axis=loss&matrix.axis=duration")
    matrix = page.locator("#figure-matrix")
    matrix.scroll_into_view_if_needed()
    matrix.locator(".tools summary").wait_for()
    matrix.locator(".tools summary").focus()
    for key in ("Enter", "Tab", "Tab", "Space"):
        page.keyboard.press(key)

    page.wait_for_function("() => document.querySelector('[data-figure=matrix]').layout.yaxis.type === 'log'")
    page.wait_for_function("() => document.activeElement.ariaLabel === 'loss logarithmic'")
    assert matrix.locator(".subplot").count() == 3
    assert serious_violations(page) == []
    assert "matrix.look=1-log" in page.url


def test_three_objectives_are_drawn_two_by_two_without_plotly(
    root: str, page: Page, service: MemoryTuningService
) -> None:
    names = ("accuracy", "seconds", "memory")
    objectives = [{"name": name, "type": "minimize"} for name in names]
    spec = {"objective": {"objectives": objectives}}
    experiment = patched(make_pareto_experiment("three", trials=9), spec=spec)
    service.put(experiment)
    for index in range(9):
        trial = make_trial(f"three-{index}", condition("Succeeded"), index=index, experiment="three")
        metrics = [
            {"name": name, **dict.fromkeys(("min", "max", "latest"), str((index * k) % 7 + 1))}
            for k, name in enumerate(names, 2)
        ]
        service.put(
            patched(
                trial,
                spec={"objective": experiment.encode()["spec"]["objective"]},
                status={"observation": {"metrics": metrics}},
            )
        )
    service.explain("default", Diagnosis("Experiment", "three", "Running", "It runs."))
    page.goto(f"{root}experiments/default/three")

    fronts = page.locator(".fronts .figure canvas[data-drawn]")
    fronts.nth(2).wait_for()
    assert [one.get_attribute("aria-label") for one in fronts.all()] == [
        f"{up} (minimize) by {across} (minimize): 9 trials" for across, up in combinations(names, 2)
    ]
    assert page.evaluate("typeof Plotly") == "undefined"
    assert serious_violations(page) == []
    page.set_viewport_size({"width": 360, "height": 780})
    assert sideways_scroll(page) == 0


@pytest.mark.parametrize("width", [1440, 1024])
def test_parallel_coordinates_of_six_parameters_have_room(
    root: str, service: MemoryTuningService, page: Page, tmp_path: Path, width: int
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    data, path = read_experiment(service, "default", "demo"), tmp_path / "demo.html"
    path.write_text(experiment_html(data, pictures_of(service, data, ["history", "parallel"], FigureOptions())))
    for address in (root + PAGE, f"{root}{PAGE}?tab=analysis", path.as_uri()):
        page.goto(address)
        page.locator(PARALLEL).scroll_into_view_if_needed()
        page.locator(f"{PARALLEL} canvas[data-selected]").first.wait_for()
        names = page.locator(f"{PARALLEL} .axis .name").evaluate_all("all => all.map(one => one.firstChild.data)")
        inside = """figure => { const box = figure.getBoundingClientRect();
          return [...figure.querySelectorAll("svg text, svg .bar rect")].filter((part) => {
            const { left, right, top } = part.getBoundingClientRect();
            return left < box.left || right > box.right || top < box.top; }).length; }"""

        assert names == [*NAMES, "loss"]
        assert page.locator(PARALLEL).evaluate(inside) == 0
        assert "stochastic-gradient" in page.locator(f"{PARALLEL} .axis text").all_text_contents()


def test_a_phone_scrolls_the_axes_of_parameters_and_keeps_the_objective(root: str, page: Page) -> None:
    page.set_viewport_size({"width": WIDTHS["phone"], "height": 780})
    opened(page, root)
    axes = f"{PARALLEL} g.axis"

    def shown() -> list[str]:
        found: list[str] = page.locator(axes).evaluate_all("all => all.map(one => one.dataset.axis)")
        return found

    assert sideways_scroll(page) == 0
    assert (shown()[0], shown()[-1]) == ("learning_rate", "loss")
    page.locator(f"{PARALLEL} .scroller").evaluate("element => element.scrollTo(10_000, 0)")
    page.locator(f'{PARALLEL} [data-axis="warmup_epochs"]').wait_for()
    assert (shown()[-2], shown()[-1]) == ("warmup_epochs", "loss")


def test_an_axis_is_dragged_by_its_name_and_moved_by_keys(root: str, page: Page) -> None:
    page.set_viewport_size({"width": 1440, "height": 900})
    opened(page, root)

    def order() -> list[str]:
        found: list[str] = page.locator(f"{PARALLEL} g.axis").evaluate_all("all => all.map(one => one.dataset.axis)")
        return found

    page.locator(f'{PARALLEL} [data-axis="learning_rate"] .name').hover()
    page.mouse.down()
    page.locator(f'{PARALLEL} [data-axis="momentum"] .name').hover()
    page.mouse.up()
    assert order() == ["optimizer", "momentum", "learning_rate", *NAMES[3:], "loss"]

    page.locator(f'{PARALLEL} [data-axis="learning_rate"]').focus()
    page.keyboard.press("Control+ArrowLeft")
    assert order() == ["optimizer", "learning_rate", "momentum", *NAMES[3:], "loss"]


def test_filters_and_brushes_dim_the_history_and_the_lines(root: str, page: Page) -> None:
    opened(page, root)
    page.locator(f'{PARALLEL} [data-axis="optimizer"]').focus()
    page.keyboard.press("ArrowUp")
    page.locator("#trials .tally", has_text="75 of 100").wait_for()
    assert chart(page, "Array.from({ length: 100 }, (_, row) => chart.passes(row)).filter(Boolean).length") == 75
    page.keyboard.press("Delete")
    page.locator("#trials .tally", has_text="100 trials").wait_for()
    assert chart(page, "chart.passes") is None

    page.locator("#filters [data-search]").fill("demo-000")
    page.locator(f'{PARALLEL} canvas[data-selected="10"]').wait_for()
    assert chart(page, "[chart.passes(9), chart.passes(10)]") == [True, False]


def test_a_trial_that_is_pointed_at_stands_out_everywhere(root: str, page: Page) -> None:
    opened(page, root)
    row = page.locator("#trials tbody tr").nth(2)
    row.locator("th").hover()
    faint = (
        f"[...document.querySelectorAll('{HISTORY} canvas, {PARALLEL} canvas')].filter((c) => c.style.opacity).length"
    )
    page.wait_for_function(f"() => {faint} === 2")
    assert page.locator("#trials .pointed").get_attribute("data-trial") == row.get_attribute("data-trial")

    page.mouse.move(1, 1)
    page.wait_for_function(f"() => {faint} === 0")
    best = page.locator("#trials tr.best").get_attribute("data-trial")
    page.locator(HISTORY).scroll_into_view_if_needed()
    box = page.locator(f"{HISTORY} .plot").bounding_box()
    x, y, _ = chart(page, f'chart.at(...chart.marks.get("{best}"))')
    assert box is not None
    page.mouse.move(box["x"] + x, box["y"] + y)
    page.locator(f'#trials tr.pointed[data-trial="{best}"]').wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_figures_keep_nobody_from_using_them(root: str, page: Page, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # mypy widens the literal
    opened(page, root)

    assert serious_violations(page) == []


@pytest.mark.parametrize("figure", ["history", "parallel", "edf"])
def test_a_figure_is_saved_as_an_image(root: str, page: Page, figure: str, tmp_path: Path) -> None:
    page.goto(f"{root}{PAGE}?tab={'analysis' if figure == 'edf' else 'overview'}")
    shown = page.locator(f'[data-figure="{figure}"]')
    shown.scroll_into_view_if_needed()
    with page.expect_download() as saved:
        shown.get_by_role("button", name="PNG").click()
    saved.value.save_as(tmp_path / "figure.png")

    assert saved.value.suggested_filename.startswith("demo")
    assert (tmp_path / "figure.png").read_bytes()[:4] == b"\x89PNG"


def test_a_print_has_every_figure_and_no_controls(root: str, page: Page, tmp_path: Path) -> None:
    page.goto(f"{root}{PAGE}?tab=analysis")
    page.wait_for_function("() => !document.querySelector('[data-figure] .loading')")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 718, "height": 1000})

    wide = """[...document.querySelectorAll("[data-figure] svg.main-svg, table")]
      .filter((one) => one.getBoundingClientRect().right > 718).length"""
    assert page.evaluate(wide) == 0
    assert not page.locator("nav").first.is_visible()
    assert not page.locator(".tools").first.is_visible()
    page.pdf(path=tmp_path / "demo.pdf")
