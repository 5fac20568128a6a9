from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from katib.model.names import STOPPED_AT_LABEL
from katib.model.types import (
    Condition,
    EarlyStoppingRule,
    Experiment,
    Metric,
    MetricStrategySpec,
    ObjectiveSpec,
    Observation,
    Trial,
)
from katib.wire.rpc import convert, trial_messages
from katib.wire.rpc._generated import api_pb2 as pb
from katib.wire.rpc.judging import rules_of
from suggestion_services.base.messages import past_trial
from tests.support.experiments import a_choice, a_double, an_experiment, an_int

STARTED = datetime(2024, 5, 1, 10, 0, 0, tzinfo=UTC)
ENDED = datetime(2024, 5, 1, 10, 5, 30, 999_999, tzinfo=UTC)


def a_trial(
    condition: str = "Succeeded", value: str | None = "0.5", *, name: str = "t-1", version: str = "1", **status: Any
) -> Trial:
    """Return a trial with one reading of the objective `loss` under strategy min."""
    trial = Trial.decode(
        {
            "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": version},
            "spec": {
                "objective": {
                    "type": "minimize",
                    "objectiveMetricName": "loss",
                    "metricStrategies": [{"name": "loss", "value": "min"}],
                },
                "parameterAssignments": [{"name": "lr", "value": "0.1"}],
            },
        }
    )
    conditions = (Condition(type="Created", status="True"),)
    if condition:
        conditions = (*conditions, Condition(type=condition, status="True"))
    observed = Observation(metrics=(Metric(name="loss", min=value, max=value, latest=value),)) if value else None
    return structs.replace(
        trial, status=structs.replace(trial.status, conditions=conditions, observation=observed, **status)
    )


def an_object(**spec: Any) -> Experiment:
    return Experiment.decode(an_experiment(**spec))


# --- experiments ------------------------------------------------------------------------------------------------------


def test_an_experiment_is_sent_whole_but_without_its_namespace() -> None:
    experiment = an_object(
        name="tune",
        namespace="team-a",
        objective={
            "type": "maximize",
            "goal": 0.99,
            "objectiveMetricName": "acc",
            "additionalMetricNames": ["loss"],
            "metricStrategies": [{"name": "acc", "value": "max"}],
        },
        algorithm={"algorithmName": "tpe", "algorithmSettings": [{"name": "random_state", "value": 7}]},
        earlyStopping={"algorithmName": "medianstop", "algorithmSettings": [{"name": "start_step", "value": "3"}]},
        parameters=[
            a_double("lr", low="0.01", high="0.1", step="0.01", distribution="logUniform"),
            an_int("layers", low="1", high="5"),
            a_choice("optimizer", ["sgd", "adam"]),
            a_choice("batch", ["32", "64"], parameter_type="discrete"),
        ],
        maxTrialCount=12,
        parallelTrialCount=3,
    )

    expected = pb.Experiment(
        name="tune",
        spec=pb.ExperimentSpec(
            parameter_specs=pb.ExperimentSpec.ParameterSpecs(
                parameters=[
                    pb.ParameterSpec(
                        name="lr",
                        parameter_type=pb.DOUBLE,
                        feasible_space=pb.FeasibleSpace(
                            min="0.01", max="0.1", step="0.01", distribution=pb.LOG_UNIFORM
                        ),
                    ),
                    pb.ParameterSpec(
                        name="layers", parameter_type=pb.INT, feasible_space=pb.FeasibleSpace(min="1", max="5")
                    ),
                    pb.ParameterSpec(
                        name="optimizer",
                        parameter_type=pb.CATEGORICAL,
                        feasible_space=pb.FeasibleSpace(list=["sgd", "adam"]),
                    ),
                    pb.ParameterSpec(
                        name="batch", parameter_type=pb.DISCRETE, feasible_space=pb.FeasibleSpace(list=["32", "64"])
                    ),
                ]
            ),
            objective=pb.ObjectiveSpec(
                type=pb.MAXIMIZE, goal=0.99, objective_metric_name="acc", additional_metric_names=["loss"]
            ),
            algorithm=pb.AlgorithmSpec(
                algorithm_name="tpe", algorithm_settings=[pb.AlgorithmSetting(name="random_state", value="7")]
            ),
            early_stopping=pb.EarlyStoppingSpec(
                algorithm_name="medianstop", algorithm_settings=[pb.EarlyStoppingSetting(name="start_step", value="3")]
            ),
            parallel_trial_count=3,
            max_trial_count=12,
        ),
    )
    assert convert.experiment_message(experiment) == expected


