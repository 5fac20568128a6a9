"""Readings of metrics, as they travel from a collector to the observation log and back."""

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
"""Time of a reading that carried none (Katib's `0001-01-01T00:00:00Z`)."""

STEP_MARK = "katib-step"
"""Word of a line that is followed by the step of its readings: `katib-step=4 loss=0.3`. Katib's default filter takes it
for the name of a metric, which no query asks for."""

PROGRESS = "progressPercentage"
"""The metric that the progress of a trial is stored as, in percent, where its program posts one."""

# The decimal and named forms of Go's strconv.ParseFloat that training programs print; no blanks, no digit separators.
_FLOAT = re.compile(r"[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|inf(inity)?|nan)", re.IGNORECASE | re.ASCII)


class MetricLog(Struct, frozen=True, order=True, omit_defaults=True, gc=False):
    """One reading: when, which metric, the text that was printed, and at which step of the training where it is known.

    A step is a whole number from 0, such as an epoch; a curve is in order of steps first, then of time. Readings
    without step come before those with one.
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
"""Cursor behind which there is only the last change."""


NEW_TRY = "katib-new-try"
"""Name of a reading that stands for the beginning of a further try of a trial that failed: the readings before it are
set aside. A log that keeps no tries stores it as a metric, which no query asks for."""


def log_of_try(trial_name: str, number: int) -> str:
    """Return the name of the log of an earlier try, from 1; the dot stands in no name of a trial."""
    return f"{trial_name}.{number}"


def trial_of_log(name: str) -> str:
    """Return the name of the trial whose log, or log of an earlier try, has this name."""
    trial, _, number = name.rpartition(".")
    return trial if trial and number.isdigit() else name


class Change(NamedTuple):
    """One reading that arrived.

    Attributes:
        trial_name: Whose.
        cursor: To be given back for what arrives after it; rises within the log of a trial.
        reading: What arrived.
    """

    trial_name: str
    cursor: int
    reading: MetricLog


REPORTER_LENGTH = 63
"""Longest name of a reporter."""


class BatchId(NamedTuple):
    """Where a batch stands among all readings that its reporter sends for a trial, so that none is stored twice.

    Attributes:
        reporter: Who sends, a name of up to REPORTER_LENGTH characters that no other reporter has.
        first: Number of the first reading of the batch, from 0.
    """

    reporter: str
    first: int


class BestTrial(NamedTuple):
    """The trial with the best reading of a metric, and that reading's text."""

    trial_name: str
    value: str


@dataclass(frozen=True, slots=True)
class LogAccess:
    """To whom the log of a trial belongs.

    Attributes:
        namespace: Of the trial.
        reports_without_token: Whether anybody may report.
        reads_without_token: Whether anybody may read.
        has_ended: Whether the trial has ended, so that its log takes no more readings.
    """

    namespace: str
    reports_without_token: bool = False
    reads_without_token: bool = False
    has_ended: bool = False


LOGS_OF_KATIB = ""
"""The name of no trial, under which the access to logs that never began is kept in a database that Katib made."""


