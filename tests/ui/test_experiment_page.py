"""The page of an experiment: filters, order, brushes, actions, and what changes while it is open."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from katib.doors.rest.server import Server
from katib.doors.ui import ui_routes
from katib.model.marks import Marks, marks_of, views_of
from katib.model.metrics import MetricLog
from katib.model.types import Experiment, Trial
from katib.service.tuning.service import Diagnosis, RecordedEvent
from tests.support.browser import WIDTHS, Watched, serious_violations, sideways_scroll
from tests.support.tuning import START, MemoryTuningService, condition, document, make_trial
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Locator, Page

PAGE = "experiments/default/demo"
HISTORY = '[data-figure="history"]'
TRIALS = 30


@pytest.fixture
def service() -> MemoryTuningService:
    """An experiment that runs, with thirty trials: some failed, some were stopped early."""
    service = MemoryTuningService()
    service.submit(document("demo", trials=40), source="demo.yaml")
    for index in range(TRIALS):
        put_trial(service, index)
    put_experiment(service, TRIALS)
    service.explain("default", Diagnosis("Experiment", "demo", "Running", "It runs."))
    return service


def state_of(index: int) -> str:
    return "Failed" if index % 10 == 9 else "EarlyStopped" if index % 10 == 5 else "Succeeded"


def names_of(service: MemoryTuningService) -> list[str]:
    return [trial.name for trial in service.trials("default", "demo", limit=TRIALS).items]


def put_trial(service: MemoryTuningService, index: int) -> None:
    state, x = state_of(index), f"{0.1 + 0.8 * index / TRIALS:.4f}"
    loss = None if state == "Failed" else f"{abs(float(x) - 0.5):.4f}"
    service.put(make_trial(f"demo-{index:04d}", condition(state, at=10 * index + 5), index=index, x=x, loss=loss))


def put_experiment(service: MemoryTuningService, count: int) -> None:
    best = service.get(Trial, "default", f"demo-{TRIALS // 2 - 1:04d}")  # any other than the stopped one beside it
    counts = [[state_of(index) for index in range(count)].count(s) for s in ("Succeeded", "EarlyStopped", "Failed")]
    service.put(
        {
            **service.get(Experiment, "default", "demo").encode(),
            "status": {
                "startTime": "2030-01-01T12:00:00Z",
                "conditions": [condition("Created"), condition("Running", message="Experiment is running")],
                "trials": count,
                "trialsSucceeded": counts[0],
                "trialsEarlyStopped": counts[1],
                "trialsFailed": counts[2],
                "currentOptimalTrial": {
                    "bestTrialName": best.name,
                    "parameterAssignments": best.encode()["spec"]["parameterAssignments"],
                    "observation": best.encode()["status"]["observation"],
                },
            },
        }
    )


def tally(page: Page, text: str) -> None:
    """Wait for a text about the table; "30 trials" is not "1 of 30 trials"."""
    page.locator("#trials .tally", has_text=re.compile(rf"(?<!of ){re.escape(text)}")).wait_for()


def names(page: Page) -> list[str]:
    return page.locator("#trials tbody tr").evaluate_all("rows => rows.map(row => row.dataset.trial)")


def test_the_table_is_filtered_ordered_and_turned(root: str, page: Page) -> None:
    page.goto(f"{root}{PAGE}?tab=trials&size=10")
    tally(page, "30 trials, 1 to 10 shown")

    assert names(page)[0] == "demo-0029"

    page.locator("#trials thead a", has_text="loss").click()
    page.locator("#trials th[aria-sort=ascending]", has_text="loss").wait_for()
    assert names(page)[0] == "demo-0015"

    page.get_by_role("link", name="Next").click()
    tally(page, "11 to 20 shown")

    page.locator("summary", has_text="State").click()
    page.get_by_role("checkbox", name="EarlyStopped").check()
    tally(page, "3 of 30 trials")

    assert "state=EarlyStopped" in page.url
    assert "page=" not in page.url

    page.keyboard.press("Escape")
    page.get_by_label("Search").fill("0015")
    tally(page, "1 of 30 trials")

    page.reload()  # what is asked stands in the address
    tally(page, "1 of 30 trials")
    page.get_by_role("link", name="Show all").click()
    tally(page, "30 trials, 1 to 10 shown")

    assert page.get_by_label("Search").input_value() == ""


def test_a_range_of_a_column_is_a_filter_that_can_be_taken_away(root: str, page: Page) -> None:
    page.goto(f"{root}{PAGE}?tab=trials")
    tally(page, "30 trials")

    page.locator("summary", has_text="Filter").click()
    page.locator("[data-filter-column]").select_option("x")
    page.get_by_role("textbox", name="from", exact=True).fill("0.5")
    page.get_by_text("Add filter").click()
    tally(page, "15 of 30 trials")

    page.get_by_role("link", name="Remove the filter x from 0.5").click()
    tally(page, "30 trials")


@pytest.mark.slow
def test_a_filter_that_is_not_understood_says_so_in_place_of_the_rows(root: str, page: Page, watched: Watched) -> None:
    watched.expected.append("422")
    page.goto(f"{root}{PAGE}?tab=trials&where=y:1..2")

    page.locator("#trials [role=alert]", has_text="names no column").wait_for()


@pytest.mark.slow
def test_columns_are_chosen(root: str, page: Page) -> None:
    page.goto(f"{root}{PAGE}?tab=trials")
    page.locator("summary", has_text="Columns").click()
    page.get_by_role("checkbox", name="Created").check()
    page.locator("#trials th", has_text="Created").wait_for()
    page.get_by_role("checkbox", name="loss").uncheck()
    page.locator("#trials th", has_text="loss").wait_for(state="detached")

    assert page.locator("#trials td time").count() > 0


def test_a_brush_filters_the_table_and_goes_with_its_filter(root: str, page: Page) -> None:
    page.goto(root + PAGE)
    tally(page, "30 trials")
    axis = page.locator('[data-figure="parallel"] [data-axis="x"] .handle')
    axis.wait_for()
    box = axis.bounding_box()
    assert box is not None
    middle = box["x"] + box["width"] / 2
    page.mouse.move(middle, box["y"] + box["height"] * 0.25)
    page.mouse.down()
    page.mouse.move(middle, box["y"] + box["height"] * 0.5, steps=4)
    page.mouse.up()
    page.locator("#trials:not([aria-busy]) .chips").wait_for()

    shown = page.locator("#trials tbody tr").count()
    assert 0 < shown < TRIALS
    assert "where=x" in page.url

    page.reload()
    page.locator('[data-figure="parallel"] .brushes rect').wait_for()
    assert page.locator("#trials tbody tr").count() == shown

    page.locator("#trials .chips a").click()
    tally(page, "30 trials")
    page.locator('[data-figure="parallel"] .brushes rect').wait_for(state="detached")


@pytest.mark.slow
def test_pointing_at_a_row_shows_its_line(root: str, page: Page) -> None:
    page.goto(root + PAGE)
    page.locator('[data-figure="parallel"] canvas').first.wait_for()
    marked = '() => { const c = document.querySelectorAll("[data-figure=parallel] canvas")[1]; '
    marked += 'return c.getContext("2d").getImageData(0, 0, c.width, c.height).data.some(value => value) }'

    assert not page.evaluate(marked)

    page.locator('#trials tr[data-trial="demo-0014"] th').hover()
    page.wait_for_function(marked)


@pytest.mark.slow
def test_clicking_a_mark_opens_the_trial_beside_and_its_page_from_there(
    root: str, page: Page, watched: Watched, service: MemoryTuningService
) -> None:
    watched.expected.append("404")
    for name in names_of(service):
        service.write_log("default", name, b"first\n" * 10 + b"\x1b[31mlast of " + name.encode() + b"\x1b[0m\n")
    page.goto(root + PAGE)
    beside = page.get_by_role("dialog", name=re.compile("demo-"))
    click_mark(page, "demo-0020", beside)

    assert page.url == root + PAGE
    page.keyboard.press("k")  # it is in the last row
    beside.get_by_role("heading", name="demo-0020").wait_for(state="detached")
    output = beside.locator("pre", has_text="last of demo-")
    output.wait_for()
    assert len(output.inner_text().splitlines()) == 10
    assert serious_violations(page) == []
    page.keyboard.press("Escape")
    beside.wait_for(state="hidden")
    page.evaluate("scrollTo(0, 0)")  # from the row
    click_mark(page, "demo-0020", beside)
    beside.get_by_role("link", name="Open its page").click()
    page.wait_for_url("**/trials/default/demo-*")


def click_mark(page: Page, trial: str, beside: Locator) -> None:
    """Click the mark of a trial until it is shown beside: figures move down when the server has read the trials."""
    from playwright.sync_api import TimeoutError as TooLateError

    def opens() -> bool:
        to_mark(page, trial)
        page.mouse.down()
        page.mouse.up()
        with suppress(TooLateError):
            beside.get_by_role("link", name="Open its page").wait_for(timeout=5_000)
        return beside.is_visible()

    eventually(opens)


def to_mark(page: Page, trial: str) -> None:
    """Move the pointer to the mark of a trial in the history, which may move while the page is being built."""
    page.locator(f"{HISTORY} .chart canvas").first.wait_for()
    tip = page.locator(f"{HISTORY} .tip", has_text=trial)
    script = """async ([selector, trial]) => {
      const { chartOf } = await import(new URL(`${document.body.dataset.assets}/chart.js`, document.baseURI));
      const chart = chartOf(document.querySelector(selector));
      return chart.at(...chart.marks.get(trial)); }"""

    def points() -> bool:
        x, y, _ = page.evaluate(script, [HISTORY, trial])
        box = page.locator(f"{HISTORY} .plot").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + x, box["y"] + y)
        return tip.is_visible()

    eventually(points)


def colours(page: Page, selector: str) -> set[str]:
    """Return the frequent colours of a canvas."""
    script = """(canvas) => { const { width, height } = canvas; const found = {};
      const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
      for (let i = 0; i < data.length; i += 4) {
        const key = [...data.slice(i, i + 4)].join();
        found[key] = (found[key] ?? 0) + 1;
      }
      return Object.keys(found).filter((key) => found[key] > 20); }"""
    return set(page.locator(selector).first.evaluate(script))


def test_the_first_screen_is_drawn_without_plotly(root: str, page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(root + PAGE)
    page.locator(f"{HISTORY} .chart canvas").first.wait_for()
    page.locator('[data-figure="parallel"] canvas').first.wait_for()
    blue = [colour for colour in colours(page, f"{HISTORY} canvas") if colour.startswith("0,114,178")]

    assert blue  # marks
    assert not [url for url in asked if "plotly" in url]

    page.goto(f"{root}{PAGE}?tab=analysis")
    page.locator('[data-figure="slice"] .main-svg').first.wait_for()
    assert [url for url in asked if "plotly" in url]


def test_what_happens_appears_while_the_page_is_open(root: str, page: Page, service: MemoryTuningService) -> None:
    page.goto(f"{root}{PAGE}?tab=trials")
    tally(page, "30 trials")
    page.locator("#head .count", has_text="30 of 40").wait_for()

    put_trial(service, TRIALS)
    put_experiment(service, TRIALS + 1)

    tally(page, "31 trials")
    page.locator("#head .count", has_text="31 of 40").wait_for()


@pytest.mark.slow
def test_a_page_is_right_again_after_the_server_was_restarted(
    service: MemoryTuningService, page: Page, watched: Watched
) -> None:
    watched.expected.append("ERR_")
    with Server(service, host="127.0.0.1", port=0, ui=ui_routes) as first:
        page.goto(f"{first.url}/katib/{PAGE}?tab=trials")
        tally(page, "30 trials")
        page.locator("#head .count", has_text="30 of 40").wait_for()
    page.locator("#connection", has_text="Disconnected").wait_for()
    put_trial(service, TRIALS)

    with Server(service, host="127.0.0.1", port=first.port, ui=ui_routes):
        tally(page, "31 trials")
        page.wait_for_function("() => !document.getElementById('connection').textContent")


@pytest.mark.slow
def test_the_page_of_a_deleted_experiment_stays_to_be_read_and_has_no_buttons(
    root: str, page: Page, service: MemoryTuningService, watched: Watched
) -> None:
    watched.expected.append("404")
    page.goto(f"{root}{PAGE}?tab=trials")
    tally(page, "30 trials")
    page.locator("body[data-live]").wait_for()
    page.mouse.wheel(0, 600)
    service.delete("default", "demo")
    page.locator("#connection", has_text="deleted").wait_for()

    assert page.locator("#head button").count() == 0
    assert page.locator("#trials tbody tr").count() > 0
    box = page.locator("header.top").bounding_box()
    assert box is not None
    assert box["y"] == 0
    assert serious_violations(page) == []


def test_the_focus_survives_what_happens(root: str, page: Page, service: MemoryTuningService) -> None:
    page.goto(f"{root}{PAGE}?tab=trials")
    tally(page, "30 trials")
    page.keyboard.press("j")
    page.keyboard.press("j")
    focused = page.evaluate("document.activeElement.textContent")

    put_trial(service, TRIALS)
    tally(page, "31 trials")

    assert focused == "demo-0028"
    assert page.evaluate("document.activeElement.textContent") == focused


def test_the_best_parameters_are_copied_in_four_forms(root: str, page: Page, context: BrowserContext) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"{root}{PAGE}")
    copied = {}
    for form in ("YAML", "JSON", "Python", "Command line"):
        page.get_by_role("button", name=form, exact=True).click()
        page.locator("#said", has_text=f"Copied as {form}.").wait_for()
        copied[form] = page.evaluate("navigator.clipboard.readText()")

    assert copied["YAML"] == "x: 0.4733\n"
    assert json.loads(copied["JSON"]) == {"x": 0.4733}
    assert copied["Python"] == "{'x': 0.4733}"
    assert copied["Command line"] == "--x=0.4733"


SLOW = pytest.mark.slow


@pytest.mark.parametrize("form", ["csv", pytest.param("json", marks=SLOW), pytest.param("parquet", marks=SLOW)])
def test_what_is_filtered_is_downloaded(root: str, page: Page, form: str) -> None:
    page.goto(f"{root}{PAGE}?tab=trials&state=Failed")
    with page.expect_download() as download:
        page.get_by_label(f"Download {form.upper()}").click()

    assert download.value.suggested_filename == f"demo-trials.{form}"
    if form == "csv":
        assert len(download.value.path().read_text().splitlines()) == 4


def test_keys_move_search_and_explain_themselves(root: str, page: Page) -> None:
    page.goto(f"{root}{PAGE}?tab=trials")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.type") == "search"

    page.keyboard.type("?")  # in a field a key is a letter
    assert page.locator("dialog[open]").count() == 0
    page.keyboard.press("Escape")

    page.keyboard.press("?")
    page.locator("dialog#keys", has_text="next row").wait_for()
    page.keyboard.press("Escape")
    page.locator("dialog#keys").wait_for(state="hidden")

    page.keyboard.press("5")
    page.wait_for_url("**tab=yaml")
    page.keyboard.press("g")
    page.keyboard.press("e")
    page.wait_for_url(root)


def test_more_trials_are_asked_for_with_the_command_that_does_the_same(
    root: str, page: Page, service: MemoryTuningService
) -> None:
    page.goto(f"{root}{PAGE}?tab=yaml")
    page.get_by_role("button", name="More trials…").click()
    page.get_by_label("Trials in all").fill("50")
    page.get_by_text("The same in a terminal").first.click()

    assert page.locator("dialog[open] [data-command=katib]").inner_text() == "katib budget demo --max-trials 50"
    assert '{"spec":{"maxTrialCount":50}}' in page.locator("dialog[open] [data-command=kubectl]").inner_text()

    page.get_by_role("button", name="Change").click()
    page.locator("#head .count", has_text="30 of 50").wait_for()
    assert service.get(Experiment, "default", "demo").encode()["spec"]["maxTrialCount"] == 50


@pytest.mark.slow
def test_an_error_stands_at_its_field(root: str, page: Page, watched: Watched) -> None:
    watched.expected.append("422")
    page.goto(f"{root}{PAGE}?tab=yaml")
    page.get_by_role("button", name="More trials…").click()
    page.get_by_label("Trials at once").fill("0")
    page.get_by_role("button", name="Change").click()
    page.locator("#parallelTrialCount-error", has_text="0").wait_for()

    assert page.evaluate("document.activeElement.name") == "parallelTrialCount"


def test_an_experiment_is_stopped_and_goes_on(root: str, page: Page, service: MemoryTuningService) -> None:
    page.goto(f"{root}{PAGE}?tab=yaml")
    page.get_by_role("button", name="Stop…").click()
    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_role("button", name="Resume…").click()
    page.get_by_role("button", name="Resume", exact=True).click()

    page.get_by_role("button", name="Stop…").wait_for()


def test_an_ended_experiment_is_confirmed_and_the_runs_are_shown(
    root: str, page: Page, service: MemoryTuningService
) -> None:
    service.submit(document("ended"), source="ended.yaml")
    service.play("default", "ended")
    for name in ("ended", "ended-confirm"):
        service.explain("default", Diagnosis("Experiment", name, "Succeeded", "It succeeded."))
    page.goto(f"{root}experiments/default/ended?tab=yaml")
    page.get_by_role("button", name="Confirm…").click()
    page.get_by_label("Configurations").fill("2")
    page.get_by_label("Runs of each").fill("4")

    shown = page.locator("dialog[open] [data-command=katib]").text_content()
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_url("**/experiments/default/ended-confirm")
    page.locator("body[data-live]").wait_for()
    assert shown == "katib confirm ended --top 2 --repeats 4"
    assert service.get(Experiment, "default", "ended-confirm").spec.max_trial_count == 8


def test_an_experiment_is_deleted_by_a_second_click_that_names_it(
    root: str, page: Page, service: MemoryTuningService, watched: Watched
) -> None:
    watched.expected.append("status of 404")  # the page may ask for its head once more before it goes
    page.goto(f"{root}{PAGE}?tab=yaml")
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("button", name="Cancel").last.click()
    assert [one.name for one in service.experiments()] == ["demo"]

    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("button", name="Delete demo").click()
    page.wait_for_url(root)

    page.get_by_text("No experiment yet.").wait_for()


def test_a_button_that_is_pressed_while_its_part_of_the_page_is_renewed_gets_its_click(root: str, page: Page) -> None:
    page.goto(f"{root}{PAGE}?tab=yaml")
    eventually(lambda: page.evaluate("Boolean(document.getElementById('head').shownHtml)"), "the head is renewed once")
    page.get_by_role("button", name="Delete…").hover()
    page.mouse.down()
    swapped = """async (html) => {
        const { swap } = await import(document.querySelector("script[type=module]").src.replace(/[^/]*$/, "core.js"));
        swap(document.getElementById("head"), html + document.getElementById("head").innerHTML);
    }"""
    page.evaluate(swapped, "<p>newer</p>")
    shown_while_pressed = page.get_by_text("newer").count()
    page.mouse.up()
    page.get_by_role("button", name="Cancel").last.click()

    assert shown_while_pressed == 0
    page.get_by_text("newer").wait_for()


@pytest.mark.slow
def test_a_failure_is_explained_with_what_helps(root: str, page: Page, service: MemoryTuningService) -> None:
    service.explain(
        "default",
        Diagnosis(
            "Experiment", "demo", "Running", "It waits.", ("<b>Nothing</b> moves.",), ("Start it.",), ("last line",)
        ),
    )
    page.goto(f"{root}{PAGE}?tab=yaml")
    page.locator("#why", has_text="Start it.").wait_for()

    assert "<b>Nothing</b> moves." in page.locator("#why").inner_text()


@pytest.mark.slow
def test_the_head_says_which_share_of_the_readings_was_saved(
    root: str, page: Page, service: MemoryTuningService
) -> None:
    service.explain("default", Diagnosis("Experiment", "demo", "Running", "It runs.", saved_share=0.66))
    page.goto(f"{root}{PAGE}")

    page.locator("#saved-share", has_text="66% of the readings").wait_for()


@pytest.fixture
def running(service: MemoryTuningService) -> str:
    """The name of a trial that runs, and has reported two readings."""
    name = f"demo-{TRIALS:04d}"
    service.put(make_trial(name, condition("Running", "TrialRunning", at=300), index=TRIALS, x="0.3"))
    service.store_readings(name, MetricLog(START, "loss", "0.9", 0), MetricLog(START, "loss", "0.25", 1))
    return name


@pytest.mark.slow
def test_a_running_trial_shows_its_newest_value_wherever_it_is(
    root: str, page: Page, service: MemoryTuningService, running: str
) -> None:
    page.goto(f"{root}{PAGE}?where=x:0.3..0.3")
    row = page.locator(f'#trials tr[data-trial="{running}"]')
    row.locator("[data-so-far] .so-far", has_text="0.25").wait_for()
    page.locator("#now li", has_text=running).locator(".so-far", has_text="0.25").wait_for()
    mark = """async (value) => {
        const chart = await import(new URL(`${document.body.dataset.assets}/chart.js`, document.baseURI));
        const [added] = chart.chartOf(document.querySelector("[data-figure=history]"))?.added ?? [];
        return added?.x[0] === 31 && added.y[0] === value;
    }"""
    page.wait_for_function(mark, arg=0.25)
    assert row.locator("polyline").get_attribute("points") == "0.0,1.0 60.0,17.0"
    row.locator("[data-since]").evaluate("e => { e.dataset.since = new Date(Date.now() - 100_000).toISOString() }")

    service.store_readings(running, MetricLog(START, "loss", "0.125", 2))
    row.locator(".so-far", has_text="0.125").wait_for()
    page.wait_for_function(mark, arg=0.125)
    row.locator("[data-since]", has_text="1m4").wait_for()  # it goes on
    assert serious_violations(page) == []


@pytest.mark.slow
def test_a_search_is_completed_and_explained_when_it_finds_nothing(root: str, page: Page) -> None:
    page.goto(f"{root}{PAGE}?tab=trials")
    tally(page, "30 trials")
    page.get_by_label("Search").press_sequentially("x<0.5 state=fa")
    assert page.locator("#filters-terms option").evaluate_all("found => found.map(({ value }) => value)") == [
        "x<0.5 state=Failed"
    ]
    page.get_by_label("Search").fill("x<0.5 state=Failed")
    tally(page, "1 of 30 trials")
    page.get_by_label("Search").fill("nonsense")

    page.get_by_text("All words have to match").wait_for()


@pytest.mark.slow
def test_an_experiment_without_trials_has_no_empty_figures_and_gets_them_with_the_first(
    root: str, page: Page, service: MemoryTuningService
) -> None:
    service.submit(document("empty"), source="empty.yaml")
    service.explain("default", Diagnosis("Experiment", "empty", "Created", "It was created."))
    page.goto(f"{root}experiments/default/empty")
    page.get_by_text("No trial yet.").wait_for()
    assert "\N{EN DASH}" not in page.locator("main").inner_text()
    assert page.locator("[data-figure]:visible, .hint:visible, .stat").count() == 0

    service.play("default", "empty")
    page.locator("[data-figure=history] .chart canvas").first.wait_for()


@pytest.mark.slow
def test_the_dialog_that_deletes_counts_all_trials_of_now(root: str, page: Page, service: MemoryTuningService) -> None:
    page.goto(f"{root}{PAGE}?tab=yaml")
    page.locator("body[data-live]").wait_for()
    put_trial(service, TRIALS)
    put_experiment(service, TRIALS + 1)
    page.locator("#head .count", has_text="31 of 40").wait_for()
    page.get_by_role("button", name="Delete…").click()

    page.get_by_text("Its 31 trials").wait_for()


@pytest.mark.slow
def test_events_are_folded_by_trial_and_filtered(root: str, page: Page, service: MemoryTuningService) -> None:
    for reason in ("TrialCreated", "JobSucceeded"):
        service.record("default", RecordedEvent(START, "Trial", "demo-0001", False, reason, reason))
    service.record("default", RecordedEvent(START, "Trial", "demo-0009", True, "JobFailed", "it broke"))
    page.goto(f"{root}{PAGE}?tab=events")
    rows = page.locator("#events tbody tr:visible")
    rows.filter(has_text="TrialCreated, JobSucceeded").wait_for()
    assert rows.count() == 2
    page.get_by_label("Show").select_option("warnings")

    rows.filter(has_text="TrialCreated").wait_for(state="detached")
    assert rows.count() == 1


@pytest.mark.slow
def test_events_are_shown_newest_first_and_live(root: str, page: Page, service: MemoryTuningService) -> None:
    service.record("default", RecordedEvent(START, "Experiment", "demo", False, "ExperimentCreated", "<i>made</i>"))
    page.goto(f"{root}{PAGE}?tab=events")
    page.get_by_text("<i>made</i>").wait_for()

    service.record("default", RecordedEvent(START, "Trial", "demo-0001", True, "JobFailed", "it broke", 3))
    put_trial(service, TRIALS)

    page.locator("#events tbody tr.warning", has_text="it broke").wait_for()
    assert "it broke" in page.locator("#events tbody tr").first.inner_text()


@pytest.mark.slow
@pytest.mark.parametrize("tab", ["overview", "trials", "analysis", "events", "yaml"])
def test_every_tab_can_be_used_by_everybody_and_fits_a_phone(root: str, page: Page, tab: str) -> None:
    page.set_viewport_size({"width": WIDTHS["phone"], "height": 780})
    page.goto(f"{root}{PAGE}?tab={tab}")
    page.wait_for_load_state("load")

    assert sideways_scroll(page) == 0
    assert serious_violations(page) == []

    for figure in page.locator("[data-figure]").all():  # the menus of one that can't be drawn go
        figure.evaluate("element => element.scrollIntoView()")
        figure.locator(".loading").wait_for(state="detached")
    for menu in page.locator("details.menu summary:visible").all():
        menu.click()
        assert sideways_scroll(page) == 0
        page.keyboard.press("Escape")  # it covers the next one


@pytest.mark.slow
def test_open_dialogs_can_be_used_by_everybody(root: str, page: Page) -> None:
    page.goto(f"{root}{PAGE}?tab=yaml")
    for name in ("More trials…", "Add a trial…", "Delete…"):
        page.get_by_role("button", name=name).click()

        assert serious_violations(page) == []

        page.keyboard.press("Escape")


def test_a_page_of_which_nothing_has_changed_asks_for_each_figure_once_and_for_no_part_again(
    page: Page, root: str
) -> None:
    page.goto(f"{root}{PAGE}")  # the server has read the trials by the second visit
    page.locator("[data-figure=history] .chart canvas").first.wait_for()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.partition("/data/")[2].partition("?")[0]))

    page.goto(f"{root}{PAGE}")
    page.locator("body[data-live]").wait_for()
    page.locator("[data-figure=history] .chart canvas").first.wait_for()

    parts = [address.removeprefix(PAGE).strip("/") for address in asked if address]
    assert sorted(parts) == ["figures/history", "figures/parallel"]


@pytest.mark.slow
def test_trials_are_ticked_by_keys_and_compared_in_what_differs(
    root: str, page: Page, service: MemoryTuningService
) -> None:
    service.write_log("default", "demo-0029", b"epoch 1\repoch 2\n\x1b[31m<b>loss</b>\x1b[0m=0.4")
    page.goto(f"{root}{PAGE}?tab=trials")
    tally(page, "30 trials")
    for key in "jxjx":
        page.keyboard.press(key)
    page.locator("#picks", has_text="2 chosen").wait_for()
    page.get_by_role("link", name="Next").click()
    tally(page, "26 to 30 shown")
    page.locator("#picks", has_text="2 chosen").wait_for()
    page.get_by_role("checkbox", name="Compare demo-0000").check()
    page.locator("#picks", has_text="3 chosen").wait_for()
    page.keyboard.press("c")
    page.wait_for_url("**/compare?trial=**")

    row = page.locator("tbody tr")
    row.filter(has_text="Experiment").first.wait_for(state="hidden")
    assert row.filter(has=page.locator("th", has_text=re.compile("^x "))).is_visible()
    page.get_by_label("Show also what is the same").check()
    row.filter(has_text="Experiment").first.wait_for()
    assert (
        page.get_by_role("region", name="Output of demo-0029").locator("pre").inner_text() == "epoch 2\n<b>loss</b>=0.4"
    )
    assert serious_violations(page) == []


@pytest.mark.slow
def test_a_trial_and_its_experiment_are_marked_by_keys_and_found(
    root: str, page: Page, service: MemoryTuningService
) -> None:
    page.goto(f"{root}{PAGE}?tab=trials")
    tally(page, "30 trials")
    page.keyboard.press("t")
    page.get_by_label("Tags, separated").fill("vision")
    page.keyboard.press("Enter")
    page.locator("#said", has_text="Saved.").wait_for()
    for key in "jj":
        page.keyboard.press(key)
    page.keyboard.press("t")
    page.get_by_label("Tags, separated").fill("candidate, <b>bold</b>")
    page.locator("textarea[name=notes]").fill("keep it")
    page.get_by_role("button", name="Save").click()
    page.locator("tr[data-trial=demo-0028] .tag", has_text="<b>bold</b>").wait_for()
    page.wait_for_function("() => document.activeElement.id === 'trial demo-0028'")
    page.locator(".tag", has_text="candidate").click()
    tally(page, "1 of 30 trials")
    page.goto(f"{root}trials/default/demo-0028")

    assert page.locator(".title .tag").all_inner_texts() == ["candidate", "<b>bold</b>"]
    marks = marks_of(service.get(Trial, "default", "demo-0028").metadata.annotations)
    assert marks == Marks(("candidate", "<b>bold</b>"), "keep it")
    assert marks_of(service.get(Experiment, "default", "demo").metadata.annotations).tags == ("vision",)


@pytest.mark.slow
def test_a_view_is_saved_with_the_experiment_and_another_browser_opens_it(
    root: str, page: Page, browser: Browser, service: MemoryTuningService
) -> None:
    page.goto(f"{root}{PAGE}?tab=trials")
    tally(page, "30 trials")
    page.get_by_role("link", name="loss").first.click()
    page.get_by_label("Search").fill("state:failed")
    tally(page, "3 of 30 trials")
    page.locator("h1").click()
    page.keyboard.press("s")
    page.get_by_label("Save this view as").fill("Failed <b>first</b>")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="Failed <b>first</b>").wait_for()
    assert serious_violations(page) == []
    page.goto(f"{root}{PAGE}?tab=analysis")
    page.get_by_label("Up").select_option("duration")
    page.locator("#figure-scatter .tools button", has_text="log x").click()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.keyboard.press("s")
    page.keyboard.press("Enter")
    page.get_by_text("The link is copied.").wait_for()

    other = browser.new_page()
    other.goto(page.evaluate("navigator.clipboard.readText()"))
    other.locator("#figure-scatter .tools button", has_text="linear x").wait_for()
    assert other.get_by_label("Up").input_value() == "duration"
    other.get_by_text("Share", exact=True).click()
    other.get_by_role("link", name="Failed <b>first</b>").click()
    tally(other, "3 of 30 trials")
    assert other.locator("th[aria-sort]").inner_text().startswith("loss")
    other.get_by_text("Share", exact=True).click()
    other.get_by_role("button", name="Remove the view").click()
    eventually(
        lambda: views_of(service.get(Experiment, "default", "demo").metadata.annotations) == {},
        "its removal",
    )
    with other.expect_download() as report:
        other.get_by_role("link", name="Report in one file").click()
    assert report.value.suggested_filename == "demo.html"
    other.close()