def test_what_is_not_set_is_zero_and_optional_parts_are_absent() -> None:
    message = convert.experiment_message(an_object(maxTrialCount=None, parallelTrialCount=None, parameters=None))

    assert (message.spec.parallel_trial_count, message.spec.max_trial_count, message.spec.objective.goal) == (0, 0, 0)
    assert message.spec.HasField("parameter_specs")
    assert not message.spec.HasField("early_stopping")
    assert not message.spec.HasField("nas_config")


def test_unknown_words_become_the_unknown_values_of_their_enums() -> None:
    parameter = {"name": "x", "parameterType": "unknown", "feasibleSpace": {"distribution": "zipf"}}
    experiment = an_object(parameters=[parameter], objective={"type": "explore", "objectiveMetricName": "m"})

    spec = convert.experiment_message(experiment).spec

    assert spec.objective.type == pb.UNKNOWN
    assert spec.parameter_specs.parameters[0].parameter_type == pb.UNKNOWN_TYPE
    assert spec.parameter_specs.parameters[0].feasible_space.distribution == pb.DISTRIBUTION_UNSPECIFIED


def test_an_architecture_search_is_sent_with_its_graph_and_operations() -> None:
    experiment = an_object(
        parameters=None,
        nasConfig={
            "graphConfig": {"inputSizes": [32, 32, 3], "outputSizes": [10]},
            "operations": [{"operationType": "convolution", "parameters": [a_choice("filter_size", ["3", "5"])]}],
        },
    )

    config = convert.experiment_message(experiment).spec.nas_config

    assert config.graph_config == pb.GraphConfig(num_layers=0, input_sizes=[32, 32, 3], output_sizes=[10])
    assert config.operations.operation[0].operation_type == "convolution"
    assert list(config.operations.operation[0].parameter_specs.parameters[0].feasible_space.list) == ["3", "5"]


# --- trials -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trial", "sent"),
    [
        pytest.param(a_trial("Succeeded"), True, id="succeeded"),
        pytest.param(a_trial("", None), True, id="created"),
        pytest.param(a_trial("Running", None), True, id="running"),
        pytest.param(a_trial("Failed", None), True, id="failed"),
        pytest.param(a_trial("Killed", None), True, id="killed"),
        pytest.param(a_trial("MetricsUnavailable", "unavailable"), False, id="metrics-unavailable"),
        pytest.param(a_trial("EarlyStopped", None), False, id="early-stopped-without-observation"),
        pytest.param(a_trial("EarlyStopped", "unavailable"), False, id="early-stopped-unavailable"),
        pytest.param(a_trial("EarlyStopped"), True, id="early-stopped-with-observation"),
    ],
)
def test_services_hear_of_trials_that_can_teach_them_something(trial: Trial, sent: bool) -> None:
    assert trial_messages.is_sent(trial) is sent


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("", pb.TrialStatus.CREATED),
        ("Running", pb.TrialStatus.RUNNING),
        ("Succeeded", pb.TrialStatus.SUCCEEDED),
        ("Killed", pb.TrialStatus.KILLED),
        ("Failed", pb.TrialStatus.FAILED),
        ("EarlyStopped", pb.TrialStatus.EARLYSTOPPED),
        ("MetricsUnavailable", pb.TrialStatus.UNKNOWN),
        ("Paused", pb.TrialStatus.UNKNOWN),
    ],
)
def test_the_last_condition_is_the_state_of_a_trial(condition: str, expected: int) -> None:
    assert trial_messages.trial_message(a_trial(condition)).status.condition == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("its job 12 was preempted by another job of Slurm", pb.TrialStatus.KILLED),
        ("Pod was rejected: Evicted: the node was low on resource", pb.TrialStatus.KILLED),
        ("OSError: [Errno 28] No space left on device (exit code 1)", pb.TrialStatus.KILLED),
        ("CUDA out of memory (exit code 1)", pb.TrialStatus.FAILED),
    ],
)
def test_a_failure_with_an_outside_cause_is_sent_as_killed(message: str, expected: int) -> None:
    trial = a_trial("Failed")
    failed = structs.replace(trial.status.conditions[-1], message=message)
    status = structs.replace(trial.status, conditions=(*trial.status.conditions[:-1], failed))

    assert trial_messages.trial_message(structs.replace(trial, status=status)).status.condition == expected


