from katib.wire.rpc._generated import api_pb2 as _api_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class UndecodedSuggestionsRequest(_message.Message):
    __slots__ = ("experiment", "trials", "current_request_number", "total_request_number", "earlier_trials", "unmeasured_trials", "takes_fewer")
    EXPERIMENT_FIELD_NUMBER: _ClassVar[int]
    TRIALS_FIELD_NUMBER: _ClassVar[int]
    CURRENT_REQUEST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    TOTAL_REQUEST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    EARLIER_TRIALS_FIELD_NUMBER: _ClassVar[int]
    UNMEASURED_TRIALS_FIELD_NUMBER: _ClassVar[int]
    TAKES_FEWER_FIELD_NUMBER: _ClassVar[int]
    experiment: _api_pb2.Experiment
    trials: _containers.RepeatedScalarFieldContainer[bytes]
    current_request_number: int
    total_request_number: int
    earlier_trials: _containers.RepeatedScalarFieldContainer[bytes]
    unmeasured_trials: _containers.RepeatedScalarFieldContainer[bytes]
    takes_fewer: bool
    def __init__(self, experiment: _Optional[_Union[_api_pb2.Experiment, _Mapping]] = ..., trials: _Optional[_Iterable[bytes]] = ..., current_request_number: _Optional[int] = ..., total_request_number: _Optional[int] = ..., earlier_trials: _Optional[_Iterable[bytes]] = ..., unmeasured_trials: _Optional[_Iterable[bytes]] = ..., takes_fewer: bool = ...) -> None: ...
