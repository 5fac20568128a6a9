"""What `kubectl explain` says about each field, and which fields take more than text (used by `generate_crds.py`)."""

from __future__ import annotations

SCALARS = frozenset(
    {
        "AlgorithmSetting.value",
        "EarlyStoppingRule.value",
        "FeasibleSpace.list",
        "FeasibleSpace.max",
        "FeasibleSpace.min",
        "FeasibleSpace.step",
        "ParameterAssignment.value",
    }
)
"""Texts that a file may give as a bare number or truth value: `min: 0.01` means `min: "0.01"`.

A structural schema has no type for "text or number", so these fields have none; admission turns them into text.
"""

_START = "When the controller took the object up."
_END = "When it ended; null or absent until then."
_RECONCILED = "Part of Katib's API; not written."
_CONDITIONS = "What is true of the object, in the order of the last change; the last one is its state."
_SETTINGS = "Options of the algorithm, as text. `katib algorithms NAME` lists them."
_PRIMARY_LABELS = (
    "Labels that mark the pods whose metrics are read. Set by default for kinds with several roles; without them every "
    "pod of the job is read."
)
_CONTAINER = "The container whose output and files are read."
_SUCCESS = "GJSON path that finds something in the job once it succeeded. Set by default for common kinds."
_FAILURE = "GJSON path that finds something in the job once it failed. Set by default for common kinds."
_NAMES = "Names of the newest 100; the count is exact."

