from katib.wire.rpc._generated import api_pb2 as _api_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JudgeRequest(_message.Message):
    __slots__ = ("experiment", "trials", "db_manager_address", "namespace")
    EXPERIMENT_FIELD_NUMBER: _ClassVar[int]
    TRIALS_FIELD_NUMBER: _ClassVar[int]
    DB_MANAGER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    experiment: _api_pb2.Experiment
    trials: _containers.RepeatedCompositeFieldContainer[_api_pb2.Trial]
    db_manager_address: str
    namespace: str
    def __init__(self, experiment: _Optional[_Union[_api_pb2.Experiment, _Mapping]] = ..., trials: _Optional[_Iterable[_Union[_api_pb2.Trial, _Mapping]]] = ..., db_manager_address: _Optional[str] = ..., namespace: _Optional[str] = ...) -> None: ...

class JudgeReply(_message.Message):
    __slots__ = ("verdicts",)
    VERDICTS_FIELD_NUMBER: _ClassVar[int]
    verdicts: _containers.RepeatedCompositeFieldContainer[Verdict]
    def __init__(self, verdicts: _Optional[_Iterable[_Union[Verdict, _Mapping]]] = ...) -> None: ...

class Verdict(_message.Message):
    __slots__ = ("trial_name", "reason", "value", "resource", "time_micros")
    TRIAL_NAME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    TIME_MICROS_FIELD_NUMBER: _ClassVar[int]
    trial_name: str
    reason: str
    value: str
    resource: int
    time_micros: int
    def __init__(self, trial_name: _Optional[str] = ..., reason: _Optional[str] = ..., value: _Optional[str] = ..., resource: _Optional[int] = ..., time_micros: _Optional[int] = ...) -> None: ...

class ReplayRequest(_message.Message):
    __slots__ = ("experiment", "curves")
    EXPERIMENT_FIELD_NUMBER: _ClassVar[int]
    CURVES_FIELD_NUMBER: _ClassVar[int]
    experiment: _api_pb2.Experiment
    curves: _containers.RepeatedCompositeFieldContainer[Curve]
    def __init__(self, experiment: _Optional[_Union[_api_pb2.Experiment, _Mapping]] = ..., curves: _Optional[_Iterable[_Union[Curve, _Mapping]]] = ...) -> None: ...

class Curve(_message.Message):
    __slots__ = ("trial_name", "points", "unfinished", "without_steps")
    TRIAL_NAME_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    UNFINISHED_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_STEPS_FIELD_NUMBER: _ClassVar[int]
    trial_name: str
    points: _containers.RepeatedCompositeFieldContainer[Point]
    unfinished: bool
    without_steps: bool
    def __init__(self, trial_name: _Optional[str] = ..., points: _Optional[_Iterable[_Union[Point, _Mapping]]] = ..., unfinished: bool = ..., without_steps: bool = ...) -> None: ...

class Point(_message.Message):
    __slots__ = ("time_micros", "resource", "value")
    TIME_MICROS_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    time_micros: int
    resource: int
    value: float
    def __init__(self, time_micros: _Optional[int] = ..., resource: _Optional[int] = ..., value: _Optional[float] = ...) -> None: ...

class ReplayReply(_message.Message):
    __slots__ = ("verdicts",)
    VERDICTS_FIELD_NUMBER: _ClassVar[int]
    verdicts: _containers.RepeatedCompositeFieldContainer[Verdict]
    def __init__(self, verdicts: _Optional[_Iterable[_Union[Verdict, _Mapping]]] = ...) -> None: ...
