from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SummarizeRequest(_message.Message):
    __slots__ = ("trial_name", "metric_names")
    TRIAL_NAME_FIELD_NUMBER: _ClassVar[int]
    METRIC_NAMES_FIELD_NUMBER: _ClassVar[int]
    trial_name: str
    metric_names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, trial_name: _Optional[str] = ..., metric_names: _Optional[_Iterable[str]] = ...) -> None: ...

class SummarizeReply(_message.Message):
    __slots__ = ("metrics",)
    METRICS_FIELD_NUMBER: _ClassVar[int]
    metrics: _containers.RepeatedCompositeFieldContainer[MetricSummary]
    def __init__(self, metrics: _Optional[_Iterable[_Union[MetricSummary, _Mapping]]] = ...) -> None: ...

class MetricSummary(_message.Message):
    __slots__ = ("name", "min", "max", "latest")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    name: str
    min: str
    max: str
    latest: str
    def __init__(self, name: _Optional[str] = ..., min: _Optional[str] = ..., max: _Optional[str] = ..., latest: _Optional[str] = ...) -> None: ...

class GetNewestRequest(_message.Message):
    __slots__ = ("trial_name", "metric_name", "limit")
    TRIAL_NAME_FIELD_NUMBER: _ClassVar[int]
    METRIC_NAME_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    trial_name: str
    metric_name: str
    limit: int
    def __init__(self, trial_name: _Optional[str] = ..., metric_name: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class GetNewestReply(_message.Message):
    __slots__ = ("readings",)
    READINGS_FIELD_NUMBER: _ClassVar[int]
    readings: _containers.RepeatedCompositeFieldContainer[Reading]
    def __init__(self, readings: _Optional[_Iterable[_Union[Reading, _Mapping]]] = ...) -> None: ...

class Reading(_message.Message):
    __slots__ = ("time_stamp", "name", "value", "step")
    TIME_STAMP_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    time_stamp: str
    name: str
    value: str
    step: int
    def __init__(self, time_stamp: _Optional[str] = ..., name: _Optional[str] = ..., value: _Optional[str] = ..., step: _Optional[int] = ...) -> None: ...

class CountRequest(_message.Message):
    __slots__ = ("trial_name", "metric_name")
    TRIAL_NAME_FIELD_NUMBER: _ClassVar[int]
    METRIC_NAME_FIELD_NUMBER: _ClassVar[int]
    trial_name: str
    metric_name: str
    def __init__(self, trial_name: _Optional[str] = ..., metric_name: _Optional[str] = ...) -> None: ...

class CountReply(_message.Message):
    __slots__ = ("count",)
    COUNT_FIELD_NUMBER: _ClassVar[int]
    count: int
    def __init__(self, count: _Optional[int] = ...) -> None: ...

class ReportRequest(_message.Message):
    __slots__ = ("trial_name", "readings", "reporter", "first")
    TRIAL_NAME_FIELD_NUMBER: _ClassVar[int]
    READINGS_FIELD_NUMBER: _ClassVar[int]
    REPORTER_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    trial_name: str
    readings: _containers.RepeatedCompositeFieldContainer[Reading]
    reporter: str
    first: int
    def __init__(self, trial_name: _Optional[str] = ..., readings: _Optional[_Iterable[_Union[Reading, _Mapping]]] = ..., reporter: _Optional[str] = ..., first: _Optional[int] = ...) -> None: ...

class ReportReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("trial_name", "metric_name", "start_time", "end_time")
    TRIAL_NAME_FIELD_NUMBER: _ClassVar[int]
    METRIC_NAME_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    trial_name: str
    metric_name: str
    start_time: str
    end_time: str
    def __init__(self, trial_name: _Optional[str] = ..., metric_name: _Optional[str] = ..., start_time: _Optional[str] = ..., end_time: _Optional[str] = ...) -> None: ...

class ReadReply(_message.Message):
    __slots__ = ("readings",)
    READINGS_FIELD_NUMBER: _ClassVar[int]
    readings: _containers.RepeatedCompositeFieldContainer[Reading]
    def __init__(self, readings: _Optional[_Iterable[_Union[Reading, _Mapping]]] = ...) -> None: ...

class GetChangesRequest(_message.Message):
    __slots__ = ("cursors", "metric_name")
    CURSORS_FIELD_NUMBER: _ClassVar[int]
    METRIC_NAME_FIELD_NUMBER: _ClassVar[int]
    cursors: _containers.RepeatedCompositeFieldContainer[Cursor]
    metric_name: str
    def __init__(self, cursors: _Optional[_Iterable[_Union[Cursor, _Mapping]]] = ..., metric_name: _Optional[str] = ...) -> None: ...

class Cursor(_message.Message):
    __slots__ = ("trial_name", "cursor")
    TRIAL_NAME_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    trial_name: str
    cursor: int
    def __init__(self, trial_name: _Optional[str] = ..., cursor: _Optional[int] = ...) -> None: ...

class GetChangesReply(_message.Message):
    __slots__ = ("changes",)
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedCompositeFieldContainer[Change]
    def __init__(self, changes: _Optional[_Iterable[_Union[Change, _Mapping]]] = ...) -> None: ...

class Change(_message.Message):
    __slots__ = ("trial_name", "cursor", "reading")
    TRIAL_NAME_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    READING_FIELD_NUMBER: _ClassVar[int]
    trial_name: str
    cursor: int
    reading: Reading
    def __init__(self, trial_name: _Optional[str] = ..., cursor: _Optional[int] = ..., reading: _Optional[_Union[Reading, _Mapping]] = ...) -> None: ...

class GetCurveRequest(_message.Message):
    __slots__ = ("trial_name", "metric_name", "max_points")
    TRIAL_NAME_FIELD_NUMBER: _ClassVar[int]
    METRIC_NAME_FIELD_NUMBER: _ClassVar[int]
    MAX_POINTS_FIELD_NUMBER: _ClassVar[int]
    trial_name: str
    metric_name: str
    max_points: int
    def __init__(self, trial_name: _Optional[str] = ..., metric_name: _Optional[str] = ..., max_points: _Optional[int] = ...) -> None: ...

class GetCurveReply(_message.Message):
    __slots__ = ("readings",)
    READINGS_FIELD_NUMBER: _ClassVar[int]
    readings: _containers.RepeatedCompositeFieldContainer[Reading]
    def __init__(self, readings: _Optional[_Iterable[_Union[Reading, _Mapping]]] = ...) -> None: ...

class GetBestRequest(_message.Message):
    __slots__ = ("trial_names", "metric_name", "maximize")
    TRIAL_NAMES_FIELD_NUMBER: _ClassVar[int]
    METRIC_NAME_FIELD_NUMBER: _ClassVar[int]
    MAXIMIZE_FIELD_NUMBER: _ClassVar[int]
    trial_names: _containers.RepeatedScalarFieldContainer[str]
    metric_name: str
    maximize: bool
    def __init__(self, trial_names: _Optional[_Iterable[str]] = ..., metric_name: _Optional[str] = ..., maximize: bool = ...) -> None: ...

class GetBestReply(_message.Message):
    __slots__ = ("best",)
    BEST_FIELD_NUMBER: _ClassVar[int]
    best: BestTrial
    def __init__(self, best: _Optional[_Union[BestTrial, _Mapping]] = ...) -> None: ...

class BestTrial(_message.Message):
    __slots__ = ("trial_name", "value")
    TRIAL_NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    trial_name: str
    value: str
    def __init__(self, trial_name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class BeginRequest(_message.Message):
    __slots__ = ("trial_name", "reports_without_token", "reads_without_token")
    TRIAL_NAME_FIELD_NUMBER: _ClassVar[int]
    REPORTS_WITHOUT_TOKEN_FIELD_NUMBER: _ClassVar[int]
    READS_WITHOUT_TOKEN_FIELD_NUMBER: _ClassVar[int]
    trial_name: str
    reports_without_token: bool
    reads_without_token: bool
    def __init__(self, trial_name: _Optional[str] = ..., reports_without_token: bool = ..., reads_without_token: bool = ...) -> None: ...

class BeginReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class EndRequest(_message.Message):
    __slots__ = ("trial_name",)
    TRIAL_NAME_FIELD_NUMBER: _ClassVar[int]
    trial_name: str
    def __init__(self, trial_name: _Optional[str] = ...) -> None: ...

class EndReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetRefusalRequest(_message.Message):
    __slots__ = ("trial_name",)
    TRIAL_NAME_FIELD_NUMBER: _ClassVar[int]
    trial_name: str
    def __init__(self, trial_name: _Optional[str] = ...) -> None: ...

class GetRefusalReply(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...