DESCRIPTIONS = {
    "Experiment.spec": "What is asked for. Only the three counts can be changed later.",
    "Experiment.status": "How the run goes; written by the controller.",
    "Suggestion.spec": "What is asked of the suggestion service.",
    "Suggestion.status": "What the service answered; written by the controller.",
    "Trial.spec": "The assignments, and the job that tries them.",
    "Trial.status": "How the evaluation goes; written by the controller.",
    # --- search space
    "ExperimentSpec.parameters": "The search space: parameters with the values they may take.",
    "ParameterSpec.name": "Name, by which trialParameters refer to it.",
    "ParameterSpec.parameterType": "double, int, discrete or categorical.",
    "ParameterSpec.feasibleSpace": "min and max (double, int) or list (discrete, categorical).",
    "FeasibleSpace.min": "Smallest value, as decimal text.",
    "FeasibleSpace.max": "Largest value, as decimal text.",
    "FeasibleSpace.step": "Distance between neighbouring values; without it any value between the bounds may be tried.",
    "FeasibleSpace.list": "The values of a discrete or categorical parameter.",
    "FeasibleSpace.distribution": "How values are drawn: uniform (the default), logUniform, normal or logNormal.",
    "ExperimentSpec.nasConfig": "Search space of an architecture search, instead of parameters.",
    "NasConfig.graphConfig": "Outline of the network.",
    "NasConfig.operations": "What a layer may be.",
    "GraphConfig.numLayers": "Number of layers.",
    "GraphConfig.inputSizes": "Shape of the input.",
    "GraphConfig.outputSizes": "Shape of the output.",
    "Operation.operationType": "Kind of the operation.",
    "Operation.parameters": "Parameters of the operation.",
    # --- objective and algorithms
    "ExperimentSpec.objective": "The metric to optimize, and in which direction.",
    "TrialSpec.objective": "The objective of the experiment.",
    "ObjectiveSpec.type": "minimize or maximize.",
    "ObjectiveSpec.goal": "A value of the objective metric that ends the experiment.",
    "ObjectiveSpec.objectiveMetricName": "Name of the metric to optimize, as the trial prints it.",
    "ObjectiveSpec.additionalMetricNames": "Further metrics to record.",
    "ObjectiveSpec.metricStrategies": "Which reading of a metric counts; by default the best one.",
    "MetricStrategySpec.name": "Name of the metric.",
    "MetricStrategySpec.value": "min, max or latest.",
    "ExperimentSpec.algorithm": "The suggestion algorithm that proposes values.",
    "SuggestionSpec.algorithm": "The suggestion algorithm of the experiment.",
    "AlgorithmSpec.algorithmName": "Name of the algorithm, such as random, grid or tpe.",
    "AlgorithmSpec.algorithmSettings": _SETTINGS,
    "AlgorithmSetting.name": "Name of the option.",
    "AlgorithmSetting.value": "Its value, as text.",
    "ExperimentSpec.earlyStopping": "The algorithm that ends hopeless trials early.",
    "SuggestionSpec.earlyStopping": "The early stopping algorithm of the experiment.",
    "EarlyStoppingRule.name": "The metric that is watched.",
    "EarlyStoppingRule.value": "What it is compared with, as text.",
    "EarlyStoppingRule.comparison": "equal, less or greater.",
    "EarlyStoppingRule.startStep": "The reading from which on the rule counts.",
    "ParameterAssignment.name": "Name of the parameter.",
    "ParameterAssignment.value": "The value it gets, as text.",
    # --- counts and policies
    "ExperimentSpec.parallelTrialCount": "How many trials may wait or run at once; 3 by default.",
    "ExperimentSpec.maxTrialCount": "How many trials end the experiment; without it only the goal does.",
    "ExperimentSpec.maxFailedTrialCount": "How many failed trials fail the experiment; without it there is no limit.",
    "ExperimentSpec.resumePolicy": (
        "What becomes of the suggestion service at the end. Never (the default): it is removed, and the experiment "
        "cannot go on. LongRunning: it stays. FromVolume: its volume stays."
    ),
    "SuggestionSpec.resumePolicy": "The resumePolicy of the experiment.",
    "SuggestionSpec.requests": "How many assignments are wanted, counted since the start.",
    # --- metrics
    "ExperimentSpec.metricsCollectorSpec": "How metrics are read; by default from standard output.",
    "TrialSpec.metricsCollector": "How metrics are read.",
    "MetricsCollectorSpec.source": "What is read.",
    "MetricsCollectorSpec.collector": "Which collector reads it.",
    "CollectorSpec.kind": "StdOut (the default), File, Push, TensorFlowEvent, PrometheusMetric or Custom.",
    "CollectorSpec.customCollector": "The container of a Custom collector.",
    "SourceSpec.httpGet": "Where a PrometheusMetric collector asks.",
    "SourceSpec.fileSystemPath": "The file or directory to read.",
    "SourceSpec.filter": "How metrics are found in text.",
    "FileSystemPath.path": "Absolute path in the container.",
    "FileSystemPath.kind": "File or Directory.",
    "FileSystemPath.format": "TEXT (name=value in lines) or JSON (one object per line).",
    "FilterSpec.metricsFormat": "RE2 patterns of two groups, name and value.",
    "Metric.name": "Name of the metric.",
    "Metric.min": "Smallest reading, or unavailable.",
    "Metric.max": "Largest reading, or unavailable.",
    "Metric.latest": "Last reading, or unavailable.",
    "Observation.metrics": "One summary per metric.",
    # --- template
    "ExperimentSpec.trialTemplate": "What a trial runs as.",
    "TrialTemplate.retain": "Whether the job stays when its trial has ended.",
    "TrialTemplate.trialSpec": "The job: an object of any kind, with ${trialParameters.NAME} in its texts.",
    "TrialTemplate.configMap": "Where the job is kept, instead of trialSpec.",
    "TrialTemplate.trialParameters": "The placeholders of the job, and what fills them.",
    "TrialTemplate.primaryPodLabels": _PRIMARY_LABELS,
    "TrialTemplate.primaryContainerName": _CONTAINER,
    "TrialTemplate.successCondition": _SUCCESS,
    "TrialTemplate.failureCondition": _FAILURE,
    "ConfigMapSource.configMapName": "Name of the ConfigMap.",
    "ConfigMapSource.configMapNamespace": "Its namespace.",
    "ConfigMapSource.templatePath": "The key that holds the job as YAML.",
    "TrialParameterSpec.name": "Name of the placeholder: ${trialParameters.NAME}.",
    "TrialParameterSpec.description": "What it is, for readers.",
    "TrialParameterSpec.reference": "The parameter that fills it, or a fact of the trial such as ${trialSpec.Name}.",
    "TrialSpec.parameterAssignments": "The values that are tried.",
    "TrialSpec.earlyStoppingRules": "When to end the trial early.",
    "TrialSpec.runSpec": "The job, with all placeholders filled.",
    "TrialSpec.retainRun": "Whether the job stays when the trial has ended.",
    "TrialSpec.primaryPodLabels": _PRIMARY_LABELS,
    "TrialSpec.primaryContainerName": _CONTAINER,
    "TrialSpec.successCondition": _SUCCESS,
    "TrialSpec.failureCondition": _FAILURE,
    "TrialSpec.labels": "Labels that came with the assignments.",
    # --- status
    "Condition.type": "The fact, such as Running or Succeeded.",
    "Condition.status": "True, False or Unknown.",
    "Condition.reason": "Why, as one word.",
    "Condition.message": "Why, as a sentence.",
    "Condition.lastUpdateTime": "When the condition was last written.",
    "Condition.lastTransitionTime": "When its status last changed.",
    "ExperimentStatus.startTime": _START,
    "ExperimentStatus.completionTime": _END,
    "ExperimentStatus.lastReconcileTime": _RECONCILED,
    "ExperimentStatus.conditions": _CONDITIONS,
    "ExperimentStatus.currentOptimalTrial": "The best trial so far.",
    "OptimalTrial.bestTrialName": "Its name.",
    "OptimalTrial.parameterAssignments": "The values it tried.",
    "OptimalTrial.observation": "Its metrics.",
    "ExperimentStatus.runningTrialList": f"Trials that run. {_NAMES}",
    "ExperimentStatus.pendingTrialList": f"Trials that wait. {_NAMES}",
    "ExperimentStatus.failedTrialList": f"Trials that failed. {_NAMES}",
    "ExperimentStatus.succeededTrialList": f"Trials that succeeded. {_NAMES}",
    "ExperimentStatus.killedTrialList": f"Trials that were ended. {_NAMES}",
    "ExperimentStatus.earlyStoppedTrialList": f"Trials that were stopped early. {_NAMES}",
    "ExperimentStatus.metricsUnavailableTrialList": f"Trials whose objective metric is missing. {_NAMES}",
    "ExperimentStatus.trials": "Number of trials.",
    "ExperimentStatus.trialsSucceeded": "Trials that succeeded.",
    "ExperimentStatus.trialsFailed": "Trials that failed.",
    "ExperimentStatus.trialsKilled": "Trials that were ended.",
    "ExperimentStatus.trialsPending": "Trials that wait.",
    "ExperimentStatus.trialsRunning": "Trials that run.",
    "ExperimentStatus.trialsEarlyStopped": "Trials that were stopped early.",
    "ExperimentStatus.trialMetricsUnavailable": "Trials whose objective metric is missing.",
    "SuggestionStatus.algorithmSettings": "Settings that the service returned; they win over the experiment's.",
    "SuggestionStatus.suggestionCount": "How many assignments were received since the start.",
    "SuggestionStatus.suggestions": "Assignments that wait to become trials.",
    "SuggestionStatus.startTime": _START,
    "SuggestionStatus.completionTime": _END,
    "SuggestionStatus.lastReconcileTime": _RECONCILED,
    "SuggestionStatus.conditions": _CONDITIONS,
    "TrialAssignment.name": "Name of the trial to be.",
    "TrialAssignment.parameterAssignments": "The values to try.",
    "TrialAssignment.earlyStoppingRules": "When to end the trial early.",
    "TrialAssignment.labels": "Labels that the trial gets.",
    "TrialStatus.startTime": _START,
    "TrialStatus.completionTime": _END,
    "TrialStatus.lastReconcileTime": _RECONCILED,
    "TrialStatus.conditions": _CONDITIONS,
    "TrialStatus.observation": "Summary of the metrics; absent until the first reading.",
}
"""Sentences by `Model.field`. A field without one fails `make crds`."""
