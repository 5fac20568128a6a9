"""Several figures as one HTML file that needs no network: a head with what was found, then picture after picture."""

from __future__ import annotations

import gzip
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from katib.figures.data import ExperimentData
from katib.figures.trials import objectives_of
from katib.tuning.reading import (
    Json,
    assignments_of,
    best_trial_of,
    best_value,
    completed_count,
    duration_of,
    further_values,
    last_condition,
    name_of,
    namespace_of,
    objective_words,
    pareto_set_of,
    pareto_words,
    short,
    state_of,
    status_of,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True, slots=True)
class Picture:
    """One figure of a report.

    Attributes:
        name: Of the figure.
        title: Above it.
        tells: How to read it.
        figure: The figure; None when it cannot be drawn.
        obstacle: Why it cannot be drawn.
    """

    name: str
    title: str
    tells: str
    figure: go.Figure | None
    obstacle: str = ""


def report_html(experiments: Sequence[ExperimentData], pictures: Sequence[Picture]) -> str:
    """Return the page of some figures of one experiment, or of several side by side.

    Plotly's JavaScript is in it once, compressed; a browser from 2023 on unpacks it. Light and dark follow the system.
    The file may load nothing; Plotly compiles code for some figures, so that it may.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    environment = Environment(
        loader=PackageLoader("katib.figures", "."),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # JSON that cannot end the script element in which it stands.
    texts = ((one, one.figure.to_json().replace("<", "\\u003c")) for one in pictures if one.figure is not None)
    return environment.get_template("report.html").render(
        title=", ".join(data.name for data in experiments),
        heads=[_head(data.experiment) for data in experiments],
        drawn=list(texts),
        left_out=[picture for picture in pictures if picture.figure is None],
        plotly=_packed_plotly(),
        written=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _head(experiment: Json) -> Json:
    best = status_of(experiment).get("currentOptimalTrial") or {}
    value = best_value(experiment)
    spec = experiment.get("spec", {})
    return {
        "name": name_of(experiment),
        "namespace": namespace_of(experiment),
        "state": state_of(experiment),
        "reason": str(last_condition(experiment).get("message", "")),
        "objective": objective_words(experiment),
        "algorithm": str((spec.get("algorithm") or {}).get("algorithmName", "")),
        "ended": completed_count(experiment),
        "limit": spec.get("maxTrialCount"),
        "duration": duration_of(experiment),
        "metric": objectives_of(experiment)[0].name,
        "trial": str(best.get("bestTrialName", "")),
        "value": "" if value is None else short(value),
        "exact": value or "",
        "further": [(name, short(text), text) for name, text in further_values(best_trial_of(experiment))],
        "parameters": [(name, short(text), text) for name, text in assignments_of({"spec": best}).items()],
        "pareto": pareto_words(experiment) if pareto_set_of(experiment) else "",
    }


@cache
def _packed_plotly() -> str:
    source = files("plotly").joinpath("package_data", "plotly.min.js").read_bytes()
    return b64encode(gzip.compress(source, 6, mtime=0)).decode()