def test_a_stopped_trial_is_sent_with_its_step() -> None:
    trial = a_trial("EarlyStopped")
    stopped = structs.replace(
        trial.status.conditions[-1], message="Trial is early stopped: loss 2 at best up to step 9"
    )
    status = structs.replace(trial.status, conditions=(*trial.status.conditions[:-1], stopped))

    sent = trial_messages.trial_message(structs.replace(trial, status=status))

    assert sent.spec.labels[STOPPED_AT_LABEL] == "9"
    assert past_trial(sent, ObjectiveSpec()).stopped_at == 9
    assert past_trial(trial_messages.trial_message(trial), ObjectiveSpec()).stopped_at is None


def test_a_trial_without_conditions_is_created() -> None:
    assert trial_messages.trial_message(Trial()).status.condition == pb.TrialStatus.CREATED


def test_times_are_whole_seconds_in_utc_and_empty_when_unset() -> None:
    timed = trial_messages.trial_message(a_trial(start_time=STARTED, completion_time=ENDED)).status
    timeless = trial_messages.trial_message(a_trial()).status

    assert (timed.start_time, timed.completion_time) == ("2024-05-01T10:00:00Z", "2024-05-01T10:05:30Z")
    assert (timeless.start_time, timeless.completion_time) == ("", "")


def _observe(metrics: list[Metric], strategies: dict[str, str], objective: str = "error") -> dict[str, str]:
    trial = Trial.decode({"metadata": {"name": "t"}})
    spec = ObjectiveSpec(
        objective_metric_name=objective,
        metric_strategies=tuple(MetricStrategySpec(name=name, value=value) for name, value in strategies.items()),
    )
    trial = structs.replace(
        trial,
        spec=structs.replace(trial.spec, objective=spec),
        status=structs.replace(trial.status, observation=Observation(metrics=tuple(metrics))),
    )
    return {m.name: m.value for m in trial_messages.trial_message(trial).status.observation.metrics}


def test_the_strategy_chooses_the_reading() -> None:
    metrics = [
        Metric(name="error", min="0.01", max="0.08", latest="0.05"),
        Metric(name="auc", min="0.70", max="0.95", latest="0.90"),
        Metric(name="accuracy", min="0.8", max="0.94", latest="0.93"),
    ]

    sent = _observe(metrics, {"error": "min", "auc": "max", "accuracy": "latest"})

    assert sent == {"error": "0.01", "auc": "0.95", "accuracy": "0.93"}


@pytest.mark.parametrize("strategy", ["min", "max"])
def test_an_unavailable_extreme_falls_back_to_the_latest_reading(strategy: str) -> None:
    metric = Metric(name="error", min="unavailable", max="unavailable", latest="0.05")

    assert _observe([metric], {"error": strategy}) == {"error": "0.05"}


def test_a_metric_without_strategy_has_no_text_and_the_objective_then_no_entry() -> None:
    metrics = [Metric(name="error", min="1", max="1", latest="1"), Metric(name="auc", min="1", max="1", latest="1")]

    assert _observe(metrics, {}) == {"auc": ""}


@pytest.mark.parametrize("text", ["nan", "NaN", "inf", "-Infinity", "unavailable", "oops"])
@pytest.mark.parametrize("condition", ["Succeeded", "EarlyStopped"])
def test_an_ended_trial_without_usable_objective_counts_as_failed(condition: str, text: str) -> None:
    status = trial_messages.trial_message(a_trial(condition, text)).status

    assert status.condition == pb.TrialStatus.FAILED
    assert not status.observation.metrics


def test_a_running_trial_that_printed_nan_goes_on_running() -> None:
    status = trial_messages.trial_message(a_trial("Running", "nan")).status

    assert status.condition == pb.TrialStatus.RUNNING
    assert not status.observation.metrics


def test_the_observation_is_always_present() -> None:
    assert trial_messages.trial_message(a_trial("Running", None)).status.HasField("observation")


