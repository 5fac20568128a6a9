"""Files with one mistake each; `tests/golden/wrong_files.txt` shows what `katib validate` says of them."""

from __future__ import annotations

from typing import Any

import yaml

from tests.support.experiments import a_choice, a_double, a_job, a_template, an_experiment, an_int


def _with_setting(name: str, value: str) -> dict[str, Any]:
    settings = [{"name": name, "value": value}]
    return an_experiment(algorithm={"algorithmName": "tpe", "algorithmSettings": settings})


def _with_container(**fields: Any) -> dict[str, Any]:
    job = a_job()
    job["spec"]["template"]["spec"]["containers"] = [{"name": "training", "image": "busybox", **fields}]
    return an_experiment(trialTemplate=a_template(trialSpec=job))


_MOMENTUM = "${trialParameters.momentum}"


def _with_momentum(parent: str, value: str, *arguments: str, script: str = "") -> dict[str, Any]:
    """Return an experiment whose momentum depends on another parameter and is an argument of its own."""
    names = ("optimizer", "momentum")
    template = a_template(f"echo loss=1 ${{trialParameters.optimizer}} {script}", {name: name for name in names})
    template["trialSpec"]["spec"]["template"]["spec"]["containers"][0]["args"] = list(arguments)
    momentum = {**a_double("momentum"), "when": {"parameter": parent, "values": [value]}}
    return an_experiment(parameters=[a_choice("optimizer", ["adam", "sgd"]), momentum], trialTemplate=template)


GOOD = yaml.safe_dump(an_experiment())
_EXPERIMENTS: dict[str, dict[str, Any]] = {
    "wrong kind": {**an_experiment(), "kind": "Experimnt"},
    "wrong version": {**an_experiment(), "apiVersion": "kubeflow.org/v1alpha3"},
    "no DNS label": an_experiment(name="My_Exp"),
    "long name": an_experiment(name="a" * 41),
    "unknown field": an_experiment(maxTrialCounts=3),
    "wrong type": an_experiment(maxTrialCount="x"),
    "no trials": an_experiment(maxTrialCount=0),
    "too many at once": an_experiment(parallelTrialCount=9),
    "no objective": an_experiment(objective=None),
    "direction": an_experiment(objective={"type": "maximise", "objectiveMetricName": "loss"}),
    "resume policy": an_experiment(resumePolicy="Always"),
    "unknown algorithm": an_experiment(algorithm={"algorithmName": "tpee"}),
    "setting value": _with_setting("n_startup_trials", "many"),
    "setting name": _with_setting("n_startup_trial", "5"),
    "bounds": an_experiment(parameters=[a_double("lr", low="1", high="0")]),
    "bound is NaN": an_experiment(parameters=[a_double("lr", low="nan")]),
    "step": an_experiment(parameters=[an_int("lr", step="100")]),
    "empty list": an_experiment(parameters=[a_choice("lr", [])]),
    "duplicate parameter": an_experiment(parameters=[a_double("lr"), a_double("lr")]),
    "condition on nothing": _with_momentum("optimiser", "sgd", f"--momentum={_MOMENTUM}"),
    "condition that never holds": _with_momentum("optimizer", "SGD", f"--momentum={_MOMENTUM}"),
    "absent in a script": _with_momentum("optimizer", "sgd", script=_MOMENTUM),
    "absent value of a flag": _with_momentum("optimizer", "sgd", "--momentum", _MOMENTUM),
    "placeholder without parameter": an_experiment(
        command="echo ${trialParameters.learningRate} ${trialParameters.momentum}"
    ),
    "trial parameter without placeholder": an_experiment(command="echo 1"),
    "parameter without placeholder": an_experiment(parameters=[a_double("lr"), a_double("momentum")]),
    "no command": _with_container(args=["${trialParameters.learningRate}"]),
    "no such program": _with_container(command=["no-such-program", "${trialParameters.learningRate}"]),
    "job kind": an_experiment(trialTemplate=a_template(trialSpec={**a_job(), "kind": "PyTorchJob"})),
    "primary container": an_experiment(trialTemplate=a_template(primaryContainerName="main")),
    "collector": an_experiment(metricsCollectorSpec={"collector": {"kind": "Prometheus"}}),
    "endpoint": an_experiment(
        metricsCollectorSpec={
            "collector": {"kind": "PrometheusMetric"},
            "source": {"httpGet": {"port": "http", "path": "/metrics"}},
        }
    ),
    "collector without command": an_experiment(
        metricsCollectorSpec={"collector": {"kind": "Custom", "customCollector": {"name": "mine", "image": "mine:1"}}}
    ),
    "filter": an_experiment(
        metricsCollectorSpec={"collector": {"kind": "StdOut"}, "source": {"filter": {"metricsFormat": ["([a-z"]}}}
    ),
}
WRONG_FILES = {
    "empty file": "",
    "a list": "- 1\n",
    "several documents": f"{GOOD}\n---\n{GOOD}",
    "not YAML": "a: [1\nb: }",
    "tabs": "a:\n\tb: 1\n",
    "a NUL byte": "a: \0",
    **{name: yaml.safe_dump(raw) for name, raw in _EXPERIMENTS.items()},
}
