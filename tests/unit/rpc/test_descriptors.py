"""The wire contract, spelled out once more by hand, so that the proto can never drift."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from katib.wire.rpc._generated import POOL, api_pb2, health_pb2
from katib.wire.rpc._generated.suggestions_pb2 import UndecodedSuggestionsRequest

PACKAGE = "api.v1.beta1"
PROTO = Path(__file__).parents[3] / "proto"

# `name = number: type`, a `*` for repeated; types of the package without its name.
MESSAGES = {
    "Experiment": "name=1:string spec=2:ExperimentSpec",
    "ExperimentSpec": "parameter_specs=1:ExperimentSpec.ParameterSpecs objective=2:ObjectiveSpec"
    " algorithm=3:AlgorithmSpec early_stopping=4:EarlyStoppingSpec parallel_trial_count=5:int32"
    " max_trial_count=6:int32 nas_config=7:NasConfig",
    "ExperimentSpec.ParameterSpecs": "parameters=1:ParameterSpec*",
    "ParameterSpec": "name=1:string parameter_type=2:ParameterType feasible_space=3:FeasibleSpace",
    "FeasibleSpace": "max=1:string min=2:string list=3:string* step=4:string distribution=5:Distribution",
    "ObjectiveSpec": "type=1:ObjectiveType goal=2:double objective_metric_name=3:string"
    " additional_metric_names=4:string*",
    "AlgorithmSpec": "algorithm_name=1:string algorithm_settings=2:AlgorithmSetting*",
    "AlgorithmSetting": "name=1:string value=2:string",
    "EarlyStoppingSpec": "algorithm_name=1:string algorithm_settings=2:EarlyStoppingSetting*",
    "EarlyStoppingSetting": "name=1:string value=2:string",
    "NasConfig": "graph_config=1:GraphConfig operations=2:NasConfig.Operations",
    "NasConfig.Operations": "operation=1:Operation*",
    "GraphConfig": "num_layers=1:int32 input_sizes=2:int32* output_sizes=3:int32*",
    "Operation": "operation_type=1:string parameter_specs=2:Operation.ParameterSpecs",
    "Operation.ParameterSpecs": "parameters=1:ParameterSpec*",
    "Trial": "name=1:string spec=2:TrialSpec status=3:TrialStatus",
    "TrialSpec": "objective=2:ObjectiveSpec parameter_assignments=3:TrialSpec.ParameterAssignments"
    " labels=4:TrialSpec.LabelsEntry*",
    "TrialSpec.LabelsEntry": "key=1:string value=2:string",
    "TrialSpec.ParameterAssignments": "assignments=1:ParameterAssignment*",
    "ParameterAssignment": "name=1:string value=2:string",
    "TrialStatus": "start_time=1:string completion_time=2:string condition=3:TrialStatus.TrialConditionType"
    " observation=4:Observation",
    "Observation": "metrics=1:Metric*",
    "Metric": "name=1:string value=2:string",
    "ReportObservationLogRequest": "trial_name=1:string observation_log=2:ObservationLog",
    "ReportObservationLogReply": "",
    "ObservationLog": "metric_logs=1:MetricLog*",
    "MetricLog": "time_stamp=1:string metric=2:Metric",
    "GetObservationLogRequest": "trial_name=1:string metric_name=2:string start_time=3:string end_time=4:string",
    "GetObservationLogReply": "observation_log=1:ObservationLog",
    "DeleteObservationLogRequest": "trial_name=1:string",
    "DeleteObservationLogReply": "",
    "GetSuggestionsRequest": "experiment=1:Experiment trials=2:Trial* current_request_number=4:int32"
    " total_request_number=5:int32",
    "GetSuggestionsReply": "parameter_assignments=1:GetSuggestionsReply.ParameterAssignments*"
    " algorithm=2:AlgorithmSpec early_stopping_rules=3:EarlyStoppingRule*",
    "GetSuggestionsReply.ParameterAssignments": "assignments=1:ParameterAssignment* trial_name=2:string"
    " labels=3:GetSuggestionsReply.ParameterAssignments.LabelsEntry*",
    "GetSuggestionsReply.ParameterAssignments.LabelsEntry": "key=1:string value=2:string",
    "ValidateAlgorithmSettingsRequest": "experiment=1:Experiment",
    "ValidateAlgorithmSettingsReply": "",
    "GetEarlyStoppingRulesRequest": "experiment=1:Experiment trials=2:Trial* db_manager_address=3:string",
    "GetEarlyStoppingRulesReply": "early_stopping_rules=1:EarlyStoppingRule*",
    "EarlyStoppingRule": "name=1:string value=2:string comparison=3:ComparisonType start_step=4:int32",
    "ValidateEarlyStoppingSettingsRequest": "early_stopping=1:EarlyStoppingSpec",
    "ValidateEarlyStoppingSettingsReply": "",
    "SetTrialStatusRequest": "trial_name=1:string",
    "SetTrialStatusReply": "",
}

FIRST_OF_OURS = 1001
OUR_FIELDS = {
    "ExperimentSpec": "parameter_constraints=1001:string* fixed_assignments=1002:FixedAssignments*",
    "ParameterSpec": "when=1001:ParameterCondition prior=1002:ParameterPrior",
    "ObjectiveSpec": "objectives=1001:ObjectiveTerm* constraints=1002:MetricConstraint*",
    "GetSuggestionsRequest": "earlier_trials=1001:Trial* unmeasured_trials=1002:Trial* takes_fewer=1003:bool",
    "GetSuggestionsReply": "explanation=1001:string",
    "ValidateAlgorithmSettingsReply": "features=1001:ValidateAlgorithmSettingsReply.Feature*",
}
OUR_MESSAGES = {
    "FixedAssignments": "assignments=1:ParameterAssignment*",
    "ParameterCondition": "parameter=1:string values=2:string*",
    "ParameterPrior": "center=1:string factor=2:string width=3:string weights=4:ParameterPrior.WeightsEntry*",
    "ParameterPrior.WeightsEntry": "key=1:string value=2:double",
    "ObjectiveTerm": "name=1:string type=2:ObjectiveType goal=3:double",
    "MetricConstraint": "metric_name=1:string min=2:double max=3:double",
}

ENUMS = {
    "ParameterType": ["UNKNOWN_TYPE", "DOUBLE", "INT", "DISCRETE", "CATEGORICAL"],
    "Distribution": ["DISTRIBUTION_UNSPECIFIED", "UNIFORM", "LOG_UNIFORM", "NORMAL", "LOG_NORMAL"],
    "ObjectiveType": ["UNKNOWN", "MINIMIZE", "MAXIMIZE"],
    "TrialStatus.TrialConditionType": [
        "CREATED",
        "RUNNING",
        "SUCCEEDED",
        "KILLED",
        "FAILED",
        "METRICSUNAVAILABLE",
        "EARLYSTOPPED",
        "UNKNOWN",
    ],
    "ComparisonType": ["UNKNOWN_COMPARISON", "EQUAL", "LESS", "GREATER"],
}

METHODS = {
    "DBManager": ["ReportObservationLog", "GetObservationLog", "DeleteObservationLog"],
    "Suggestion": ["GetSuggestions", "ValidateAlgorithmSettings"],
    "EarlyStopping": ["GetEarlyStoppingRules", "SetTrialStatus", "ValidateEarlyStoppingSettings"],
}

_TYPES = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_DOUBLE: "double",
    FieldDescriptor.TYPE_BOOL: "bool",
}


def _fields(message: Descriptor, *, ours: bool = False) -> str:
    fields = (field for field in message.fields if (field.number >= FIRST_OF_OURS) == ours)
    return " ".join(f"{field.name}={field.number}:{_type(field)}" for field in fields)


def _type(field: FieldDescriptor) -> str:
    target = field.message_type or field.enum_type
    name = target.full_name.removeprefix(f"{PACKAGE}.") if target else _TYPES[field.type]
    return f"{name}*" if field.label == FieldDescriptor.LABEL_REPEATED else name


def _walk(messages: dict[str, Descriptor], prefix: str = "") -> dict[str, Descriptor]:
    found = {}
    for name, message in messages.items():
        found[prefix + name] = message
        found |= _walk(message.nested_types_by_name, f"{prefix}{name}.")
    return found


def test_the_messages_are_those_of_katib() -> None:
    found = _walk(api_pb2.DESCRIPTOR.message_types_by_name)

    assert {name: _fields(message) for name, message in found.items() if name not in OUR_MESSAGES} == MESSAGES


def test_what_katib_cannot_say_is_in_fields_with_numbers_far_from_its_own() -> None:
    found = _walk(api_pb2.DESCRIPTOR.message_types_by_name)

    assert {name: fields for name, m in found.items() if (fields := _fields(m, ours=True))} == OUR_FIELDS
    assert {name: _fields(found[name]) for name in OUR_MESSAGES} == OUR_MESSAGES


@pytest.mark.parametrize("name", ENUMS)
def test_the_enums_are_those_of_katib(name: str) -> None:
    enum = POOL.FindEnumTypeByName(f"{PACKAGE}.{name}")

    assert [(value.name, value.number) for value in enum.values] == [(word, i) for i, word in enumerate(ENUMS[name])]


def test_the_methods_are_those_of_katib() -> None:
    services = api_pb2.DESCRIPTOR.services_by_name

    assert {name: [m.name for m in service.methods] for name, service in services.items()} == METHODS
    for service, method in ((s, m) for s, methods in METHODS.items() for m in methods):
        descriptor = services[service].methods_by_name[method]
        assert descriptor.full_name == f"{PACKAGE}.{service}.{method}"
        assert (descriptor.input_type.name, descriptor.output_type.name) == (f"{method}Request", f"{method}Reply")
        assert not descriptor.client_streaming
        assert not descriptor.server_streaming


def test_package_file_and_go_package_are_those_of_katib() -> None:
    file = api_pb2.DESCRIPTOR

    assert (file.package, file.name) == (PACKAGE, "api.proto")
    assert file.GetOptions().go_package == "github.com/kubeflow/katib/pkg/apis/manager/v1beta1;api_v1_beta1"


def test_health_is_that_of_grpc() -> None:
    file = health_pb2.DESCRIPTOR

    assert (file.package, file.name) == ("grpc.health.v1", "health.proto")
    assert [m.name for m in file.services_by_name["Health"].methods] == ["Check"]
    assert _fields(file.message_types_by_name["HealthCheckRequest"]) == "service=1:string"
    status = file.message_types_by_name["HealthCheckResponse"].enum_types_by_name["ServingStatus"]
    assert [value.name for value in status.values] == ["UNKNOWN", "SERVING", "NOT_SERVING"]


_OURS = "import katib.wire.rpc._generated.api_pb2 as ours, katib.wire.rpc.services"
_OFFICIAL = """
import importlib.util, sys, types
package = types.ModuleType("kubeflow.katib")  # without its client, which imports a client of all of Kubernetes
package.__path__ = importlib.util.find_spec("kubeflow.katib").submodule_search_locations
sys.modules["kubeflow.katib"] = package
import kubeflow.katib.katib_api_pb2 as official, kubeflow.katib.katib_api_pb2_grpc
"""
_COMPARE = """
def fill(pb):
    return pb.GetSuggestionsRequest(
        experiment=pb.Experiment(name="e", spec=pb.ExperimentSpec(
            parameter_specs=pb.ExperimentSpec.ParameterSpecs(parameters=[pb.ParameterSpec(
                name="lr", parameter_type=pb.DOUBLE,
                feasible_space=pb.FeasibleSpace(min="0", max="1", distribution=pb.LOG_UNIFORM))]),
            objective=pb.ObjectiveSpec(type=pb.MAXIMIZE, goal=0.5, objective_metric_name="a"))),
        trials=[pb.Trial(name="t", spec=pb.TrialSpec(labels={"k": "v"}), status=pb.TrialStatus(
            condition=pb.TrialStatus.EARLYSTOPPED,
            observation=pb.Observation(metrics=[pb.Metric(name="a", value="1")])))],
        current_request_number=2, total_request_number=3)
a, b = fill(ours), fill(official)
assert a.SerializeToString(deterministic=True) == b.SerializeToString(deterministic=True)
assert type(b).FromString(a.SerializeToString()) == b
assert type(a).FromString(b.SerializeToString()) == a
"""


@pytest.mark.parametrize("imports", [(_OURS, _OFFICIAL), (_OFFICIAL, _OURS)], ids=["ours-first", "official-first"])
def test_our_stubs_live_beside_the_official_ones_and_speak_the_same_bytes(imports: tuple[str, str]) -> None:
    program = "\n".join([*imports, _COMPARE])

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


def test_the_request_that_services_read_has_every_field_of_the_one_that_is_sent() -> None:
    sent = {(field.name, field.number) for field in api_pb2.GetSuggestionsRequest.DESCRIPTOR.fields}

    assert {(field.name, field.number) for field in UndecodedSuggestionsRequest.DESCRIPTOR.fields} == sent


@pytest.mark.parametrize("name", sorted(path.stem for path in PROTO.glob("*.proto")))
def test_stubs_for_go_have_a_package_of_their_own(name: str) -> None:
    assert "/" in importlib.import_module(f"katib.wire.rpc._generated.{name}_pb2").DESCRIPTOR.GetOptions().go_package
