"""A page in one file without server and network: an experiment read-only, or some figures of it.

The file makes no requests and runs two scripts: ours and Plotly, which its policy names by their digests. So names and
output of a trial cannot run, and neither can code that is compiled from text.
"""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from typing import Any
from urllib.parse import quote

import numpy as np

from katib.doors.ui.assets import PLOTLY, read_asset
from katib.doors.ui.downloads import values_of
from katib.doors.ui.rendering import fragment
from katib.doors.ui.trial_columns import NAME, NUMBER, ColumnGroup, columns_of, first_columns
from katib.doors.ui.trial_table import search_terms
from katib.figures.catalogue import FIGURES
from katib.figures.data import ExperimentData, FigureOptions, measure_of
from katib.figures.parallel import is_broad
from katib.figures.pictures import Picture, pictures_of
from katib.figures.trials import TrialTable, objectives_of
from katib.model.types import Experiment
from katib.model.version import __version__
from katib.model.yaml_text import dump_yaml
from katib.service.tuning.reading import (
    algorithm_of,
    compared_words,
    duration_of,
    further_values_of_best,
    objective_words,
    pareto_words,
    short,
    texts_of,
)
from katib.service.tuning.service import TuningService
from katib.service.tuning.states import active_count, best_value, completed_count, last_condition, lost_count, state_of

SCRIPTS = ("parallel.js", "chart.js", "figures.js", "search.js", "report.js")
"""Modules of the page that are bundled into one script, each after the modules that it imports."""

_OVERVIEW = ("history", "parallel")
"""Figures above the table of trials."""

_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([\w.]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?function |class |const )", re.MULTILINE)
_POLICY = (
    "default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
"""Plotly sets styles of elements, which needs 'unsafe-inline' for styles, and makes an image of a figure from data."""


@dataclass(frozen=True, slots=True)
class _Script:
    """A script with the digest by which a policy names it."""

    text: str

    @property
    def source(self) -> str:
        """Its source in a policy."""
        return f"'sha256-{b64encode(sha256(self.text.encode()).digest()).decode()}'"


def report_of(service: TuningService, data: ExperimentData) -> str:
    """Return the page of an experiment with all figures that can be drawn.

    Raises:
        UnavailableError: The service cannot be reached.
    """
    return experiment_html(data, pictures_of(service, data, [figure.name for figure in FIGURES], FigureOptions()))


def experiment_html(data: ExperimentData, pictures: Sequence[Picture]) -> str:
    """Return the page of an experiment: head, history, table of trials, analysis, and the experiment as YAML.

    The table can be sorted and filtered; brushes of the parallel coordinates filter it, too.
    """
    return report_html([data], pictures, trials=data.trials, yaml=dump_yaml(data.experiment.encode()))


def report_html(
    experiments: Sequence[ExperimentData],
    pictures: Sequence[Picture],
    *,
    trials: TrialTable | None = None,
    yaml: str = "",
) -> str:
    """Return the page of some figures of one experiment, or of several side by side."""
    drawn = {picture.name: picture for picture in pictures if picture.figure is not None}
    figures = {name: json.loads(one.figure.to_json()) for name, one in drawn.items() if one.figure is not None}
    script, plotly = bundled_script(), _plotly()
    return fragment(
        "report.html",
        title=", ".join(data.name for data in experiments),
        heads=[_head(data.experiment) for data in experiments],
        wide=trials is not None and is_broad(len(trials.values) + 1),
        first=[one for name, one in drawn.items() if trials is not None and name in _OVERVIEW],
        drawn=[one for name, one in drawn.items() if trials is None or name not in _OVERVIEW],
        left_out=[picture for picture in pictures if picture.figure is None],
        trials=trials,
        terms=search_terms(columns_of(trials)) if trials is not None else [],
        yaml=yaml,
        policy=_POLICY.format(scripts=f"{script.source} {plotly.source}"),
        style=_text("style.css"),
        icon=_text("icon.svg"),
        icon_address=f"data:image/svg+xml,{quote(_text('icon.svg'))}",
        script=script.text,
        plotly=_packed_plotly() if figures else "",
        data=_packed(json.dumps({"figures": figures, "trials": trials_json(trials)}, allow_nan=False).encode()),
        written=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
    )


def trials_json(trials: TrialTable | None) -> dict[str, Any] | None:
    """Return the trials for sorting and filtering by a script: columns of values; None if there are none."""
    if trials is None or not len(trials):
        return None
    columns, rows = columns_of(trials), np.arange(len(trials))
    shown = {NAME, *first_columns(columns)}
    measure = measure_of(trials)
    objective = next(c.key for c in columns.values() if (c.group, c.name) == (ColumnGroup.METRIC, measure.name))
    return {
        "columns": [
            {
                "key": column.key,
                "name": column.name,
                "title": column.title,
                "group": column.group,
                "kind": column.kind,
                "shown": column.key in shown,
                "values": values_of(trials, column, rows),
            }
            for column in columns.values()
            if (column.group, column.name) != (ColumnGroup.TRIAL, NUMBER)
        ],
        "best": measure.best,
        "sort": {"key": objective, "descending": bool(measure.maximize)},
    }


@cache
def bundled_script() -> _Script:
    """Return the modules as one script that imports nothing.

    Raises:
        ValueError: A module imports a name that no earlier one exports.
    """
    exported: set[str] = set()
    parts = []
    for name in SCRIPTS:
        text = _text(name)
        wanted = {word.strip() for names, _ in _IMPORT.findall(text) for word in names.split(",")}
        if wanted - exported:
            raise ValueError(
                f"{name} imports {', '.join(sorted(wanted - exported))}, which no script before it exports"
            )
        exported |= set(re.findall(r"^export (?:async )?(?:function|class|const) (\w+)", text, re.MULTILINE))
        parts.append(_EXPORT.sub("", _IMPORT.sub("", text)))
    return _Script("".join(parts))


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
        "lost": lost_count(experiment),
        "stopped": experiment.status.trials_early_stopped,
        "running": active_count(experiment),
        "duration": duration_of(experiment),
        "metric": objectives_of(experiment)[0].name,
        "trial": best.best_trial_name,
        "value": "" if value is None else short(value),
        "exact": value or "",
        "further": [(name, short(text), text) for name, text in further_values_of_best(experiment)],
        "parameters": [(name, short(text), text) for name, text in texts_of(best.parameter_assignments).items()],
        "compared": compared_words(experiment),
        "pareto": pareto_words(experiment) if experiment.status.pareto_set else "",
    }


def _text(name: str) -> str:
    return read_asset(name).body.decode()


@cache
def _plotly() -> _Script:
    return _Script(_text(PLOTLY))


@cache
def _packed_plotly() -> str:
    return b64encode(read_asset(PLOTLY).compressed).decode()


def _packed(content: bytes) -> str:
    return b64encode(gzip.compress(content, 9, mtime=0)).decode()
