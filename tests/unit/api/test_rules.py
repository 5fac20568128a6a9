"""Every rule of Katib's validation, V1 to V58, and the rules it lacks: what breaks it, and what just does not.

V7 to V9 are about updates (`test_update.py`); V37 is about the inside of a Job and belongs to what runs Jobs.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support.experiments import a_choice, a_double, a_job, a_template, an_experiment, an_int
from tests.support.gate import broken_rules, errors_of
from tests.support.golden import Golden

METRICS_FORMAT = r"([\w|-]+)\s*=\s*([+-]?\d*(\.\d+)?([Ee][+-]?\d+)?)"
CONFIG_MAP = {"configMapName": "templates", "configMapNamespace": "default", "templatePath": "job.yaml"}
CONDITIONS = {"successCondition": "status.ok", "failureCondition": "status.bad"}
TEMPLATE = "spec.trialTemplate"
COLLECTOR = "spec.metricsCollectorSpec"
FILE, ENDPOINT = f"{COLLECTOR}.source.fileSystemPath", f"{COLLECTOR}.source.httpGet"
FORMATS, REFERENCES = f"{COLLECTOR}.source.filter.metricsFormat", f"{TEMPLATE}.trialParameters"
SPACE = "spec.parameters[0].feasibleSpace"


def with_labels(**labels: str) -> dict[str, Any]:
    raw = an_experiment()
    raw["metadata"]["labels"] = labels
    return raw


FIRST, SECOND = {"name": "accuracy", "type": "maximize"}, {"name": "seconds", "type": "minimize"}


def objectives(*terms: dict[str, Any], algorithm: str = "random", **fields: Any) -> dict[str, Any]:
    """Return an experiment with several objectives; fields beside them, and `earlyStopping` of the spec."""
    spec = {"earlyStopping": fields.pop("earlyStopping")} if "earlyStopping" in fields else {}
    return an_experiment(
        objective={"objectives": list(terms), **fields}, algorithm={"algorithmName": algorithm}, **spec
    )


def bounded(*bounds: dict[str, Any]) -> dict[str, Any]:
    return an_objective(constraints=list(bounds))


def an_objective(**fields: Any) -> dict[str, Any]:
    objective = {"type": "minimize", "objectiveMetricName": "loss", **fields}
    return an_experiment(objective={key: value for key, value in objective.items() if value is not None})


def an_algorithm(name: str, **settings: str) -> dict[str, Any]:
    pairs = [{"name": key, "value": value} for key, value in settings.items()]
    return an_experiment(algorithm={"algorithmName": name, "algorithmSettings": pairs})


def with_template(**fields: Any) -> dict[str, Any]:
    return an_experiment(trialTemplate=a_template(**fields))


def with_trial_parameters(*pairs: tuple[str, str], command: str = "echo ${trialParameters.learningRate}") -> Any:
    entries = [{"name": name, "reference": reference} for name, reference in pairs]
    return with_template(command=command, trialParameters=entries)


def with_job(**fields: Any) -> dict[str, Any]:
    return with_template(trialSpec={**a_job(), **fields}, **CONDITIONS)


def with_parameter(parameter: dict[str, Any]) -> dict[str, Any]:
    """Return an experiment that tunes one parameter, named `lr` unless it says otherwise."""
    return an_experiment(parameters=[{"name": "lr", **parameter}])


def a_space(parameter_type: str, **feasible_space: Any) -> dict[str, Any]:
    return with_parameter({"name": "lr", "parameterType": parameter_type, "feasibleSpace": feasible_space})


def a_collector(kind: str, source: dict[str, Any] | None = None, **collector: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"collector": {"kind": kind, **collector}}
    return an_experiment(metricsCollectorSpec={**spec, "source": source} if source is not None else spec)


def a_filter(*patterns: str, kind: str = "StdOut") -> dict[str, Any]:
    return a_collector(kind, {"filter": {"metricsFormat": list(patterns)}})


def a_path(collector: str = "File", /, **path: str) -> dict[str, Any]:
    return a_collector(collector, {"fileSystemPath": path})


def an_architecture_search(parameter: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    operation = {"operationType": "conv", "parameters": [parameter or a_choice("size", ["3"])]}
    nas = {"graphConfig": {"numLayers": 1, "inputSizes": [32, 32, 3]}, "operations": [operation]}
    template = a_template("echo ${trialParameters.net}", {"net": "architecture"})
    return an_experiment(**{"parameters": None, "nasConfig": nas, "trialTemplate": template, **spec})


def bad(*case: Any) -> tuple[Any, ...]:
    return case


def with_initial_trials(*points: dict[str, str], **spec: Any) -> dict[str, Any]:
    trials = [{"parameterAssignments": [{"name": k, "value": v} for k, v in point.items()]} for point in points]
    return an_experiment(initialTrials=trials, **spec)


def with_warm_start(*experiments: str, **fields: Any) -> dict[str, Any]:
    return an_experiment(warmStart={"experiments": list(experiments), **fields})


INITIAL = "spec.initialTrials"
POINT = f"{INITIAL}[0].parameterAssignments"
WHERE = "spec.parameterConstraints"


def with_where(*constraints: str, default: str = "", initial: str = "", resource: str = "") -> dict[str, Any]:
    experiment = with_initial_trials(*([{"lr": initial}] if initial else []), parameterConstraints=list(constraints))
    if default:
        experiment["spec"]["parameters"][0]["default"] = default
    if resource:
        settings = [{"name": "resource_name", "value": resource}]
        experiment["spec"]["algorithm"]["algorithmSettings"] = settings
    return experiment


def with_default(lr: str, *, count: int = 9) -> dict[str, Any]:
    experiment = with_initial_trials(A_POINT, maxTrialCount=count, parallelTrialCount=1, maxFailedTrialCount=1)
    experiment["spec"]["parameters"][0]["default"] = lr
    return experiment


EARLIER = "spec.warmStart.experiments"
A_POINT = {"lr": "0.05"}

OBJECTIVE, TERMS, BOUNDS = "spec.objective", "spec.objective.objectives", "spec.objective.constraints"
METRIC, OTHERS = f"{OBJECTIVE}.objectiveMetricName", f"{OBJECTIVE}.additionalMetricNames"
PARALLEL, FAILED, DEFAULT = "spec.parallelTrialCount", "spec.maxFailedTrialCount", "spec.parameters[0].default"
NAME, SETTINGS = "spec.algorithm.algorithmName", "spec.algorithm.algorithmSettings"


def with_prior(*, lr: dict[str, Any] | None = None, listed: str = "", **prior: Any) -> dict[str, Any]:
    space = {"list": listed.split()} if listed else {"min": "1e-5", "max": "0.1", "distribution": "logUniform"}
    kind = "categorical" if listed else "double"
    return with_parameter({"parameterType": kind, "feasibleSpace": {**space, **(lr or {})}, "prior": prior})


PRIOR = "spec.parameters[0].prior"

REJECTED: dict[str, tuple[Any, ...]] = {
    "prior out of bounds": bad(f"{PRIOR}.center", "prior-center-range", with_prior(center="3")),
    "prior of no number": bad(f"{PRIOR}.center", "prior-center-number", with_prior(center="fast")),
    "prior of nothing": bad(PRIOR, "prior-form", with_prior()),
    "prior of two forms": bad(PRIOR, "prior-form", with_prior(center="1e-3", weights={"1e-3": 1})),
    "prior with a factor of 1": bad(f"{PRIOR}.factor", "prior-distance-range", with_prior(center="1e-3", factor=1)),
    "prior with an infinite factor": bad(
        f"{PRIOR}.factor", "prior-distance-range", with_prior(center="1e-3", factor="inf")
    ),
    "prior with a width on a logarithmic scale": bad(
        f"{PRIOR}.width", "prior-distance-scale", with_prior(center="1e-3", width=0.1)
    ),
    "prior without width": bad(
        f"{PRIOR}.width", "prior-distance-range", with_prior(lr={"distribution": "uniform"}, center="1e-3", width=0)
    ),
    "prior with a factor for a list": bad(
        f"{PRIOR}.factor", "prior-distance-listed", with_prior(listed="adam sgd", center="adam", factor=2)
    ),
    "prior of a single value": bad(
        PRIOR, "prior-single-value", with_prior(lr={"min": "0.1", "distribution": "uniform"}, center="0.1")
    ),
    "prior of a single choice": bad(PRIOR, "prior-single-value", with_prior(listed="adam", center="adam")),
    "prior beside a normal distribution": bad(
        PRIOR, "prior-distribution", with_prior(lr={"distribution": "logNormal"}, center="1e-3")
    ),
    "weights of a number": bad(f"{PRIOR}.weights", "prior-weights", with_prior(weights={"1e-3": 1})),
    "weight of an unknown choice": bad(
        f"{PRIOR}.weights", "prior-unknown-value", with_prior(listed="adam sgd", weights={"adam": 3, "lion": 1})
    ),
    "center of an unknown choice": bad(
        f"{PRIOR}.center", "prior-unknown-value", with_prior(listed="adam sgd", center="adm")
    ),
    "negative weight": bad(
        f"{PRIOR}.weights", "prior-weight-range", with_prior(listed="adam sgd", weights={"adam": 3, "sgd": -1})
    ),
    "weights of zero": bad(
        f"{PRIOR}.weights", "prior-weights-zero", with_prior(listed="adam sgd", weights={"adam": 0, "sgd": 0})
    ),
    "prior of an operation's parameter": bad(
        "spec.nasConfig.operations[0].parameters[0].prior",
        "prior-of-operation",
        an_architecture_search({**a_choice("size", ["3", "5"]), "prior": {"center": "3"}}),
    ),
    "constraint of an unknown parameter": bad(f"{WHERE}[0]", "where-unknown", with_where("lrr < 1")),
    "constraint without a comparison": bad(f"{WHERE}[1]", "where-syntax", with_where("lr < 1", "lr")),
    "constraint that no point satisfies": bad(WHERE, "where-nothing-left", with_where("lr > 5")),
    "constraint that hardly a point satisfies": bad(WHERE, "where-nothing-left", with_where("0.05 <= lr < 0.05001")),
    "constraint that the defaults violate": bad(
        f"{WHERE}[0]", "where-default", with_where("lr > 0.05", default="0.02")
    ),
    "constraint of the resource": bad(f"{WHERE}[0]", "where-resource", with_where("lr > 0.05", resource="lr")),
    "constraint that an initial trial violates": bad(
        POINT, "assignment-constraint", with_where("lr > 0.05", initial="0.02")
    ),
    "constraint of an architecture search": bad(
        WHERE, "where-parameters", an_architecture_search(parameterConstraints=["a < 1"])
    ),
    "default out of bounds": bad(DEFAULT, "default-infeasible", with_default("3")),
    "default of no number": bad(DEFAULT, "default-infeasible", with_default("fast")),
    "no room for the defaults": bad(INITIAL, "initial-trials-budget", with_default("0.01", count=1)),
    "initial trial of an unknown parameter": bad(
        f"{POINT}[1].name", "assignment-unknown", with_initial_trials({**A_POINT, "x": "1"})
    ),
    "initial trial without a value": bad(
        f"{INITIAL}[1].parameterAssignments", "assignment-missing", with_initial_trials(A_POINT, {})
    ),
    "initial trial out of bounds": bad(f"{POINT}[0].value", "assignment-infeasible", with_initial_trials({"lr": "3"})),
    "more initial trials than the budget": bad(
        INITIAL, "initial-trials-budget", with_initial_trials(A_POINT, A_POINT, maxTrialCount=1, parallelTrialCount=1)
    ),
    "more initial trials than fit": bad(
        INITIAL, "initial-trials-count", with_initial_trials(*[A_POINT] * 1001, maxTrialCount=2000)
    ),
    "warm start from itself": bad(f"{EARLIER}[0]", "warm-start-itself", with_warm_start("demo")),
    "warm start from nothing": bad(f"{EARLIER}[0]", "warm-start-empty", with_warm_start("")),
    "warm start twice from one": bad(f"{EARLIER}[1]", "warm-start-twice", with_warm_start("a", "a")),
    "more earlier trials than fit": bad(
        "spec.warmStart.trials", "warm-start-count", with_warm_start(trials=[{}] * 5001)
    ),
    "V1 digit first": bad("metadata.name", "name-format", an_experiment(name="1234-test")),
    "V1 upper case": bad("metadata.name", "name-format", an_experiment(name="Demo")),
    "V1 underscore inside": bad("metadata.name", "name-format", an_experiment(name="my_demo")),
    "V1 hyphen last": bad("metadata.name", "name-format", an_experiment(name="demo-")),
    "V1 line break last": bad("metadata.name", "name-format", an_experiment(name="demo\n")),
    "V1 dot inside": bad("metadata.name", "name-format", an_experiment(name="my.demo")),
    "V1 too long": bad("metadata.name", "name-length", an_experiment(name="a" * 48)),
    "no name": bad("metadata.name", "name-missing", an_experiment(name="")),
    "no namespace": bad("metadata.namespace", "namespace-format", an_experiment(namespace="A/b")),
    "label value": bad("metadata.labels.team", "label-format", with_labels(team="a b")),
    "label value too long": bad("metadata.labels.team", "label-format", with_labels(team="a" * 64)),
    "label name": bad("metadata.labels", "label-format", with_labels(**{"-team": "a"})),
    "label domain": bad("metadata.labels", "label-format", with_labels(**{"A_b/team": "a"})),
    "label without name": bad("metadata.labels", "label-format", with_labels(**{"": "a"})),
    "V2 negative": bad(FAILED, "max-failed-negative", an_experiment(maxFailedTrialCount=-1)),
    "V3 zero": bad("spec.maxTrialCount", "max-trials-not-positive", an_experiment(maxTrialCount=0)),
    "V4 more than is asked for at once": bad(
        PARALLEL, "parallel-too-many", an_experiment(maxTrialCount=20_000, parallelTrialCount=10_001)
    ),
    "V3 below zero": bad("spec.maxTrialCount", "max-trials-not-positive", an_experiment(maxTrialCount=-4)),
    "V4 zero": bad(PARALLEL, "parallel-not-positive", an_experiment(parallelTrialCount=0)),
    "V5 above": bad(FAILED, "max-failed-above-max", an_experiment(maxFailedTrialCount=6, maxTrialCount=5)),
    "V6 above": bad(PARALLEL, "parallel-above-max", an_experiment(parallelTrialCount=6, maxTrialCount=5)),
    "V6 default above": bad(PARALLEL, "parallel-above-max", an_experiment(parallelTrialCount=None, maxTrialCount=2)),
    "V10 missing": bad(OBJECTIVE, "objective-missing", an_experiment(objective=None)),
    "V11 unknown": bad(f"{OBJECTIVE}.type", "objective-type", an_objective(type="unknown")),
    "V11 missing": bad(f"{OBJECTIVE}.type", "objective-type", an_objective(type=None)),
    "V12 empty": bad(METRIC, "metric-missing", an_objective(objectiveMetricName="")),
    "V13 the objective": bad(
        f"{OTHERS}[1]", "metric-is-objective", an_objective(additionalMetricNames=["accuracy", "loss"])
    ),
    "additional metric twice": bad(f"{OTHERS}[1]", "metric-duplicate", an_objective(additionalMetricNames=["a", "a"])),
    "additional metric empty": bad(f"{OTHERS}[0]", "metric-empty", an_objective(additionalMetricNames=[""])),
    "metric with semicolon": bad(METRIC, "metric-name", an_objective(objectiveMetricName="a;b")),
    "metric with outer blank": bad(f"{OTHERS}[0]", "metric-name", an_objective(additionalMetricNames=["a "])),
    "objectives without a name": bad(f"{TERMS}[1].name", "metric-missing", objectives(FIRST, {"type": "minimize"})),
    "objectives of one name": bad(
        f"{TERMS}[1].name", "objective-duplicate", objectives(FIRST, {**FIRST, "type": "minimize"})
    ),
    "objectives without a direction": bad(f"{TERMS}[1].type", "objective-type", objectives(FIRST, {"name": "seconds"})),
    "objectives with a goal that is not finite": bad(
        f"{TERMS}[1].goal", "goal-not-finite", objectives(FIRST, {**SECOND, "goal": float("inf")})
    ),
    "objectives beside another type": bad(
        f"{OBJECTIVE}.type", "objective-conflict", objectives(FIRST, SECOND, type="minimize")
    ),
    "objectives beside another metric": bad(
        METRIC, "objective-conflict", objectives(FIRST, SECOND, objectiveMetricName="seconds")
    ),
    "objectives beside another goal": bad(
        f"{OBJECTIVE}.goal", "objective-conflict", objectives({**FIRST, "goal": 0.9}, SECOND, goal=0.8)
    ),
    "objectives listed again": bad(
        f"{OTHERS}[0]", "metric-is-objective", objectives(FIRST, SECOND, additionalMetricNames=["seconds"])
    ),
    "objectives for an algorithm of one": bad(
        NAME, "algorithm-without-feature", objectives(FIRST, SECOND, algorithm="tpe")
    ),
    "objectives with early stopping": bad(
        "spec.earlyStopping",
        "early-stopping-several-objectives",
        objectives(FIRST, SECOND, earlyStopping={"algorithmName": "medianstop"}),
    ),
    "constraint without a metric": bad(f"{BOUNDS}[0].metricName", "metric-missing", bounded({"max": 30})),
    "constraint without a bound": bad(f"{BOUNDS}[0]", "constraint-unbounded", bounded({"metricName": "latency"})),
    "constraint with swapped bounds": bad(
        f"{BOUNDS}[0].min", "constraint-order", bounded({"metricName": "latency", "min": 3, "max": 1})
    ),
    "constraint that is not finite": bad(
        f"{BOUNDS}[0].max", "constraint-not-finite", bounded({"metricName": "latency", "max": float("inf")})
    ),
    "constraint twice": bad(
        f"{BOUNDS}[1].metricName",
        "constraint-duplicate",
        bounded({"metricName": "latency", "max": 3}, {"metricName": "latency", "min": 1}),
    ),
    "goal NaN": bad(f"{OBJECTIVE}.goal", "goal-not-finite", an_objective(goal=float("nan"))),
    "goal infinite": bad(f"{OBJECTIVE}.goal", "goal-not-finite", an_objective(goal=float("-inf"))),
    "strategy value": bad(
        f"{OBJECTIVE}.metricStrategies[0].value",
        "strategy-value",
        an_objective(metricStrategies=[{"name": "loss", "value": "mean(0)"}]),
    ),
    "strategy of nothing": bad(
        f"{OBJECTIVE}.metricStrategies[0].name",
        "strategy-metric",
        an_objective(metricStrategies=[{"name": "acc", "value": "max"}]),
    ),
    "strategy twice": bad(
        f"{OBJECTIVE}.metricStrategies[1].name",
        "strategy-duplicate",
        an_objective(metricStrategies=[{"name": "loss", "value": "min"}, {"name": "loss", "value": "max"}]),
    ),
    "V14 missing": bad("spec.algorithm", "algorithm-missing", an_architecture_search(algorithm=None)),
    "V15 empty": bad(NAME, "algorithm-name-missing", an_architecture_search(algorithm={})),
    "V16 unknown": bad(NAME, "algorithm-unknown", an_algorithm("rnadom")),
    "early stopping as search": bad(NAME, "algorithm-role", an_algorithm("medianstop")),
    "setting unknown": bad(f"{SETTINGS}[0].name", "setting-unknown", an_algorithm("tpe", gama="0.2")),
    "setting without name": bad(f"{SETTINGS}[0].name", "setting-name-missing", an_algorithm("random", **{"": "1"})),
    "setting type": bad(f"{SETTINGS}[0].value", "setting-type", an_algorithm("tpe", n_startup_trials="few")),
    "setting range": bad(f"{SETTINGS}[0].value", "setting-range", an_algorithm("tpe", gamma="1")),
    "setting NaN": bad(f"{SETTINGS}[0].value", "setting-range", an_algorithm("tpe", gamma="nan")),
    "setting truth": bad(f"{SETTINGS}[0].value", "setting-choice", an_algorithm("tpe", multivariate="maybe")),
    "setting choice": bad(f"{SETTINGS}[0].value", "setting-choice", an_algorithm("tpe", prior="round")),
    "setting twice": bad(
        f"{SETTINGS}[1].name",
        "setting-duplicate",
        an_experiment(
            algorithm={
                "algorithmName": "tpe",
                "algorithmSettings": [{"name": "gamma", "value": "0.2"}, {"name": "gamma", "value": "0.3"}],
            }
        ),
    ),
    "V17 empty": bad(
        "spec.earlyStopping.algorithmName", "early-stopping-name-missing", an_experiment(earlyStopping={})
    ),
    "V18 unknown": bad(
        "spec.earlyStopping.algorithmName",
        "algorithm-unknown",
        an_experiment(earlyStopping={"algorithmName": "medianstopp"}),
    ),
    "search as early stopping": bad(
        "spec.earlyStopping.algorithmName", "algorithm-role", an_experiment(earlyStopping={"algorithmName": "random"})
    ),
    "V19 unknown": bad("spec.resumePolicy", "resume-policy", an_experiment(resumePolicy="Always")),
    "a collector of jobs without a job": bad(
        "spec.metricsCollectorSpec.collector.kind",
        "collector-without-template",
        an_experiment(trialTemplate=None, metricsCollectorSpec={"collector": {"kind": "StdOut"}}),
    ),
    "checkpoints without a job": bad(
        "spec.algorithm",
        "checkpoints-without-template",
        an_experiment(
            trialTemplate=None,
            algorithm={
                "algorithmName": "random",
                "algorithmSettings": [{"name": "suggestion_trial_dir", "value": "/checkpoints"}],
            },
        ),
    ),
    "V21 empty": bad(
        f"{TEMPLATE}.primaryContainerName", "primary-container-missing", with_template(primaryContainerName="")
    ),
    "V22 no success": bad(
        f"{TEMPLATE}.successCondition",
        "condition-missing",
        with_template(trialSpec={**a_job(), "kind": "Custom"}, failureCondition="status.bad"),
    ),
    "V22 no failure": bad(
        f"{TEMPLATE}.failureCondition",
        "condition-missing",
        with_template(trialSpec={**a_job(), "kind": "Custom"}, successCondition="status.ok"),
    ),
    "V23 missing": bad(f"{REFERENCES}", "trial-parameters-missing", with_template(trialParameters=None)),
    "V23 empty": bad(f"{REFERENCES}", "trial-parameters-missing", with_trial_parameters()),
    "V24 neither": bad(TEMPLATE, "template-source-missing", with_template(trialSpec=None, **CONDITIONS)),
    "V25 both": bad(TEMPLATE, "template-source-both", with_template(configMap=CONFIG_MAP)),
    "V26 incomplete": bad(
        f"{TEMPLATE}.configMap.templatePath",
        "config-map-field-missing",
        with_template(trialSpec=None, configMap={**CONFIG_MAP, "templatePath": ""}, **CONDITIONS),
    ),
    "V27 no ConfigMap": bad(
        f"{TEMPLATE}.configMap.configMapName",
        "template-config-map-missing",
        with_template(trialSpec=None, configMap=CONFIG_MAP, **CONDITIONS),
    ),
    "V31 wrong": bad(
        f"{REFERENCES}[1].reference",
        "trial-parameter-reference-unknown",
        with_trial_parameters(
            ("learningRate", "lr"), ("b", "wrong-ref"), command="${trialParameters.learningRate} ${trialParameters.b}"
        ),
    ),
    "V32 not used": bad(
        f"{REFERENCES}[1].name",
        "template-placeholder-missing",
        with_trial_parameters(("learningRate", "lr"), ("b", "${trialSpec.Name}")),
    ),
    "V33 not declared": bad(
        f"{TEMPLATE}.trialSpec",
        "template-placeholder-unknown",
        with_trial_parameters(
            ("learningRate", "lr"), command="${trialParameters.learningRate} ${trialParameters.depth}"
        ),
    ),
    "parameter not used": bad(
        "spec.parameters[1].name",
        "template-parameter-unused",
        an_experiment(parameters=[a_double("lr"), a_double("momentum")]),
    ),
    "V35 name": bad(f"{TEMPLATE}.trialSpec.metadata.name", "template-metadata-fixed", with_job(metadata={"name": "x"})),
    "V35 namespace": bad(
        f"{TEMPLATE}.trialSpec.metadata.namespace", "template-metadata-fixed", with_job(metadata={"namespace": "x"})
    ),
    "V36 no apiVersion": bad(f"{TEMPLATE}.trialSpec.apiVersion", "template-kind-missing", with_job(apiVersion="")),
    "V36 no kind": bad(f"{TEMPLATE}.trialSpec.kind", "template-kind-missing", with_job(kind="")),
    "V38 neither": bad(
        "spec",
        "search-space-missing",
        an_experiment(parameters=None, trialTemplate=a_template("${trialParameters.n}", {"n": "${trialSpec.Name}"})),
    ),
    "V39 both": bad("spec", "search-space-both", an_experiment(nasConfig={"operations": [{"operationType": "conv"}]})),
    "V40 unknown": bad("spec.parameters[0].parameterType", "parameter-type", a_space("float", min="0", max="1")),
    "V40 missing": bad("spec.parameters[0].parameterType", "parameter-type", a_space("", min="0", max="1")),
    "V41 unknown": bad(
        f"{SPACE}.distribution", "distribution-unknown", a_space("double", min="1", max="2", distribution="loguni")
    ),
    "V42 double": bad(SPACE, "feasible-space-empty", a_space("double")),
    "V42 categorical": bad(SPACE, "feasible-space-empty", a_space("categorical")),
    "V43 int": bad(f"{SPACE}.list", "list-not-applicable", a_space("int", min="1", max="2", list=["1"])),
    "V43 double": bad(f"{SPACE}.list", "list-not-applicable", a_space("double", min="1", max="2", list=["1"])),
    "V44 no max": bad(f"{SPACE}.max", "bounds-missing", a_space("int", min="1")),
    "V44 no min": bad(f"{SPACE}.min", "bounds-missing", a_space("double", max="1")),
    "V45 categorical": bad(SPACE, "bounds-not-applicable", a_space("categorical", list=["a"], max="1")),
    "truth value as a choice": bad(f"{SPACE}.list[1]", "value-type", a_space("categorical", list=["a", True])),
    "float as a choice": bad(f"{SPACE}.list[0]", "value-type", a_space("discrete", list=[3.1, "5"])),
    "V45 discrete": bad(SPACE, "bounds-not-applicable", a_space("discrete", list=["1"], step="1")),
    "min not a number": bad(f"{SPACE}.min", "bound-not-number", a_space("double", min="low", max="1")),
    "max NaN": bad(f"{SPACE}.max", "bound-not-number", a_space("double", min="0", max="nan")),
    "max infinite": bad(f"{SPACE}.max", "bound-not-number", a_space("double", min="0", max="inf")),
    "max beyond a float": bad(f"{SPACE}.max", "bound-not-number", a_space("double", min="0", max="1e999")),
    "min with blank": bad(f"{SPACE}.min", "bound-not-number", a_space("double", min=" 0", max="1")),
    "int with fraction": bad(f"{SPACE}.max", "bound-not-whole", a_space("int", min="1", max="2.0")),
    "int beyond 64 bits": bad(f"{SPACE}.max", "bound-not-whole", a_space("int", min="1", max=str(2**63))),
    "int step with fraction": bad(f"{SPACE}.step", "bound-not-whole", a_space("int", min="1", max="9", step=".5")),
    "min above max": bad(f"{SPACE}.min", "bounds-order", a_space("double", min="10", max="1")),
    "step zero": bad(f"{SPACE}.step", "step-not-positive", a_space("double", min="0", max="1", step="0")),
    "step negative": bad(f"{SPACE}.step", "step-not-positive", a_space("int", min="0", max="9", step="-1")),
    "step too large": bad(f"{SPACE}.step", "step-too-large", a_space("double", min="0.5", max="0.9", step="0.5")),
    "logarithm of zero": bad(
        f"{SPACE}.min", "bound-not-logarithmic", a_space("double", min="0", max="1", distribution="logUniform")
    ),
    "logarithm of less": bad(
        f"{SPACE}.min", "bound-not-logarithmic", a_space("int", min="-5", max="1", distribution="logNormal")
    ),
    "distribution of choices": bad(
        f"{SPACE}.distribution",
        "distribution-not-applicable",
        a_space("categorical", list=["a"], distribution="normal"),
    ),
    "empty list beside bounds": bad(
        SPACE, "bounds-not-applicable", f"{SPACE}.list", "list-empty", a_space("discrete", min="1")
    ),
    "value twice": bad(f"{SPACE}.list[2]", "list-duplicate", a_space("categorical", list=["a", "b", "a"])),
    "parameter without name": bad(
        "spec.parameters[1].name", "parameter-name-missing", an_experiment(parameters=[a_double("lr"), a_double("")])
    ),
    "parameter name twice": bad(
        "spec.parameters[1].name", "parameter-name-duplicate", an_experiment(parameters=[a_double("lr"), an_int("lr")])
    ),
    "operation's parameter": bad(
        "spec.nasConfig.operations[0].parameters[0].feasibleSpace.min",
        "bounds-order",
        an_architecture_search(an_int("size", low="9", high="1")),
    ),
    "V52 unknown": bad(f"{COLLECTOR}.collector.kind", "collector-kind", a_collector("Stdout")),
    "V52 empty": bad(f"{COLLECTOR}.collector.kind", "collector-kind", a_collector("")),
    "V47 relative": bad(f"{FILE}.path", "metrics-path", a_path(path="logs/metrics.log")),
    "V47 directory": bad(f"{FILE}.kind", "metrics-path-kind", a_path(path="/logs", kind="Directory")),
    "V48 unknown": bad(f"{FILE}.format", "metrics-format", a_path(format="text")),
    "V49 empty filter": bad(
        f"{COLLECTOR}.source.filter",
        "filter-with-json",
        a_collector("File", {"fileSystemPath": {"format": "JSON"}, "filter": {}}),
    ),
    "V50 relative": bad(f"{FILE}.path", "metrics-path", a_path("TensorFlowEvent", path="events")),
    "V50 file": bad(f"{FILE}.kind", "metrics-path-kind", a_path("TensorFlowEvent", kind="File")),
    "V51 format": bad(f"{FILE}.format", "metrics-format-not-applicable", a_path("TensorFlowEvent", format="JSON")),
    "V53 and V54 port name, no path": bad(
        *(f"{ENDPOINT}.port", "metrics-port", f"{ENDPOINT}.path", "metrics-url-path"),
        a_collector("PrometheusMetric", {"httpGet": {"port": "Port", "path": "metrics"}}),
    ),
    "V53 negative": bad(f"{ENDPOINT}.port", "metrics-port", a_collector("PrometheusMetric", {"httpGet": {"port": -1}})),
    "V54 relative": bad(
        f"{ENDPOINT}.path", "metrics-url-path", a_collector("PrometheusMetric", {"httpGet": {"path": "metrics"}})
    ),
    "V55 no container": bad(
        f"{COLLECTOR}.collector.customCollector", "collector-container-missing", a_collector("Custom")
    ),
    "V56 relative": bad(
        FILE,
        "metrics-path-custom",
        a_collector("Custom", {"fileSystemPath": {"path": "x", "kind": "File"}}, customCollector={"name": "c"}),
    ),
    "V56 no kind": bad(
        FILE,
        "metrics-path-custom",
        a_collector("Custom", {"fileSystemPath": {"path": "/x"}}, customCollector={"name": "c"}),
    ),
    "V57 File": bad(f"{FORMATS}[0]", "filter-syntax", a_filter("[", kind="File")),
    "V57 StdOut": bad(f"{FORMATS}[1]", "filter-syntax", a_filter("(a)(b)", "[")),
    "V57 look-ahead": bad(f"{FORMATS}[0]", "filter-syntax", a_filter("(?=x)(a)(b)")),
    "V58 one group": bad(f"{FORMATS}[0]", "filter-groups", a_filter(r"loss=(\d+)")),
    "V58 only one counts": bad(f"{FORMATS}[0]", "filter-groups", a_filter(r"(?:loss)=(\d+)")),
    "V28 no reference": bad(
        *(f"{REFERENCES}[0].reference", "trial-parameter-incomplete"),
        *("spec.parameters[0].name", "template-parameter-unused"),
        with_trial_parameters(("learningRate", "")),
    ),
    "V28 brace": bad(
        *(f"{REFERENCES}[0].name", "trial-parameter-name"),
        *(f"{TEMPLATE}.trialSpec", "template-placeholder-unknown"),
        with_trial_parameters(("{learningRate}", "lr")),
    ),
    "V29 twice": bad(
        f"{REFERENCES}[1].name",
        "trial-parameter-duplicate",
        with_trial_parameters(("learningRate", "lr"), ("learningRate", "${trialSpec.Name}")),
    ),
    "V30 twice": bad(
        f"{REFERENCES}[1].reference",
        "trial-parameter-reference-duplicate",
        with_trial_parameters(
            ("learningRate", "lr"), ("rate", "lr"), command="${trialParameters.learningRate} ${trialParameters.rate}"
        ),
    ),
}
"""Paths and origins of exactly the errors that an experiment gives, and the experiment, which breaks a rule."""

ACCEPTED = {
    "no template: callers evaluate the trials": an_experiment(trialTemplate=None),
    "no template and nothing to measure": an_experiment(
        trialTemplate=None, metricsCollectorSpec={"collector": {"kind": "None"}}
    ),
    "initial trials": with_initial_trials(A_POINT, A_POINT),
    "warm start": with_warm_start("a", "b", trials=[{}]),
    "V1 one letter": an_experiment(name="a"),
    "V1 forty characters": an_experiment(name="a" * 40),
    "labels": with_labels(**{"team": "", "example.com/owner_1": "A.b-c_d", "x" * 63: "y" * 63}),
    "V2 zero": an_experiment(maxFailedTrialCount=0),
    "V3 one": an_experiment(maxTrialCount=1, parallelTrialCount=1),
    "V3 unbounded": an_experiment(maxTrialCount=None),
    "V4 one": an_experiment(parallelTrialCount=1),
    "V5 equal": an_experiment(maxFailedTrialCount=5, maxTrialCount=5),
    "V5 unbounded": an_experiment(maxFailedTrialCount=5, maxTrialCount=None),
    "V6 equal": an_experiment(parallelTrialCount=5, maxTrialCount=5),
    "V10 given": an_objective(),
    "objectives": objectives(FIRST, SECOND),
    "objectives of one": an_experiment(objective={"objectives": [{"name": "loss", "type": "minimize"}]}),
    "objectives and the same in the old fields": objectives(
        {**FIRST, "goal": 1}, SECOND, type="maximize", objectiveMetricName="accuracy", goal=1.0
    ),
    "constraints": bounded({"metricName": "latency", "max": 30}, {"metricName": "loss", "min": 0, "max": 0}),
    "V11 maximize": an_objective(type="maximize"),
    "V12 with blanks inside": an_objective(objectiveMetricName="valid_1 auc"),
    "V13 others": an_objective(additionalMetricNames=["accuracy", "Loss"]),
    "goal zero": an_objective(goal=0),
    "strategies": an_objective(
        additionalMetricNames=["acc"],
        metricStrategies=[{"name": "acc", "value": "latest"}, {"name": "loss", "value": "min"}],
    ),
    "V14 given": an_algorithm("random"),
    "V15 given": an_algorithm("tpe", gamma="0.25", n_startup_trials="0", multivariate="true", prior="flat"),
    "V16 settings only the service knows": an_algorithm("bayesianoptimization", anything="at all"),
    "V17 absent": an_experiment(earlyStopping=None),
    "V18 known": an_experiment(earlyStopping={"algorithmName": "medianstop"}),
    "V19 Never": an_experiment(resumePolicy="Never"),
    "V19 LongRunning": an_experiment(resumePolicy="LongRunning"),
    "V19 FromVolume": an_experiment(resumePolicy="FromVolume"),
    "V20 given": with_template(),
    "V21 given": with_template(primaryContainerName="training"),
    "V22 given": with_template(trialSpec={**a_job(), "kind": "CustomKind"}, **CONDITIONS),
    "V23 given": with_trial_parameters(("learningRate", "lr")),
    "V24 inline": with_template(trialSpec=a_job()),
    "V25 inline only": with_template(configMap=None),
    "V28 to V32 metadata": with_trial_parameters(
        ("learningRate", "lr"),
        ("name", "${trialSpec.Name}"),
        ("space", "${trialSpec.Namespace}"),
        ("kind", "${trialSpec.Kind}"),
        command=" ".join(f"${{trialParameters.{name}}}" for name in ("learningRate", "name", "space", "kind")),
    ),
    "V31 names of an architecture search": an_architecture_search(),
    "V33 variables of others": with_trial_parameters(
        ("learningRate", "lr"), command="echo ${HOME} $(VAR) {{x}} ${trialSpec.Name} ${trialParameters.learningRate}"
    ),
    "V35 labels": with_job(metadata={"labels": {"a": "b"}}),
    "V36 another apiVersion": with_job(apiVersion="test/v1"),
    "V38 parameters": an_experiment(),
    "no algorithm": an_experiment(algorithm=None),
    "an algorithm without name": an_experiment(algorithm={"algorithmSettings": []}),
    "V39 nasConfig only": an_architecture_search(),
    "V40 unknown by name": a_space("unknown", list=["a"]),
    "V41 normal": a_space("double", min="-1", max="1", distribution="normal"),
    "V41 logarithmic": a_space("int", min="1", max="64", distribution="logUniform"),
    "V42 list": a_space("categorical", list=["a"]),
    "V43 discrete list": a_space("discrete", list=["1", "2.5"]),
    "V44 equal bounds": a_space("int", min="1", max="1"),
    "V44 bare numbers": a_space("double", min=0, max=1e-3),
    "V45 choices": a_space("categorical", list=["", "a b", "ü", "true", 5]),
    "step of the whole range": a_space("double", min="0.5", max="0.6", step="0.1"),
    "step of one point": a_space("int", min="1", max="1", step="1"),
    "uniform choices": a_space("categorical", list=["a"], distribution="uniform"),
    "signed exponents": a_space("double", min="-1e-5", max="+1E+5"),
    "V46 and V52 Push": a_collector("Push"),
    "V47 and V48 File": a_path(path="/katib/mnist.log"),
    "V48 JSON": a_path(format="JSON"),
    "V49 TEXT with filter": a_filter(METRICS_FORMAT, kind="File"),
    "V50 and V51 directory": a_path("TensorFlowEvent", path="/events", kind="Directory"),
    "V53 and V54 text port": a_collector("PrometheusMetric", {"httpGet": {"port": "9090", "path": "/m"}}),
    "V55 and V56 container": a_collector(
        "Custom", {"fileSystemPath": {"path": "/x", "kind": "Directory"}}, customCollector={"name": "c", "image": "i"}
    ),
    "V57 and V58 filters": a_filter(METRICS_FORMAT, r"([\w-]+)=(Genotype.*)", r"(?P<n>a)(?P<v>b)"),
}


@pytest.mark.parametrize("case", REJECTED.values(), ids=REJECTED)
def test_a_broken_rule_is_reported_alone_on_one_line_with_a_remedy(case: tuple[Any, ...]) -> None:
    *expected, raw = case
    errors = errors_of(raw)

    assert sorted((error.path, error.origin) for error in errors) == sorted(
        zip(expected[::2], expected[1::2], strict=True)
    )
    assert all(re.fullmatch(r"[^\n]+: [^\n]+; [^\n]+[^\n.]", str(error)) for error in errors)


@pytest.mark.parametrize("raw", ACCEPTED.values(), ids=ACCEPTED)
def test_what_keeps_the_rules_is_accepted(raw: dict[str, Any]) -> None:
    assert broken_rules(raw) == []


ELSEWHERE = {7, 8, 9, 20, 26, 27, 34, 37, 46}
"""Rules with tests of their own: updates, ConfigMaps, the inside of a Job, what an installation offers, and a missing
template, which `katib run` alone refuses."""


@pytest.mark.parametrize("cases", [REJECTED, ACCEPTED], ids=["rejected", "accepted"])
def test_every_rule_has_a_case(cases: dict[str, object]) -> None:
    covered = set()
    for case in cases:
        for first, last in re.findall(r"V(\d+)(?: to V(\d+))?", case):
            covered.update(range(int(first), int(last or first) + 1))

    assert set(range(1, 59)) - ELSEWHERE - covered == set()


LINES = {
    "direction": an_objective(type="minimise"),
    "algorithm": an_algorithm("bayesian"),
    "algorithm far from all": an_algorithm("zzz"),
    "bounds": a_space("double", min="10", max="1"),
    "type": a_space("integer", min="1", max="2"),
    "setting": an_algorithm("tpe", gama="1"),
    "setting out of range": an_algorithm("tpe", gamma="2"),
    "name": an_experiment(name="My_Demo"),
    "filter": a_filter("["),
    "step": a_space("double", min="0.5", max="0.9", step="1"),
    "placeholder without parameter": with_trial_parameters(
        ("learningRate", "lr"), command="${trialParameters.learningRate} ${trialParameters.depth}"
    ),
}


@pytest.mark.parametrize("raw", LINES.values(), ids=LINES)
def test_the_line_names_the_value_and_the_way_out(raw: dict[str, Any], golden: Golden) -> None:
    golden(errors_of(raw))


def test_all_errors_come_at_once() -> None:
    raw = an_experiment(
        name="Bad", maxTrialCount="ten", parallelTrialCount=0, objective={"type": "min"}, algorithm={"name": "tpe"}
    )

    assert broken_rules(raw) == [
        ("spec.algorithm.name", "field-unknown"),
        ("spec.maxTrialCount", "value-type"),
        ("metadata.name", "name-format"),
        ("spec.parallelTrialCount", "parallel-not-positive"),
        ("spec.objective.type", "objective-type"),
        ("spec.objective.objectiveMetricName", "metric-missing"),
    ]


ECHOES = {
    "a missing block": an_experiment(objective="loss"),
    "a missing bound": a_space("double", min=["0"], max="1"),
    "a missing source": with_template(trialSpec="job.yaml", **CONDITIONS),
    "an element": an_objective(additionalMetricNames=[{}]),
    "a list": an_experiment(parameters=5, trialTemplate=a_template("${trialParameters.n}", {"n": "${trialSpec.Name}"})),
}


@pytest.mark.parametrize("raw", ECHOES.values(), ids=ECHOES)
def test_a_value_that_cannot_be_read_is_not_reported_as_missing_too(raw: dict[str, Any]) -> None:
    assert [origin for _, origin in broken_rules(raw)] == ["value-type"]


def test_generate_name_takes_the_place_of_a_name() -> None:
    raw = an_experiment()

    for prefix, expected in (("demo-", []), ("a" * 36, ["name-length"]), ("9-", ["name-format"])):
        raw["metadata"] = {"generateName": prefix}
        assert [origin for _, origin in broken_rules(raw)] == expected


@pytest.mark.parametrize("kind", ["PrometheusMetric", "TensorFlowEvent", "Custom"])
def test_v46_a_collector_that_cannot_run_here_is_refused(kind: str, golden: Golden) -> None:
    raw = a_collector(kind, customCollector={"name": "c"})

    [error] = errors_of(raw, collectors=("StdOut", "File"))

    golden(error)
    assert error.origin == "collector-not-offered"
