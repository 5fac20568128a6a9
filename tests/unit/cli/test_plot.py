"""`katib plot`."""

from __future__ import annotations

import json
import re
import resource
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from katib.errors import InvalidError
from katib.figures.files import write
from katib.model.metrics import MetricLog
from tests.support.golden import Golden
from tests.support.reports import data_of
from tests.support.tuning import START, MemoryTuningService, condition, make_experiment, make_trial, patched
from tests.unit.cli.conftest import Katib

NAME = "<img src=x onerror=alert(1)>"


def put_run(service: MemoryTuningService, name: str = "demo", **spec: Any) -> None:
    """Store an experiment of three trials, one of which was stopped early, with a curve of three steps each."""
    experiment = make_experiment(name, condition("Succeeded", message="max trial count has reached"))
    service.put(patched(experiment, spec=spec))
    for index, (loss, state) in enumerate([("0.5", "Succeeded"), ("0.9", "EarlyStopped"), ("0.25", "Succeeded")]):
        trial = f"{name}-{index}"
        service.put(make_trial(trial, condition(state), experiment=name, loss=loss, index=index, x=loss))
        for step in range(1, 4):
            moment = START + timedelta(seconds=10 * index + step)
            service.store_readings(trial, MetricLog(moment, "loss", str(float(loss) * step), step))


@pytest.fixture
def ended(service: MemoryTuningService) -> MemoryTuningService:
    put_run(service)
    return service


@pytest.fixture
def without_kaleido(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "kaleido", None)
    return


def test_it_writes_a_report_of_all_figures_that_apply_beside_those_that_do_not(
    katib: Katib, ended: MemoryTuningService, tmp_path: Path
) -> None:
    code, out, _ = katib("plot", "demo")

    text = (tmp_path / "demo.html").read_text()
    figures = data_of(text)["figures"]
    assert code == 0
    assert out.startswith("demo.html: history, intermediate, ")
    assert "history" in figures
    assert len(figures["intermediate"]["data"]) > 3
    assert "stopping" in figures
    assert text.count('id="plotly"') == 1
    assert "<strong>Succeeded</strong>" in text


def test_a_report_is_written_over_a_file_and_asks_the_network_for_nothing(
    katib: Katib, ended: MemoryTuningService, tmp_path: Path
) -> None:
    (tmp_path / "demo.html").write_text("old")

    assert katib("plot", "demo").code == 0
    assert "old" not in (tmp_path / "demo.html").read_text()[:200]

    katib("plot", "demo")

    text = (tmp_path / "demo.html").read_text()
    assert "default-src 'none'" in text
    assert not [mark for mark in ('src="http', 'href="http', "@import") if mark in text]


def test_a_report_shows_what_trials_are_called_as_text(
    katib: Katib, service: MemoryTuningService, tmp_path: Path
) -> None:
    put_run(service, algorithm={"algorithmName": NAME})
    service.put(make_trial("odd", condition("Failed"), index=9, x="</script>"))
    katib("plot", "demo")

    text = (tmp_path / "demo.html").read_text()
    assert NAME not in text
    assert "&lt;img src=x" in text


def test_figures_are_written_as_plotlys_json_the_history_unless_named(
    katib: Katib, ended: MemoryTuningService, tmp_path: Path, golden: Golden
) -> None:
    code, out, _ = katib("plot", "demo", "--figure", "edf", "-o", "edf.json")

    figure = json.loads((tmp_path / "edf.json").read_text())
    assert (code, out) == (0, "edf.json: edf\n")
    assert figure["layout"]["title"]["text"] == "demo: distribution of loss"

    assert katib("plot", "demo", "-o", "x.json").out == "x.json: history\n"

    katib("plot", "demo", "--figure", "intermediate", "--by", "time", "-o", "x.json")

    golden(json.loads((tmp_path / "x.json").read_text())["layout"]["xaxis"]["title"]["text"])


