"""The curves of a trial as a figure."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from katib.figures.curves import curve_of
from katib.figures.trial_curves import CurveLook, draw_trial_curves, smoothed
from katib.model.metrics import ZERO_TIME, MetricLog
from tests.support.golden import Golden

Json = dict[str, Any]
START = datetime(2030, 1, 1, tzinfo=UTC)


def readings(*values: str, step: bool = True, timed: bool = True) -> list[MetricLog]:
    """Return readings ten seconds apart."""
    return [
        MetricLog(START + timedelta(seconds=10 * n) if timed else ZERO_TIME, "loss", value, n if step else None)
        for n, value in enumerate(values)
    ]


def drawn(*values: str, look: CurveLook | None = None, step: bool = True, timed: bool = True) -> Json:
    curve = curve_of(readings(*values, step=step, timed=timed), START.timestamp())
    figure: Json = json.loads(draw_trial_curves("demo", "loss", {"demo-1": curve}, look or CurveLook()).to_json())
    return figure


def traces(figure: Json) -> dict[str, Json]:
    return {trace["meta"]["kind"]: trace for trace in figure["data"]}


@pytest.mark.parametrize("by", ["step", "time"])
def test_where_the_asked_axis_is_missing_the_note_says_what_is_drawn(by: str, golden: Golden) -> None:
    figure = drawn("1", "0.5", look=CurveLook(by=by), step=by != "step", timed=by != "time")["layout"]

    assert figure["xaxis"]["title"]["text"] == "reading"
    golden(figure["annotations"][0]["text"])


def test_readings_stand_at_their_steps_or_times(golden: Golden) -> None:
    figure = drawn("0.5", "0.25")

    assert traces(figure)["readings"]["x"] == [0, 1]
    assert traces(figure)["readings"]["y"] == [0.5, 0.25]
    assert figure["layout"]["xaxis"]["title"]["text"] == "step"

    figure = drawn("0.5", "0.25", look=CurveLook(by="time"))

    assert traces(figure)["readings"]["x"] == [0, 10]
    assert figure["layout"]["meta"]["by"] == "time"

    figure = drawn(*["1"] * 20, look=CurveLook(by="time"))

    assert traces(figure)["readings"]["x"][-1] == pytest.approx(190 / 60)
    golden(figure["layout"]["xaxis"]["title"]["text"])

    assert traces(drawn("3", "2", step=False))["readings"]["x"] == [1, 2]
    assert traces(drawn("3", "2", step=False, timed=False, look=CurveLook(by="time")))["readings"]["x"] == [1, 2]

    assert curve_of(readings("1", "2"), math.nan).seconds.tolist() == [0, 10]


def test_what_is_no_number_is_a_gap_and_a_mark(golden: Golden) -> None:
    figure = drawn("1", "nan", "inf", "word", "2")
    found = traces(figure)

    assert found["readings"]["y"] == [1, None, None, None, 2]
    assert found["odd"]["x"] == [1, 2, 3]
    assert found["odd"]["showlegend"]
    golden(figure["layout"]["annotations"][0]["text"])


def test_of_a_long_curve_extremes_and_what_is_no_number_are_drawn() -> None:
    values = ["1"] * 9_000
    values[4_321], values[5_555], values[7_777] = "99", "-99", "nan"
    figure = drawn(*values)
    line = traces(figure)["readings"]

    assert len(line["x"]) <= 2_300
    assert {99, -99, None} <= set(line["y"])
    assert traces(figure)["odd"]["x"] == [7_777]
    assert "the extremes are drawn" in figure["layout"]["annotations"][0]["text"]


def test_a_curve_that_was_thinned_before_is_not_counted() -> None:
    curve = replace(curve_of(readings("3", "2", step=False), START.timestamp()), is_whole=False)
    figure = json.loads(draw_trial_curves("demo", "loss", {"demo-1": curve}, CurveLook()).to_json())

    assert figure["layout"]["meta"]["by"] == "time"


def test_a_smoothed_curve_has_its_readings_behind_it() -> None:
    found = traces(drawn("1", "nan", "3", look=CurveLook(smoothing=0.5)))

    assert found["readings"]["opacity"] < 1
    assert found["smoothed"]["y"] == [1, None, pytest.approx((0.25 * 1 + 0.5 * 3) / 0.75)]
    assert found["smoothed"]["meta"]["count"] == 2

    averages, _, count = smoothed(np.full(50, 7.0), 0.95)

    assert averages.tolist() == pytest.approx([7.0] * 50)
    assert count == 50


def test_a_logarithmic_axis_says_what_it_cannot_show(golden: Golden) -> None:
    figure = drawn("1", "0", "-1", look=CurveLook(log=True))

    assert figure["layout"]["yaxis"]["type"] == "log"
    golden(figure["layout"]["annotations"][0]["text"])


def test_curves_of_several_trials_differ_and_one_without_readings_is_named() -> None:
    curves = {
        name: curve_of(found, START.timestamp())
        for name, found in (("a", readings("1", "2")), ("b<i>", readings("3")), ("c", []))
    }
    figure = json.loads(draw_trial_curves("two", "loss", curves, CurveLook()).to_json())
    lines = [trace for trace in figure["data"] if trace["meta"]["kind"] == "readings"]

    assert [trace["name"] for trace in lines] == ["a", "b&lt;i&gt;", "c"]
    assert len({trace["line"]["color"] for trace in lines}) == 3
    assert "Without readings: c" in figure["layout"]["annotations"][0]["text"]
