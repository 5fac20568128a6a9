"""Conversion between objects of `katib.model` and messages of the wire.

Messages are those of Katib, so that its algorithm images understand them, except for invalid numbers. A reading that is
NaN, infinite, `unavailable` or not a number is left out of the observation, and a finished trial without a usable
objective value is sent as FAILED. This form causes the least harm: services that read the objective of every SUCCEEDED
trial would raise on such a text (and on the missing entry), and all of them skip FAILED trials or count them as bad
points.
"""

from __future__ import annotations

from katib.model.algorithms import Feature
from katib.model.features.repeats.feature import configuration_count
from katib.model.types import (
    AlgorithmSpec,
    Distribution,
    Experiment,
    ExperimentSpec,
    NasConfig,
    ObjectiveSpec,
    ObjectiveType,
    ParameterAssignment,
    ParameterSpec,
    ParameterType,
    TrialAssignment,
)
from katib.wire.rpc._generated import api_pb2 as pb

PARAMETER_TYPES: dict[str, pb.ParameterType] = {
    ParameterType.DOUBLE: pb.DOUBLE,
    ParameterType.INT: pb.INT,
    ParameterType.DISCRETE: pb.DISCRETE,
    ParameterType.CATEGORICAL: pb.CATEGORICAL,
}
DISTRIBUTIONS: dict[str, pb.Distribution] = {
    Distribution.UNIFORM: pb.UNIFORM,
    Distribution.LOG_UNIFORM: pb.LOG_UNIFORM,
    Distribution.NORMAL: pb.NORMAL,
    Distribution.LOG_NORMAL: pb.LOG_NORMAL,
}
OBJECTIVE_TYPES: dict[str, pb.ObjectiveType] = {
    ObjectiveType.MINIMIZE: pb.MINIMIZE,
    ObjectiveType.MAXIMIZE: pb.MAXIMIZE,
}
FEATURES: dict[Feature, pb.ValidateAlgorithmSettingsReply.Feature] = {
    Feature.SEVERAL_OBJECTIVES: pb.ValidateAlgorithmSettingsReply.SEVERAL_OBJECTIVES,
    Feature.CONSTRAINTS: pb.ValidateAlgorithmSettingsReply.CONSTRAINTS,
    Feature.CONDITIONAL_PARAMETERS: pb.ValidateAlgorithmSettingsReply.CONDITIONAL_PARAMETERS,
    Feature.EARLIER_TRIALS: pb.ValidateAlgorithmSettingsReply.EARLIER_TRIALS,
    Feature.PRIORS: pb.ValidateAlgorithmSettingsReply.PRIORS,
}


# --- experiment -------------------------------------------------------------------------------------------------------


def experiment_message(experiment: Experiment) -> pb.Experiment:
    """Return an experiment as services see it: name without namespace, and the fields relevant to an algorithm."""
    spec, algorithm = experiment.spec, experiment.spec.algorithm or AlgorithmSpec()
    message = pb.Experiment(
        name=experiment.name,
        spec=pb.ExperimentSpec(
            parameter_specs=pb.ExperimentSpec.ParameterSpecs(parameters=map(_parameter, spec.parameters)),
            objective=objective_message(spec.objective),
            algorithm=pb.AlgorithmSpec(
                algorithm_name=algorithm.algorithm_name,
                algorithm_settings=[
                    pb.AlgorithmSetting(name=s.name, value=s.value) for s in algorithm.algorithm_settings
                ],
            ),
            parallel_trial_count=spec.parallel_trial_count or 0,
            max_trial_count=configuration_count(experiment) or 0,
            parameter_constraints=spec.parameter_constraints,
            fixed_assignments=[
                pb.FixedAssignments(assignments=map(_assignment, trial.parameter_assignments))
                for trial in spec.initial_trials
            ],
        ),
    )
    if spec.early_stopping is not None:
        message.spec.early_stopping.CopyFrom(early_stopping_message(spec))
    if spec.nas_config is not None:
        message.spec.nas_config.CopyFrom(_nas_config(spec.nas_config))
    return message


def _assignment(assignment: ParameterAssignment) -> pb.ParameterAssignment:
    return pb.ParameterAssignment(name=assignment.name, value=assignment.value)


def early_stopping_message(spec: ExperimentSpec) -> pb.EarlyStoppingSpec:
    """Return the early stopping algorithm with its settings; empty if there is none."""
    algorithm = spec.early_stopping or AlgorithmSpec()
    return pb.EarlyStoppingSpec(
        algorithm_name=algorithm.algorithm_name,
        algorithm_settings=[
            pb.EarlyStoppingSetting(name=setting.name, value=setting.value) for setting in algorithm.algorithm_settings
        ],
    )


def objective_message(objective: ObjectiveSpec | None) -> pb.ObjectiveSpec:
    objective = objective or ObjectiveSpec()
    additional = [name for name in objective.metric_names if name != objective.objective_metric_name]
    return pb.ObjectiveSpec(
        type=OBJECTIVE_TYPES.get(objective.type, pb.UNKNOWN),
        goal=objective.goal or 0.0,
        objective_metric_name=objective.objective_metric_name,
        additional_metric_names=additional,
        objectives=[
            pb.ObjectiveTerm(name=term.name, type=OBJECTIVE_TYPES.get(term.type, pb.UNKNOWN), goal=term.goal)
            for term in objective.objectives
        ],
        constraints=[
            pb.MetricConstraint(metric_name=bounded.metric_name, min=bounded.min, max=bounded.max)
            for bounded in objective.constraints
        ],
    )


def _parameter(parameter: ParameterSpec) -> pb.ParameterSpec:
    space, when, prior = parameter.feasible_space, parameter.when, parameter.prior
    return pb.ParameterSpec(
        name=parameter.name,
        parameter_type=PARAMETER_TYPES.get(parameter.parameter_type, pb.UNKNOWN_TYPE),
        feasible_space=pb.FeasibleSpace(
            max=space.max,
            min=space.min,
            list=space.list,
            step=space.step,
            distribution=DISTRIBUTIONS.get(space.distribution, pb.DISTRIBUTION_UNSPECIFIED),
        ),
        when=None if when is None else pb.ParameterCondition(parameter=when.parameter, values=when.values),
        prior=None
        if prior is None
        else pb.ParameterPrior(center=prior.center, factor=prior.factor, width=prior.width, weights=prior.weights),
    )


def _nas_config(config: NasConfig) -> pb.NasConfig:
    return pb.NasConfig(
        graph_config=pb.GraphConfig(
            num_layers=config.graph_config.num_layers or 0,
            input_sizes=config.graph_config.input_sizes,
            output_sizes=config.graph_config.output_sizes,
        ),
        operations=pb.NasConfig.Operations(
            operation=[
                pb.Operation(
                    operation_type=operation.operation_type,
                    parameter_specs=pb.Operation.ParameterSpecs(parameters=map(_parameter, operation.parameters)),
                )
                for operation in config.operations
            ]
        ),
    )


# --- replies ----------------------------------------------------------------------------------------------------------


def assignments_of(reply: pb.GetSuggestionsReply) -> tuple[TrialAssignment, ...]:
    """Return a service's assignments; without rules, and without names if the controller chooses them."""
    found: list[TrialAssignment] = []
    for suggested in reply.parameter_assignments:
        values = tuple([ParameterAssignment(name=one.name, value=one.value) for one in suggested.assignments])
        labels = dict(suggested.labels)
        found.append(TrialAssignment(name=suggested.trial_name, parameter_assignments=values, labels=labels))
    return tuple(found)
