"""Answers to the requests of Katib's own page, for dashboards and scripts. Pure: objects in, answers out.

The formats are Katib's, without its defects: an experiment without a condition does not break a list, values with
commas are quoted, an undeclared metric is left out, and a value that is not a number does not end an answer.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC
from typing import Any

from katib.engine.runtime.objects import Key
from katib.model.metrics import MetricLog, is_usable
from katib.model.trials import ELIGIBLE, trial_state
from katib.model.types import UNAVAILABLE, Experiment, ObjectiveSpec, ObjectiveType, Trial
from katib.service.tuning.reading import assignments_of
from katib.service.tuning.service import Json
from katib.service.tuning.states import last_condition

PIPELINE_RUN = "kubeflow-kale.org/kfp-run-uuid"
_ARCHITECTURE, _NN_CONFIG = "architecture", "nn_config"


def experiment_row(experiment: Experiment) -> Json:
    """Return an experiment as a row of a list, with its status beside its name."""
    return {
        **(experiment.encode().get("status") or {}),
        "name": experiment.name,
        "namespace": experiment.namespace,
        "type": "nas" if experiment.spec.nas_config else "hp",
        "status": _condition_type(experiment),
    }


def experiment_csv(experiment: Experiment, trials: Sequence[Trial]) -> str:
    """Return a line of a head and one for each trial, without a line break at the end."""
    metrics, parameters = metric_types(experiment), parameter_names(experiment, trials)
    has_runs = any(_run_of(trial) for trial in trials)
    head = ["Status", "trialName", *metrics, *parameters, *(["KFP Run"] if has_runs else [])]
    rows = [_trial_row(trial, metrics, parameters, has_runs=has_runs) for trial in trials]
    return _csv([head, *rows]).removesuffix("\n")


def trial_csv(trial: Trial, readings: Iterable[MetricLog]) -> str:
    """Return a head and the best reading of every second for each metric of a trial; each line ends."""
    types = metric_types(trial)
    best: dict[tuple[str, str], str] = {}
    for reading in readings:
        if reading.name not in types or not is_usable(reading.value):
            continue
        key = (reading.name, reading.time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S"))
        pick = min if types[reading.name] == ObjectiveType.MINIMIZE else max
        best[key] = pick(best.get(key, reading.value), reading.value, key=float)
    order = {name: place for place, name in enumerate(types)}
    lines = sorted(best.items(), key=lambda item: (order[item[0][0]], item[0][1]))
    return _csv([["metricName", "time", "value"], *([*key, value] for key, value in lines)])


def architecture_rows(trials: Iterable[Trial]) -> list[Json]:
    """Return the architectures that succeeded, numbered in the order of trials."""
    rows: list[Json] = []
    for trial in trials:
        if _condition_type(trial) != "Succeeded":
            continue
        values = assignments_of(trial)
        observation = trial.status.observation
        metrics = {metric.name: metric.latest for metric in (observation.metrics if observation else ())}
        rows.append(
            {
                "Name": f"Generation {len(rows)}",
                "TrialName": trial.name,
                "Architecture": architecture_graph(values.get(_ARCHITECTURE, ""), values.get(_NN_CONFIG, "")),
                "MetricsName": list(metrics),
                "MetricsValue": list(metrics.values()),
            }
        )
    return rows


def architecture_graph(architecture: str, config: str) -> str:
    """Return an architecture as text for Graphviz; empty if there is none, or it is unreadable."""
    layers, operations = _parsed(architecture), _parsed(config)
    if not isinstance(layers, list) or not all(isinstance(layer, list) and layer for layer in layers):
        return ""
    embedding = operations.get("embedding") if isinstance(operations, dict) else None
    labels = ["Input", *(_operation_label(layer[0], embedding) for layer in layers), "Output"]
    nodes = [f"{place} [label={json.dumps(label, ensure_ascii=False)}];" for place, label in enumerate(labels)]
    edges = [f"{place}->{place + 1};" for place in range(len(labels) - 1)]
    for place, layer in enumerate(layers, start=1):
        links = enumerate(layer[1:], start=1)  # from the first layer on; the one before is always connected
        edges += [f"{source}->{place};" for source, link in links if link == 1 and source < place - 1]
    return "\n".join(["digraph G {", *nodes, *edges, "}"])


def template_rows(config_maps: Iterable[Json]) -> Json:
    """Return the templates of ConfigMaps, by namespace, by ConfigMap, and in the order of their keys."""
    spaces: dict[str, list[Json]] = {}
    for config_map in sorted(config_maps, key=Key.of):
        namespace, name = Key.of(config_map)
        data: Mapping[str, Any] = config_map.get("data") or {}
        templates = [{"Path": path, "Yaml": str(text)} for path, text in sorted(data.items())]
        row = {"ConfigMapName": name, "Templates": templates}
        spaces.setdefault(namespace, []).append(row)
    return {"Data": [{"ConfigMapNamespace": space, "ConfigMaps": maps} for space, maps in spaces.items()]}


def metric_types(obj: Experiment | Trial) -> dict[str, str]:
    """Return the declared metrics of an Experiment or a Trial, objectives first, and which direction is better."""
    objective = obj.spec.objective or ObjectiveSpec()
    terms = {term.name: term.type or objective.type for term in objective.terms}
    names = [*terms, *objective.additional_metric_names]
    return {name: terms.get(name, objective.type) for name in names if name}


def parameter_names(experiment: Experiment, trials: Sequence[Trial]) -> list[str]:
    """Return the parameters of an experiment; those of its trials if the experiment names none."""
    declared = [parameter.name for parameter in experiment.spec.parameters]
    return declared or list(dict.fromkeys(name for trial in trials for name in assignments_of(trial)))


def _trial_row(trial: Trial, metrics: Mapping[str, str], parameters: Sequence[str], *, has_runs: bool) -> Sequence[str]:
    values = assignments_of(trial)
    cells = [_condition_type(trial), trial.name]
    cells += [_best_text(trial, name, direction) for name, direction in metrics.items()]
    cells += [values.get(name, "") for name in parameters]
    return [*cells, _run_of(trial)] if has_runs else cells


def _best_text(trial: Trial, name: str, direction: str) -> str:
    """Return the best value that a trial ever read of a metric, or its mean; empty unless it ended with values."""
    if trial_state(trial) not in ELIGIBLE:
        return ""
    observation = trial.status.observation
    found = None if observation is None else observation.metric(name)
    if found is None:
        return ""
    extreme = found.mean or (found.min if direction == ObjectiveType.MINIMIZE else found.max)
    text = extreme if extreme not in ("", UNAVAILABLE) else found.latest
    return "" if text == UNAVAILABLE else text


def _condition_type(obj: Experiment | Trial) -> str:
    return last_condition(obj).type or "Created"


def _run_of(trial: Trial) -> str:
    return trial.metadata.annotations.get(PIPELINE_RUN, "")


def _csv(rows: Iterable[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _parsed(text: str) -> Any:
    """Parse text of the service: JSON with single quotes."""
    try:
        return json.loads(text.replace("'", '"'))
    except ValueError:
        return None


def _operation_label(number: Any, embedding: Any) -> str:
    operation = embedding.get(str(number)) if isinstance(embedding, dict) else None
    if not isinstance(operation, dict):
        return f"operation {number}"
    parameters = operation.get("opt_params")
    settings = [f"{key}={value}" for key, value in parameters.items()] if isinstance(parameters, dict) else []
    return "\n".join([str(operation.get("opt_type", number)), *settings])