def test_several_experiments_are_compared(katib: Katib, ended: MemoryTuningService, tmp_path: Path) -> None:
    put_run(ended, "other")
    code, out, _ = katib("plot", "demo", "other")

    text = (tmp_path / "demo-other.html").read_text()
    assert (code, out) == (0, "demo-other.html: comparison\n")
    assert [trace["name"] for trace in data_of(text)["figures"]["comparison"]["data"]] == ["demo", "other"]


def test_an_experiment_without_trials_has_a_report_that_says_so(
    katib: Katib, service: MemoryTuningService, tmp_path: Path, golden: Golden
) -> None:
    service.put(make_experiment("fresh"))
    code, out, _ = katib("plot", "fresh")

    assert code == 0
    golden(out)
    golden(re.findall("<li>.*?</li>", (tmp_path / "fresh.html").read_text()))


def test_a_cluster_may_be_asked(katib: Katib, cluster: object, service: MemoryTuningService, tmp_path: Path) -> None:
    service.put(make_experiment("demo", namespace="team"))
    service.put(make_trial("demo-0", condition("Succeeded"), namespace="team", loss="1"))

    assert katib("plot", "demo", "--context", "work").code == 0


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["-o", "x.gif"],
            'x.gif: ".gif" is not a form that can be written; end the name with .html, .png, .svg, .pdf or .json',
        ),
        (["-o", "x"], "x: the name has no suffix, so the form is not known; end the name with .html, .png,"),
        (["-o", "gone/x.png"], "gone/x.png: there is no directory gone; name a file in a directory that exists"),
        (["--figure", "pie"], 'there is no figure "pie"; there are history, '),
        (["--figure", "comparison"], "--figure: comparison is a figure of several experiments; name the others, too"),
        (
            ["--figure", "edf", "--figure", "history", "-o", "x.png"],
            "--output: a .png file holds one figure, and 2 are asked for; write an .html file, or take one --figure",
        ),
        (["--metric", "speed"], 'metric: demo has no metric "speed"; choose of loss'),
        (["--objectives", "speed,loss"], 'objectives: demo has no objective "speed"; choose of loss'),
        (["other", "--figure", "edf"], "--figure: edf is a figure of one experiment; name one experiment, or take"),
        (["other"], 'experiment "other" is not in namespace default'),
    ],
    ids=["suffix", "no suffix", "directory", "figure", "one", "several", "metric", "objective", "of one", "missing"],
)
def test_what_is_wrong_is_one_line_and_nothing_is_written(
    katib: Katib, ended: MemoryTuningService, tmp_path: Path, arguments: list[str], line: str
) -> None:
    code, out, err = katib("plot", "demo", *arguments)

    assert (code, out) == (2, "")
    assert line in err
    assert err.count("\n") == 1
    assert not list(tmp_path.glob("*.*ml"))


def test_a_figure_that_was_asked_for_and_cannot_be_drawn_is_an_error(
    katib: Katib, service: MemoryTuningService, golden: Golden
) -> None:
    service.put(make_experiment("fresh"))
    code, _, err = katib("plot", "fresh", "--figure", "timeline")

    assert code == 2
    golden(err)


def test_an_image_without_kaleido_says_what_to_install(
    katib: Katib, ended: MemoryTuningService, without_kaleido: None, golden: Golden
) -> None:
    code, _, err = katib("plot", "demo", "-o", "x.png")

    assert code == 2
    golden(err)


def test_a_file_that_cannot_be_whole_leaves_the_one_that_was_there(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write(path, b"earlier")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(InvalidError, match=r"x\.json: it cannot be written: file too large; choose another"):
            write(path, b"x" * 2000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert (path.read_bytes(), list(tmp_path.iterdir())) == (b"earlier", [path])


def test_a_file_that_cannot_be_written_is_one_line(
    katib: Katib, ended: MemoryTuningService, tmp_path: Path, golden: Golden
) -> None:
    (tmp_path / "x.json").symlink_to("/proc/version")
    code, _, err = katib("plot", "demo", "-o", "x.json")

    assert code == 2
    golden(err)
