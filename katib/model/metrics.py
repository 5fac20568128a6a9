"""Readings of metrics, from a collector to the observation log and back."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Protocol

from msgspec import Meta, Struct

from katib.errors import invalid
from katib.model.wording import counted, shown

if TYPE_CHECKING:
    from katib.model.types import Observation

ZERO_TIME = datetime(1, 1, 1, tzinfo=UTC)
"""Time of a reading without one (Katib's `0001-01-01T00:00:00Z`)."""

STEP_MARK = "katib-step"
"""Word of a line that precedes the step of its readings: `katib-step=4 loss=0.3`. Katib's default filter reads it as
the name of a metric, which no query asks for."""

PROGRESS = "progressPercentage"
"""The metric that stores a trial's progress, in percent, if its program posts one."""

# The decimal and named forms of Go's strconv.ParseFloat that training programs print; no blanks, no digit separators.
_FLOAT = re.compile(r"[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|inf(inity)?|nan)", re.IGNORECASE | re.ASCII)


class MetricLog(Struct, frozen=True, order=True, omit_defaults=True, gc=False):
    """One reading: its time, metric, printed text and, if known, training step.

    A step is a whole number from 0, such as an epoch. A curve is ordered by step first, then by time; readings without
    a step come first.
    """

    time: Annotated[datetime, Meta(tz=True, description="`0001-01-01T00:00:00Z` when the reading carried none.")]
    name: str
    value: Annotated[str, Meta(description="The text that was printed; NaN and infinities are kept.")]
    step: (
        Annotated[
            int,
            Meta(
                ge=0,
                le=2**63 - 1,
                description="Of the training, from 0; absent where it is not known.",
            ),
        ]
        | None
    ) = None


BEFORE_THE_LAST = -1
"""Cursor after which only the last change remains."""


NEW_TRY = "katib-new-try"
"""Name of a reading that marks a new try of a failed trial: the readings before it are set aside. A log without tries
stores it as a metric, which no query asks for."""


def log_of_try(trial_name: str, number: int) -> str:
    """Return the name of the log of an earlier try, from 1; its dot cannot occur in a trial's name."""
    return f"{trial_name}.{number}"


def trial_of_log(name: str) -> str:
    """Return the name of the trial that a log, or a log of an earlier try, belongs to."""
    trial, _, number = name.rpartition(".")
    return trial if trial and number.isdigit() else name


class Change(NamedTuple):
    """One new reading.

    Attributes:
        trial_name: Its trial.
        cursor: Cursor for requesting later changes; rises within the log of a trial.
        reading: The reading.
    """

    trial_name: str
    cursor: int
    reading: MetricLog


REPORTER_LENGTH = 63
"""Maximum length of a reporter's name."""


class BatchId(NamedTuple):
    """Position of a batch in the sequence of a reporter's readings for a trial, so that none is stored twice.

    Attributes:
        reporter: Unique name of the reporter, of up to REPORTER_LENGTH characters.
        first: Number of the first reading of the batch, from 0.
    """

    reporter: str
    first: int


class BestTrial(NamedTuple):
    """The trial with the best reading of a metric, and the text of that reading."""

    trial_name: str
    value: str


@dataclass(frozen=True, slots=True)
class LogAccess:
    """Access rules of a trial's log.

    Attributes:
        namespace: Of the trial.
        reports_without_token: Whether reporting needs no token.
        reads_without_token: Whether reading needs no token.
        has_ended: Whether the trial has ended, so that its log takes no more readings.
    """

    namespace: str
    reports_without_token: bool = False
    reads_without_token: bool = False
    has_ended: bool = False


LOGS_OF_KATIB = ""
"""Name of no trial; key of the access rules for logs without rules of their own, in a database that Katib created."""


class ObservationReader(Protocol):
    """Reader of the time series of metrics, by trial name; an unknown trial has an empty log. Thread-safe.

    Declared here because controllers, the tuning service, collectors, early stopping services and the wire all use it.
    Every call raises UnavailableError if the log cannot be reached.
    """

    def within(self, namespace: str) -> ObservationReader:
        """Return the logs of one namespace, for readers without access to others.

        A log that knows trials by name alone returns itself.
        """

    def read(
        self,
        trial_name: str,
        *,
        metric_name: str = "",
        start: datetime | None = None,
        end: datetime | None = None,
    ) -> Sequence[MetricLog]:
        """Return readings in the order of their curve: by step, then by time, then by order of reporting.

        A log that keeps no steps orders them by time, then by order of reporting.

        Args:
            trial_name: The trial.
            metric_name: The metric; empty for all.
            start: Earliest time, inclusive.
            end: Latest time, inclusive.
        """

    def newest(self, trial_name: str, *, limit: int, metric_name: str = "") -> Sequence[MetricLog]:
        """Return the last `limit` readings of `read`; the cost does not depend on the length of the log."""

    def count(self, trial_name: str, *, metric_name: str = "") -> int:
        """Return the number of readings that `read` returns."""

    def changes(self, cursors: Mapping[str, int], metric_name: str = "") -> Sequence[Change]:
        """Return the readings of a metric that arrived after these cursors; those of each trial in order of arrival.

        A long log is returned in parts: more follow until one is empty. A cursor becomes invalid when its log is
        deleted.

        Args:
            cursors: By trial name, the cursor of the last known change; 0 for none. BEFORE_THE_LAST requests only the
                last change, so that a reader can continue from the end of a long log.
            metric_name: The metric; empty for all.
        """

    def curve(self, trial_name: str, metric_name: str, max_points: int) -> Sequence[MetricLog]:
        """Return at most `max_points` readings of a metric, in the order of its curve: all if there are no more.

        Otherwise the first and the last one, and the smallest and the largest one of each of equally long parts
        (`katib.model.thinning`).
        """

    def best(self, trial_names: Sequence[str], metric_name: str, *, maximize: bool) -> BestTrial | None:
        """Return the trial with the smallest, or the largest, usable reading; the first name of equal ones.

        None if no trial has a usable one.
        """

    def summarize(self, trial_name: str, metrics: Sequence[str]) -> Observation | None:
        """Return min, max and latest of these metrics, in this order; None if the first one has no reading.

        A metric without usable number has `unavailable` as min and max; latest is the last text of the curve.
        """


class ObservationLog(ObservationReader, Protocol):
    """A writable log."""

    def within(self, namespace: str) -> ObservationLog:
        """Return the log of one namespace, for writers without access to others."""

    def report(self, trial_name: str, logs: Sequence[MetricLog], batch: BatchId | None = None) -> None:
        """Append readings; all or none.

        Args:
            trial_name: The trial.
            logs: The readings.
            batch: Position among the reporter's readings. Readings whose numbers are stored already are not stored
                again. None for readings without numbers: reported twice, they are stored twice.
        """

    def knows_batches(self, trial_name: str) -> bool:
        """Return whether a numbered batch reported twice is stored once; false for logs in Katib's own table."""

    def delete(self, trial_name: str) -> None:
        """Remove the log of a trial."""


def parse_value(text: str) -> float | None:
    """Return the number in a reading's text, NaN and infinities included; None if it is not a number."""
    return float(text) if _FLOAT.fullmatch(text) else None


def is_usable(text: str) -> bool:
    """Return whether a reading is a finite number: only these are compared, become the best or reach an algorithm."""
    value = parse_value(text)
    return value is not None and math.isfinite(value)


# --- status of a program in Kubeflow Trainer --------------------------------------------------------------------------

_STEP = "current_step"
_DIGITS_OF_A_STEP = 18
"""Fits into 64 bits."""
_WHOLE = 100


def trainer_readings(
    metrics: Mapping[str, str], progress: object, names: Collection[str], time: datetime
) -> list[MetricLog]:
    """Return the readings in a status of Kubeflow Trainer: the metrics of these names, and the progress.

    The only step in a status is `current_step` of Transformers.

    Args:
        metrics: Value of each metric; values that are not numbers are skipped.
        progress: In percent; skipped unless it is a whole number from 0 to 100.
        names: Metrics to store.
        time: Time of the post.
    """
    text = metrics.get(_STEP, "")
    step = int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS_OF_A_STEP else None
    found = [
        MetricLog(time, name, value, step)
        for name, value in metrics.items()
        if name in names and parse_value(value) is not None
    ]
    if isinstance(progress, int) and not isinstance(progress, bool) and 0 <= progress <= _WHOLE:
        found.append(MetricLog(time, PROGRESS, str(progress), step))
    return found


# --- patterns ---------------------------------------------------------------------------------------------------------


def compile_format(text: str, path: str) -> Any:
    """Return a pattern of `metricsFormat`, compiled for bytes: RE2 with groups for name and value.

    Args:
        text: The pattern.
        path: Path of its field, for errors.

    Raises:
        InvalidError: It is not RE2, or has too few groups.
    """
    import re2  # a compiled library that most experiments do not need

    options = re2.Options()
    options.log_errors = False
    try:
        pattern = re2.compile(text.encode(), options)
    except re2.error as error:
        reason = error.args[0] if error.args else "not valid"
        reason = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        cause = f"{shown(text)} is not an RE2 expression: {shown(reason)[1:-1]}"
        raise invalid(path, cause, "fix the expression", "filter-syntax") from error
    if pattern.groups < 2:  # noqa: PLR2004  # name and value
        cause = f"{shown(text)} has {counted(pattern.groups, 'group')}, name and value need 2"
        raise invalid(path, cause, "put ( ) around the name and around the value", "filter-groups")
    return pattern


# --- time stamps: RFC 3339, in log lines and on the wire --------------------------------------------------------------

# The format of Go's time.RFC3339: a `T`, seconds, an optional fraction after a point or a comma, and a zone.
_RFC3339 = re.compile(r"(\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2})(?:[.,](\d+))?(Z|[+-]\d{2}:\d{2})", re.ASCII)

MAX_TIMESTAMP_LENGTH = 64
"""Maximum length of a time stamp; a cheap check before the pattern is tried."""


def parse_time(text: str) -> datetime | None:
    """Return the time in UTC; None if the text is not an RFC 3339 time stamp.

    Digits after the sixth of a fraction are cut off: the observation log keeps microseconds.
    """
    match = _RFC3339.fullmatch(text) if len(text) <= MAX_TIMESTAMP_LENGTH else None
    if match is None:
        return None
    seconds, fraction, zone = match.groups()
    try:
        return datetime.fromisoformat(f"{seconds}.{(fraction or '')[:6]:0<6}{zone}").astimezone(UTC)
    except (ValueError, OverflowError):  # the 30th of February; year 1 in a zone east of Greenwich
        return None


def format_timestamp(time: datetime) -> str:
    """Return RFC 3339 text in UTC, with a fraction of up to six digits and without its trailing zeros."""
    text = time.astimezone(UTC).replace(tzinfo=None).isoformat()
    return (text.rstrip("0") if "." in text else text) + "Z"


class RetentionPolicy(Protocol):
    """Retention of the logs of ended trials: `katib.model.configuration.RetentionConfig`."""

    @property
    def max_age_seconds(self) -> int | None:
        """Maximum time since the end of the trial; None for no limit."""

    @property
    def max_trials(self) -> int | None:
        """Number of logs kept per experiment, those of the trials that ended last; None for all."""
