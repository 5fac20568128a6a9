"""Pictures of a real run: in Python, and in files that a real browser opens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import katib
from katib.errors import InvalidError, NotFoundError, UnavailableError
from tests.support.browser import chromium, open_browser, watch, why_not
from tests.support.cli import katib_here

pytestmark = pytest.mark.slow


def train(x: float, layers: int) -> None:
    """Report a falling curve of five steps."""
    for step in range(1, 6):
        katib.report(loss=x / step + layers / 10, step=step)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> katib.TuneResult:
    """What a search of twelve trials found."""
    return katib.tune(
        train,
        {"x": katib.search.double(0.1, 1), "layers": katib.search.int(1, 4)},
        objective="loss",
        max_trials=12,
        parallel=2,
        algorithm="random",
        settings={"random_state": 1},
        name="demo",
        data_dir=tmp_path_factory.mktemp("pictures"),
        verbose=False,
    )


def test_a_result_shows_its_figures(result: katib.TuneResult) -> None:
    figure = result.plot.intermediate()

    lines = [trace for trace in figure.data if trace.mode == "lines"]
    assert len(lines) == 12
    assert all(list(trace.x) == [1, 2, 3, 4, 5] for trace in lines)
    assert figure.layout.xaxis.title.text == "step"


def test_an_experiment_is_drawn_by_its_name(result: katib.TuneResult) -> None:
    figure = katib.plots.history("demo", data_dir=result.data_dir)

    [best] = [trace for trace in figure.data if trace.name == "best so far"]
    assert best.y[-1] == pytest.approx(result.best.value)


def test_results_are_compared_with_experiments(result: katib.TuneResult) -> None:
    assert len(katib.plots.comparison([result, "demo"], data_dir=result.data_dir).data) == 2


def test_what_cannot_be_drawn_is_an_error_in_one_line(result: katib.TuneResult, tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match='metric: demo has no metric "speed"; choose of loss'):
        result.plot.history(metric="speed")
    with pytest.raises(NotFoundError, match='"other"'):
        katib.plots.history("other", data_dir=result.data_dir)
    with pytest.raises(UnavailableError, match="there is no data directory"):
        katib.plots.history("demo", data_dir=tmp_path / "gone")
    with pytest.raises(InvalidError, match="server: it is given beside data_dir; give one of them"):
        katib.plots.history("demo", data_dir=tmp_path, server="http://127.0.0.1:1")


def test_a_figure_is_written_as_json_that_plotly_reads(result: katib.TuneResult, tmp_path: Path) -> None:
    done = katib_here("plot", "demo", "--data-dir", result.data_dir, "-o", "history.json", cwd=tmp_path)

    assert (done.returncode, done.stdout) == (0, "history.json: history\n")
    assert json.loads((tmp_path / "history.json").read_text())["layout"]["title"]["text"] == "demo: history"


@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_a_browser_draws_every_figure_of_a_report_without_an_error_or_a_request(
    result: katib.TuneResult, tmp_path: Path
) -> None:
    done = katib_here("plot", "demo", "--data-dir", result.data_dir, cwd=tmp_path)
    assert done.returncode == 0, done.stderr

    names = done.stdout.strip().removeprefix("demo.html: ").split(", ")
    with open_browser() as browser:
        page = browser.new_page()
        watched = watch(page)
        page.goto((tmp_path / "demo.html").as_uri())
        for name in names:
            page.locator(f"#figure-{name}").scroll_into_view_if_needed(timeout=120_000)
            page.locator(f"#figure-{name} :is(.main-svg, canvas)").first.wait_for(timeout=120_000)
        watched.check()
        page.close()
    assert {"history", "intermediate", "timeline"} <= set(names)


@pytest.mark.slow
@pytest.mark.skipif(not chromium(), reason="there is no Chromium; install Debian's package chromium")
@pytest.mark.parametrize(("form", "start"), [("png", b"\x89PNG"), ("svg", b"<svg"), ("pdf", b"%PDF")])
def test_a_figure_is_written_as_an_image(result: katib.TuneResult, tmp_path: Path, form: str, start: bytes) -> None:
    pytest.importorskip("kaleido")
    done = katib_here("plot", "demo", "--data-dir", result.data_dir, "-o", f"history.{form}", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert (tmp_path / f"history.{form}").read_bytes().startswith(start)


@pytest.mark.skipif(not chromium(), reason="there is no Chromium; install Debian's package chromium")
def test_an_image_without_a_browser_says_what_to_install(result: katib.TuneResult, tmp_path: Path) -> None:
    pytest.importorskip("kaleido")
    done = katib_here(
        *("plot", "demo", "--data-dir", result.data_dir, "-o", "history.png"),
        cwd=tmp_path,
        BROWSER_PATH=str(tmp_path / "gone"),
    )

    assert done.returncode == 2
    assert "install Chromium" in done.stderr
    assert done.stderr.count("\n") == 1
