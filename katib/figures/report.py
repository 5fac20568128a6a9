"""Several figures as one HTML file that needs no network: a head with what was found, then picture after picture."""

from __future__ import annotations

import gzip
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from katib.api.types import Experiment
from katib.figures.data import ExperimentData
from katib.figures.trials import objectives_of
from katib.tuning.reading import (
    algorithm_of,
    best_value,
    completed_count,
    duration_of,
    further_values_of_best,
    last_condition,
    objective_words,
    pareto_words,
    short,
    state_of,
    texts_of,
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


def _head(experiment: Experiment) -> dict[str, Any]:
    best, value = experiment.status.current_optimal_trial, best_value(experiment)
    return {
        "name": experiment.name,
        "namespace": experiment.namespace,
        "state": state_of(experiment),
        "reason": last_condition(experiment).message,
        "objective": objective_words(experiment),
        "algorithm": algorithm_of(experiment),
        "ended": completed_count(experiment),
        "limit": experiment.spec.max_trial_count,
        "duration": duration_of(experiment),
        "metric": objectives_of(experiment)[0].name,
        "trial": best.best_trial_name,
        "value": "" if value is None else short(value),
        "exact": value or "",
        "further": [(name, short(text), text) for name, text in further_values_of_best(experiment)],
        "parameters": [(name, short(text), text) for name, text in texts_of(best.parameter_assignments).items()],
        "pareto": pareto_words(experiment) if experiment.status.pareto_set else "",
    }


@cache
def _packed_plotly() -> str:
    source = files("plotly").joinpath("package_data", "plotly.min.js").read_bytes()
    return b64encode(gzip.compress(source, 6, mtime=0)).decode()
