"""The page of a trial, in a browser."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from katib.engine.controllers.kinds import TRIAL
from katib.engine.runtime.objects import Key, Kind
from katib.model.metrics import MetricLog
from katib.model.types import API_VERSION
from katib.service.tuning.service import Diagnosis
from tests.support.tuning import START, MemoryTuningService, condition, document, make_pod, make_trial, patched

if TYPE_CHECKING:
    from playwright.sync_api import Page

NS, RUNNING = "default", "demo-run"
RUNS = condition("Running", "TrialRunning", "Trial is running", at=100)
ADDRESS = f"trials/{NS}/{RUNNING}"


def reading(step: int, value: str, *, name: str = "loss") -> MetricLog:
    return MetricLog(START + timedelta(seconds=100 + step), name, value, step)


@pytest.fixture
def running(service: MemoryTuningService) -> MemoryTuningService:
    """An experiment with ended trials and one that runs, which has reported three readings and printed four lines."""
    service.submit(document("demo"), source="demo.yaml")
    service.play(NS, "demo")
    service.put(make_trial(RUNNING, RUNS, index=10, x="0.7"))
    service.store_readings(RUNNING, *(reading(step, value) for step, value in enumerate(("4", "nan", "2"))))
    service.write_log(NS, RUNNING, b"first\nsecond Loss=4\nthird loss=2\nlast\n")
    return service


@pytest.fixture
def opened(root: str, running: MemoryTuningService, page: Page) -> Page:
    """The page of the running trial, with its curve drawn and its log there."""
    page.goto(root + ADDRESS)
    page.locator('[data-metric="loss"] .main-svg').first.wait_for()
    page.get_by_text("4 lines.").wait_for()
    return page


def traces(page: Page, metric: str = "loss") -> dict[str, Any]:
    """Return what is drawn of a metric by kind: x and y."""
    found: dict[str, Any] = page.evaluate(
        """metric => Object.fromEntries(document.querySelector(`[data-metric="${metric}"] .figure`).data
            .map((trace) => [trace.meta.kind, {x: trace.x, y: trace.y}]))""",
        metric,
    )
    return found


def until(page: Page, script: str, argument: object = None) -> None:
    """Wait until a script in the page is true."""
    page.wait_for_function(script, arg=argument)


def drawn(page: Page, count: int) -> None:
    """Wait until so many readings of the loss are drawn."""
    script = """count => document.querySelector('[data-metric="loss"] .figure').data?.[0].x.length === count"""
    until(page, script, count)


def test_a_reading_appears_where_it_belongs_without_a_new_picture(opened: Page, running: MemoryTuningService) -> None:
    opened.evaluate("""document.querySelector('[data-metric="loss"] .figure').data.old = true""")
    running.store_readings(RUNNING, reading(3, "1.5"), reading(4, "inf"))
    drawn(opened, 5)

    assert traces(opened)["readings"] == {"x": [0, 1, 2, 3, 4], "y": [4, None, 2, 1.5, None]}
    assert traces(opened)["odd"]["x"] == [1, 4]
    assert (
        opened.locator('[data-metric="loss"] [data-latest]')
        .inner_text()
        .startswith("Latest: no finite number, at step 4")
    )
    assert opened.evaluate("""document.querySelector('[data-metric="loss"] .figure').data.old""")


@pytest.mark.slow
def test_a_metric_that_nobody_expected_gets_a_curve(opened: Page, running: MemoryTuningService) -> None:
    running.store_readings(RUNNING, reading(0, "7", name="speed"))

    opened.locator('[data-metric="speed"] .main-svg').first.wait_for()


@pytest.mark.slow
def test_readings_of_a_late_step_stand_in_order(opened: Page, running: MemoryTuningService) -> None:
    running.store_readings(RUNNING, reading(9, "1"), reading(5, "1.5"))
    drawn(opened, 5)

    until(opened, """() => document.querySelector('[data-metric="loss"] .figure').data[0].x.join() === '0,1,2,5,9'""")


def test_smoothing_keeps_the_readings_behind_and_goes_on_with_new_ones(
    opened: Page, running: MemoryTuningService
) -> None:
    opened.get_by_label("Smoothing").fill("0.5")
    until(opened, """() => document.querySelector('[data-metric="loss"] .figure').data.length === 3""")
    running.store_readings(RUNNING, reading(3, "1"))
    drawn(opened, 4)
    found = traces(opened)

    assert found["readings"]["y"] == [4, None, 2, 1]
    assert found["smoothed"]["y"] == [4, None, pytest.approx(2 / 0.75), pytest.approx((0.5 + 0.5 * 2) / 0.875)]


@pytest.mark.slow
def test_the_axes_are_chosen(opened: Page) -> None:
    opened.get_by_label("logarithmic").check()
    until(opened, """() => document.querySelector('[data-metric="loss"] .figure').layout.yaxis.type === 'log'""")
    opened.locator('[data-look="by"]').select_option("time")

    until(opened, """() => document.querySelector('[data-metric="loss"] .figure').layout.meta.by === 'time'""")


def test_the_end_of_a_trial_is_shown(opened: Page, running: MemoryTuningService) -> None:
    done = condition("Succeeded", "TrialSucceeded", "Trial has succeeded", at=200)
    running.put(make_trial(RUNNING, RUNS, done, loss="2", index=10, x="0.7"))

    opened.locator("[data-part=head] .state").get_by_text("Succeeded").wait_for()
    opened.get_by_text("The log has ended.").wait_for()
    assert "above the best, 0.3" in opened.locator("[data-part=head]").inner_text()


def test_parameters_stand_beside_those_of_the_best(opened: Page) -> None:
    row = opened.locator("[data-part=parameters] tbody tr").inner_text()

    assert row.split() == ["x", "0.7", "2.3", "\u00d7", "higher", "0.3"]


def test_the_log_is_followed_and_searched(opened: Page, running: MemoryTuningService) -> None:
    opened.keyboard.press("/")
    opened.keyboard.type("loss=")
    opened.get_by_text("2 matches").wait_for()
    running.write_log(NS, RUNNING, b"again loss=9\n")
    opened.get_by_text("3 matches").wait_for()
    opened.keyboard.press("Enter")
    opened.get_by_text("1 of 3 matches").wait_for()

    assert opened.evaluate("[...CSS.highlights.get('log-match')].map(String)") == ["Loss=", "loss=", "loss="]
    assert opened.evaluate("[...CSS.highlights.get('log-current')].map(String)") == ["Loss="]
    assert not opened.get_by_label("follow").is_checked()


PRINTED = {
    "<img src=x onerror=alert(1)><b>bold</b>": "<img src=x onerror=alert(1)><b>bold</b>",
    "\x1b[1;31mred\x1b[0m \x1b]0;title\x07plain": "red plain",
    "\x1b[2J\x1b[10;5Hmoved": "moved",
    "10%\r50%\r100%\r": "100%",
    "bell\x07 null\x00": "bell\u2407 null\u2400",
    "x" * 6000: "x" * 5000 + "\u2026 (1,000 more characters)",
}
"""What a program writes, and what is to be seen: HTML, colours and titles, cursor movements, a progress bar, other
control characters, a very long line."""


def test_what_a_trial_prints_is_text(opened: Page, running: MemoryTuningService) -> None:
    running.write_log(NS, RUNNING, "".join(f"{printed}\n" for printed in PRINTED).encode())
    opened.get_by_text("10 lines.").wait_for()
    text: str = opened.locator("[data-log-lines]").evaluate("element => element.textContent")

    assert text.splitlines()[4:] == list(PRINTED.values())
    assert opened.locator("[data-log-lines] img, [data-log-lines] b").count() == 0


@pytest.mark.slow
def test_of_a_long_log_the_last_lines_are_kept(opened: Page, running: MemoryTuningService) -> None:
    for part in range(10):
        first = part * 10_000
        running.write_log(NS, RUNNING, b"".join(b"line %d\n" % n for n in range(first, first + 10_000)))
    until(opened, "() => document.querySelector('[data-log-lines]').textContent.includes('line 99999\\n')")

    assert 4_700 < opened.locator("[data-log-lines]").evaluate("element => element.textContent").count("\n") <= 5_250
    assert "download the log for all" in opened.locator("[data-log-status]").inner_text()
    until(
        opened,
        """() => {
            const { scrollTop, clientHeight, scrollHeight } = document.querySelector('[data-log-lines]');
            return scrollTop + clientHeight > scrollHeight - 5;
        }""",
    )


@pytest.mark.slow
def test_a_replica_is_chosen(root: str, running: MemoryTuningService, page: Page) -> None:
    for replica in ("master-0", "worker-0"):
        running.store.create(make_pod(f"{RUNNING}-{replica}", RUNNING, replica=replica))
    page.goto(root + ADDRESS)
    page.locator("[data-log-replica]").select_option("worker-0")

    page.locator("[data-log-lines]").get_by_text("worker-0 main").wait_for()
    assert "replica=worker-0" in (page.get_by_role("link", name="Download").get_attribute("href") or "")


@pytest.mark.slow
def test_a_failed_trial_tells_its_cause_and_its_output_once_and_draws_no_empty_curve(
    root: str, running: MemoryTuningService, page: Page
) -> None:
    cause = "ValueError: lr is too large"
    output = f"epoch 1\nTraceback (most recent call last):\n{cause}\n"
    running.put(make_trial("demo-bad", condition("Failed", message=f"Trial has failed: {cause}"), index=11, x="0.8"))
    running.write_log(NS, "demo-bad", output.encode())
    lines = tuple(output.splitlines())
    found = Diagnosis(
        "Trial", "demo-bad", "Failed", f"demo-bad failed: {cause}.", ("It is alone.",), ("Fix it.",), lines
    )
    running.explain(NS, found)
    page.goto(f"{root}trials/{NS}/demo-bad")
    page.get_by_text("The log has ended.").wait_for()
    text = page.locator("main").inner_text()

    assert (text.count(cause), text.count("Traceback")) == (2, 1)  # in the head, and in the output
    assert page.locator("main .reason").first.inner_text() == cause
    assert "none yet" not in text
    assert page.get_by_role("heading", name="Curves").count() == 0
    page.get_by_text("Fix it.").wait_for()


@pytest.mark.slow
def test_head_and_curve_of_a_running_trial_tell_the_same_value(opened: Page, running: MemoryTuningService) -> None:
    running.explain(NS, Diagnosis("Trial", RUNNING, "Running", "It runs.", ("Latest loss is 4, 1 reading so far.",)))
    opened.reload()
    drawn(opened, 3)
    running.store_readings(RUNNING, reading(3, "1.25"))
    drawn(opened, 4)
    head = opened.locator("[data-part=head] .facts").inner_text()

    assert "1.25" in head
    assert "so far, at step 3" in head
    assert "1.25, at step 3" in opened.locator('[data-metric="loss"] [data-latest]').inner_text()
    assert opened.locator("section.why").is_hidden()


@pytest.mark.slow
def test_a_running_trial_without_a_reading_has_no_axes(root: str, running: MemoryTuningService, page: Page) -> None:
    running.put(make_trial("demo-quiet", RUNS, index=11, x="0.8"))
    page.goto(f"{root}trials/{NS}/demo-quiet")
    page.get_by_text("No reading yet.").wait_for()
    assert page.locator(".curve .figure").is_hidden()

    running.store_readings("demo-quiet", reading(0, "4"))
    page.locator('[data-metric="loss"] .main-svg').first.wait_for()


def test_brackets_lead_to_the_trials_beside(opened: Page) -> None:
    opened.get_by_text("Trial 4 of 4").wait_for()
    opened.keyboard.press("[")

    opened.wait_for_url("**/trials/default/demo-0002")


@pytest.mark.slow
def test_two_pages_of_a_trial_share_one_look(
    root: str, running: MemoryTuningService, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    lookers: set[str] = set()
    read: Callable[..., Any] = running.readings

    def readings(*args: Any, **more: Any) -> Any:
        if threading.current_thread().name.startswith("trial "):
            lookers.add(str(threading.get_ident()))
        return read(*args, **more)

    monkeypatch.setattr(running, "readings", readings)
    other = page.context.new_page()
    for one in (page, other):
        one.goto(root + ADDRESS)
        drawn(one, 3)
    running.store_readings(RUNNING, reading(3, "1"))
    for one in (page, other):
        drawn(one, 4)

    assert len(lookers) == 1


def test_the_log_of_a_waiting_trial_begins_when_it_runs(root: str, running: MemoryTuningService, page: Page) -> None:
    running.put(make_trial("demo-wait", index=11, x="0.8"))
    page.goto(f"{root}trials/{NS}/demo-wait")
    page.get_by_text("The log begins when the trial runs.").wait_for()
    running.write_log(NS, "demo-wait", b"hello\n")
    running.put(make_trial("demo-wait", RUNS, index=11, x="0.8"))

    page.locator("[data-log-lines]").get_by_text("hello").wait_for()


def test_a_trial_is_paused_and_resumed(root: str, running: MemoryTuningService, page: Page) -> None:
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": {}}
    name, kind = "demo-train", Kind("kubeflow.org/v1", "PyTorchJob")
    running.put(patched(make_trial(name, RUNS, index=11, x="0.7"), spec={"runSpec": job}))
    owner = {
        "apiVersion": API_VERSION,
        "kind": "Trial",
        "name": name,
        "uid": running.store.get(TRIAL, Key(NS, name))["metadata"]["uid"],
    }
    running.store.create({**job, "metadata": {"name": name, "namespace": NS, "ownerReferences": [owner]}})
    page.goto(f"{root}trials/{NS}/{name}")
    page.get_by_role("button", name="Pause…").click()
    page.get_by_text("The same in a terminal").first.click()
    patch = """kubectl -n default patch PyTorchJob.v1.kubeflow.org demo-train --type merge -p """
    page.get_by_text(f"""{patch}'{{"spec":{{"runPolicy":{{"suspend":true}}}}}}'""").wait_for()
    page.get_by_text("katib pause demo-train").wait_for()
    page.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_text("Paused: its pods end.").wait_for()
    assert running.store.get(kind, Key(NS, name))["spec"] == {"runPolicy": {"suspend": True}}

    waits = condition("Running", "TrialSuspended", "Trial waits: its job is suspended", at=160)
    running.put(make_trial(name, {**waits, "status": "False"}, index=11))
    page.get_by_text("waits: its job is suspended", exact=True).wait_for()
    page.get_by_role("button", name="Resume…").click()
    page.get_by_role("button", name="Resume", exact=True).click()
    page.get_by_text("Resumed.").wait_for()
    assert running.store.get(kind, Key(NS, name))["spec"] == {"runPolicy": {"suspend": False}}