class ObservationReader(Protocol):
    """Reads the time series of metrics, by trial name; an unknown trial has an empty log. Thread-safe.

    Declared here because controllers, the tuning service, collectors, early stopping services and the wire all use it.
    Every call raises UnavailableError when the log cannot be reached.
    """

    def within(self, namespace: str) -> ObservationReader:
        """Return the logs of one namespace, for readers who may not see the others.

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
        """Return readings in the order of their curve: by step, then by time, then as they were reported.

        A log that keeps no steps has them in order of time, those of one time in the order in which they were reported.

        Args:
            trial_name: Whose.
            metric_name: Of which metric; empty: of all.
            start: From when on, inclusive.
            end: Until when, inclusive.
        """

    def newest(self, trial_name: str, *, limit: int, metric_name: str = "") -> Sequence[MetricLog]:
        """Return the last so many of what `read` returns; its cost does not depend on the length of the log."""

    def count(self, trial_name: str, *, metric_name: str = "") -> int:
        """Return how many readings `read` returns."""

    def changes(self, cursors: Mapping[str, int], metric_name: str = "") -> Sequence[Change]:
        """Return what arrived of a metric after these cursors; of each trial in order of arrival.

        A long log comes in several answers: there is more until one is empty. A cursor is not valid any more when its
        log was deleted.

        Args:
            cursors: By trial name, that of the last change which is known; 0: none is. BEFORE_THE_LAST: only the last
                change is wanted, so that a reader can go on from the end of a long log.
            metric_name: Of which metric; empty: of all.
        """

    def curve(self, trial_name: str, metric_name: str, max_points: int) -> Sequence[MetricLog]:
        """Return at most so many readings of a metric, in the order of its curve: all where there are no more.

        Else its first and its last one, and of each of equally long parts of it the smallest and the largest
        (`katib.model.thinning`).
        """

    def best(self, trial_names: Sequence[str], metric_name: str, *, maximize: bool) -> BestTrial | None:
        """Return which of these trials has the smallest, or the largest, usable reading; of equal ones the first name.

        None when none of them has a usable one.
        """

    def summarize(self, trial_name: str, metrics: Sequence[str]) -> Observation | None:
        """Return min, max and latest of these metrics, in this order; None when the first one has no reading.

        A metric without usable number has `unavailable` as min and max; latest is the last text of the curve.
        """


class ObservationLog(ObservationReader, Protocol):
    """A log that is written, too."""

    def within(self, namespace: str) -> ObservationLog:
        """Return the log of one namespace, for those who may write no other."""

    def report(self, trial_name: str, logs: Sequence[MetricLog], batch: BatchId | None = None) -> None:
        """Append readings; all or none.

        Args:
            trial_name: Whose.
            logs: The readings.
            batch: Which of the reporter's they are. Those whose numbers are stored already are not stored again. None:
                they are not numbered, and what is reported twice is stored twice.
        """

    def knows_batches(self, trial_name: str) -> bool:
        """Return whether a numbered batch that is reported twice is stored once; no log in Katib's own table does."""

    def delete(self, trial_name: str) -> None:
        """Remove the log of a trial."""


def parse_value(text: str) -> float | None:
    """Return the number that a reading's text stands for, NaN and infinities included; None when it is not a number."""
    return float(text) if _FLOAT.fullmatch(text) else None


def is_usable(text: str) -> bool:
    """Return whether a reading may be compared, become the best or reach an algorithm: it is a finite number."""
    value = parse_value(text)
    return value is not None and math.isfinite(value)


# --- what Kubeflow Trainer calls the status of a program --------------------------------------------------------------

_STEP = "current_step"
_DIGITS_OF_A_STEP = 18
"""Of 64 bits."""
_WHOLE = 100


def trainer_readings(
    metrics: Mapping[str, str], progress: object, names: Collection[str], time: datetime
) -> list[MetricLog]:
    """Return the readings of a status of Kubeflow Trainer: the metrics of these names, and the progress.

    The only step in a status is what Transformers calls `current_step`.

    Args:
        metrics: Value of each metric; one that is not a number is passed over.
        progress: In percent; anything but a whole number up to 100 is passed over.
        names: Metrics to store.
        time: When it was posted.
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
        path: Of its field, for errors.

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


# --- time stamps: RFC 3339, as they stand in log lines and on the wire ------------------------------------------------

# What Go's time.RFC3339 reads: a `T`, seconds, an optional fraction after a point or a comma, and a zone.
_RFC3339 = re.compile(r"(\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2})(?:[.,](\d+))?(Z|[+-]\d{2}:\d{2})", re.ASCII)

MAX_TIMESTAMP_LENGTH = 64
"""Longer text is no time stamp; a cheap bound before a pattern is tried."""


def parse_time(text: str) -> datetime | None:
    """Return the time in UTC; None when the text is not an RFC 3339 time stamp.

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
