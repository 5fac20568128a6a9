"""The messages of `optuna.StorageService`, built from their names and numbers.

They are in a descriptor pool of their own: a program that also imports Optuna's would define them twice. Optuna's own
stubs need a newer protobuf than Katib's official SDK allows.

Source: the protocol of `optuna.storages.GrpcStorageProxy`, as of Optuna 4.2 to 5.0.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "optuna"
SERVICE = "optuna.StorageService"

_Field = descriptor_pb2.FieldDescriptorProto

_ENUMS = {
    "StudyDirection": ("MINIMIZE", "MAXIMIZE"),
    "TrialState": ("RUNNING", "COMPLETE", "PRUNED", "FAIL", "WAITING"),
}

_STUDY = ("int study_id",)
_TRIAL = ("int trial_id",)
_ATTRIBUTE = ("str key", "str value")
_MESSAGES: dict[str, tuple[str, ...]] = {
    "Study": (
        *_STUDY,
        *("str study_name", "StudyDirection* directions", "str>str user_attributes", "str>str system_attributes"),
    ),
    "Trial": (
        *("int trial_id", "int number", "TrialState state", "float* values", "str datetime_start"),
        *("str datetime_complete", "str>>float params", "str>>str distributions", "str>str user_attributes"),
        *("str>str system_attributes", "int>float intermediate_values"),
    ),
}
_CALLS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "CreateNewStudy": (("StudyDirection* directions", "str study_name"), _STUDY),
    "DeleteStudy": (_STUDY, ()),
    "SetStudyUserAttribute": ((*_STUDY, *_ATTRIBUTE), ()),
    "SetStudySystemAttribute": ((*_STUDY, *_ATTRIBUTE), ()),
    "GetStudyIdFromName": (("str study_name",), _STUDY),
    "GetStudyNameFromId": (_STUDY, ("str study_name",)),
    "GetStudyDirections": (_STUDY, ("StudyDirection* directions",)),
    "GetStudyUserAttributes": (_STUDY, ("str>str user_attributes",)),
    "GetStudySystemAttributes": (_STUDY, ("str>str system_attributes",)),
    "GetAllStudies": ((), ("Study* studies",)),
    "CreateNewTrial": ((*_STUDY, "Trial template_trial", "bool template_trial_is_none"), _TRIAL),
    "SetTrialParameter": ((*_TRIAL, "str param_name", "float param_value_internal", "str distribution"), ()),
    "GetTrialIdFromStudyIdTrialNumber": ((*_STUDY, "int trial_number"), _TRIAL),
    "SetTrialStateValues": ((*_TRIAL, "TrialState state", "float* values"), ("bool trial_updated",)),
    "SetTrialIntermediateValue": ((*_TRIAL, "int step", "float intermediate_value"), ()),
    "SetTrialUserAttribute": ((*_TRIAL, *_ATTRIBUTE), ()),
    "SetTrialSystemAttribute": ((*_TRIAL, *_ATTRIBUTE), ()),
    "GetTrial": (_TRIAL, ("Trial trial",)),
    "GetTrials": ((*_STUDY, "int* included_trial_ids", "int trial_id_greater_than"), ("Trial* trials",)),
}
"""Fields of request and reply of each call, numbered from 1: type and name, `*` for a list, `>` for a map, and `>>` for
a map whose entries keep their order: on the wire a map is a list of pairs."""

_SCALARS = {
    "int": _Field.TYPE_INT64,
    "float": _Field.TYPE_DOUBLE,
    "str": _Field.TYPE_STRING,
    "bool": _Field.TYPE_BOOL,
}


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="katib/optuna_storage.proto", package=PACKAGE, syntax="proto3")
    for name, values in _ENUMS.items():
        enum = file.enum_type.add(name=name)
        for number, value in enumerate(values):
            enum.value.add(name=value, number=number)
    replies = {f"{call}Reply": reply for call, (_, reply) in _CALLS.items()}
    requests = {f"{call}Request": request for call, (request, _) in _CALLS.items()}
    for name, fields in (_MESSAGES | requests | replies).items():
        message = file.message_type.add(name=name)
        for number, text in enumerate(fields, 1):
            kind, _, field_name = text.partition(" ")
            _add(message, number, field_name, kind)
    return file


def _add(message: descriptor_pb2.DescriptorProto, number: int, name: str, kind: str) -> None:
    key, is_map, value = kind.partition(">>" if ">>" in kind else ">")
    several = bool(is_map) or kind.endswith("*")
    field = message.field.add(name=name, number=number, label=_Field.LABEL_REPEATED if several else 1)
    kind = kind.removesuffix("*")
    if is_map:
        entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
        entry.options.map_entry = is_map == ">"
        _add(entry, 1, "key", key)
        _add(entry, 2, "value", value)
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{PACKAGE}.{message.name}.{entry.name}"
    elif kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type = _Field.TYPE_ENUM if kind in _ENUMS else _Field.TYPE_MESSAGE
        field.type_name = f".{PACKAGE}.{kind}"


_pool = descriptor_pool.DescriptorPool()
_pool.Add(_file())


def message(name: str) -> Any:
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))


CALLS = {call: (message(f"{call}Request"), message(f"{call}Reply")) for call in _CALLS}
"""Classes of request and reply of each call."""

Study, Trial = message("Study"), message("Trial")
STATES, DIRECTIONS = _ENUMS["TrialState"], _ENUMS["StudyDirection"]
"""Names by number."""
