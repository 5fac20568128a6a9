"""Replay of a finished experiment: an algorithm's verdicts, reading by reading in their order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from suggestion_services.early_stopping.algorithm import StoppingAlgorithm, StoppingVerdict
from suggestion_services.early_stopping.curves import CostCurve, CurvePoint, CurveState

_MOST_MOMENTS, _FEWEST_MOMENTS = 5_000, 500
_MOST_CURVES = 2_000_000
"""Limits on the moments at which trials are judged, and on the curves judged in all of them together. In a larger
experiment several readings are taken at once, as a busy service would."""


@dataclass(frozen=True, slots=True)
class Recording:
    """The readings of a trial.

    Attributes:
        trial_name: Its name.
        points: Its readings in the order of its curve, each with the time in microseconds.
        succeeded: Whether it succeeded; a failed or stopped trial counts up to its last reading.
        by_number: Whether the resource is the number of the reading.
    """

    trial_name: str
    points: Sequence[tuple[int, CurvePoint]]
    succeeded: bool = True
    by_number: bool = False


@dataclass(frozen=True, slots=True)
class ReplayedVerdict:
    """A trial that would have been stopped.

    Attributes:
        verdict: The verdict.
        time_micros: The time of the deciding reading, of this or another trial.
        readings: Number of its readings up to then.
    """

    verdict: StoppingVerdict
    time_micros: int
    readings: int


def replay(algorithm: StoppingAlgorithm, recordings: Iterable[Recording]) -> list[ReplayedVerdict]:
    """Return the verdicts in order of time.

    A trial ends with its last reading. Trials start and report at their original times, although stopping would have
    freed slots for earlier starts.
    """
    recorded = {one.trial_name: one for one in recordings if one.points}
    events = sorted(
        ((time, name, i) for name, one in recorded.items() for i, (time, _) in enumerate(one.points)),
        key=lambda event: event[0],
    )
    curves: dict[str, CostCurve] = {}
    verdicts: list[ReplayedVerdict] = []
    for time, names in _moments(events, _moment_count(len(recorded))):
        for name in names:
            _advance(curves, recorded[name])
        for verdict in algorithm.judge(list(curves.values())):
            curve = curves[verdict.trial_name]
            curves[verdict.trial_name] = curve.ended(CurveState.STOPPED)
            verdicts.append(ReplayedVerdict(verdict, time, len(curve)))
    return verdicts


def _moment_count(trials: int) -> int:
    return min(_MOST_MOMENTS, max(_FEWEST_MOMENTS, _MOST_CURVES // max(trials, 1)))


def _moments(events: Sequence[tuple[int, str, int]], most: int) -> Iterable[tuple[int, list[str]]]:
    """Yield the time of each moment, at most `most`, and the trials with readings in it."""
    at_once = -(-len(events) // most)
    if at_once > 1:
        for start in range(0, len(events), at_once):
            some = events[start : start + at_once]
            yield some[-1][0], [name for _, name, _ in some]
    else:
        for time, group in groupby(events, key=lambda event: event[0]):
            yield time, [name for _, name, _ in group]


def _advance(curves: dict[str, CostCurve], recording: Recording) -> None:
    """Add the next reading to a trial, unless it was stopped; the last one ends it."""
    name = recording.trial_name
    curve = curves.get(name) or CostCurve(name, by_number=recording.by_number)
    if curve.standing is not CurveState.RUNNING:
        return
    curve = curve.extended([recording.points[len(curve)][1]])
    if len(curve) == len(recording.points):
        curve = curve.ended(CurveState.SUCCEEDED if recording.succeeded else CurveState.STOPPED)
    curves[name] = curve