# --- the encoder ------------------------------------------------------------------------------------------------------


def _decode(data: bytes) -> list[pb.Trial]:
    return list(pb.GetSuggestionsRequest.FromString(data).trials)


def test_encoded_trials_are_the_field_of_both_requests() -> None:
    trials = [a_trial(name="a"), a_trial("MetricsUnavailable", name="b"), a_trial("Running", None, name="c")]
    expected = [trial_messages.trial_message(trials[0]), trial_messages.trial_message(trials[2])]

    data = trial_messages.TrialEncoder().encode(trials)

    assert _decode(data) == expected
    assert list(pb.GetEarlyStoppingRulesRequest.FromString(data).trials) == expected


def test_a_trial_is_encoded_again_only_when_it_changed() -> None:
    encoder = trial_messages.TrialEncoder()
    encoder.encode([a_trial("Running", None, version="1")])

    same_version = encoder.encode([a_trial("Succeeded", version="1")])
    next_version = encoder.encode([a_trial("Succeeded", version="2")])

    assert _decode(same_version)[0].status.condition == pb.TrialStatus.RUNNING
    assert _decode(next_version)[0].status.condition == pb.TrialStatus.SUCCEEDED


def test_a_trial_that_was_never_stored_is_not_remembered() -> None:
    encoder = trial_messages.TrialEncoder()
    encoder.encode([a_trial("Running", None, version="")])

    assert _decode(encoder.encode([a_trial("Succeeded", version="")]))[0].status.condition == pb.TrialStatus.SUCCEEDED


def test_the_encoder_forgets_trials_that_are_no_longer_sent() -> None:
    encoder = trial_messages.TrialEncoder()
    encoder.encode([a_trial(name="a"), a_trial(name="b")])

    encoder.encode([a_trial(name="b")])

    assert set(encoder._known) == {"uid-b"}


def test_earlier_trials_are_a_field_of_their_own() -> None:
    data = trial_messages.TrialEncoder().encode([a_trial(name="a")])
    earlier = trial_messages.TrialEncoder("earlier_trials").encode([a_trial(name="b"), a_trial(name="c")])

    request = pb.GetSuggestionsRequest.FromString(data + earlier)

    assert [trial.name for trial in request.trials] == ["a"]
    assert [trial.name for trial in request.earlier_trials] == ["b", "c"]


def test_trials_without_a_value_that_katib_leaves_out_are_a_field_of_their_own() -> None:
    encoder = trial_messages.TrialEncoder(unmeasured=True)

    request = pb.GetSuggestionsRequest.FromString(
        encoder.encode(
            [
                a_trial("MetricsUnavailable", "unavailable", name="a"),
                a_trial(name="b"),
                a_trial("EarlyStopped", None, name="c"),
            ]
        )
    )

    assert [trial.name for trial in request.trials] == ["b"]
    assert [(trial.name, trial.status.condition) for trial in request.unmeasured_trials] == [
        ("a", pb.TrialStatus.METRICSUNAVAILABLE),
        ("c", pb.TrialStatus.METRICSUNAVAILABLE),
    ]


@given(st.lists(st.integers(min_value=0, max_value=40_000), max_size=5))
def test_trials_of_any_size_are_framed_as_protobuf_does(sizes: list[int]) -> None:
    trials = [a_trial(name=f"{i}-{'x' * size}") for i, size in enumerate(sizes)]
    whole = pb.GetSuggestionsRequest(trials=map(trial_messages.trial_message, trials))

    assert trial_messages.TrialEncoder().encode(trials) == whole.SerializeToString()


# --- replies ----------------------------------------------------------------------------------------------------------


def test_rules_are_read_with_equal_for_an_unknown_comparison() -> None:
    messages = [
        pb.EarlyStoppingRule(name="acc", value="0.5", comparison=pb.LESS, start_step=4),
        pb.EarlyStoppingRule(name="loss", value="2", comparison=pb.GREATER),
        pb.EarlyStoppingRule(name="epoch", value="9"),
    ]

    assert rules_of(messages) == (
        EarlyStoppingRule(name="acc", value="0.5", comparison="less", start_step=4),
        EarlyStoppingRule(name="loss", value="2", comparison="greater"),
        EarlyStoppingRule(name="epoch", value="9", comparison="equal"),
    )
