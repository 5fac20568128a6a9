"""What an algorithm would have done to a finished experiment, reading by reading as they came."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from suggestion_services.early_stopping.algorithm import StoppingAlgorithm, Verdict
from suggestion_services.early_stopping.curves import Curve, Point, Standing

_MOST_MOMENTS, _FEWEST_MOMENTS = 5_000, 500
_MOST_CURVES = 2_000_000
"""At how many moments trials are judged, and how many curves are looked at in all of them together. Of an experiment
that is larger several readings are taken at once, as a busy service would."""


@dataclass(frozen=True, slots=True)
class Recording:
    """What a trial reported.

    Attributes:
        trial_name: Its name.
        points: Its readings in the order of its curve, each with the time in microseconds.
        succeeded: Whether it came to its end; else it failed or was stopped, and counts as far as it goes.
        by_number: Whether the resource is the number of the reading.
    """

    trial_name: str
    points: Sequence[tuple[int, Point]]
    succeeded: bool = True
    by_number: bool = False


@dataclass(frozen=True, slots=True)
class ReplayedVerdict:
    """A trial that would have been stopped.

    Attributes:
        verdict: Why.
        time_micros: When: the time of the reading, of this or another trial, that decided.
        readings: How many of its readings had come by then.
    """

    verdict: Verdict
    time_micros: int
    readings: int


def replay(algorithm: StoppingAlgorithm, recordings: Iterable[Recording]) -> list[ReplayedVerdict]:
    """Return the verdicts in order of time.

    A trial has ended with its last reading. Trials start and report when they did, though others would have started
    sooner in the slots that stopping empties.
    """
    recorded = {one.trial_name: one for one in recordings if one.points}
    events = sorted(
        ((time, name, i) for name, one in recorded.items() for i, (time, _) in enumerate(one.points)),
        key=lambda event: event[0],
    )
    curves: dict[str, Curve] = {}
    verdicts: list[ReplayedVerdict] = []
    for time, names in _moments(events, _moment_count(len(recorded))):
        for name in names:
            _advance(curves, recorded[name])
        for verdict in algorithm.judge(list(curves.values())):
            curve = curves[verdict.trial_name]
            curves[verdict.trial_name] = curve.ended(Standing.STOPPED)
            verdicts.append(ReplayedVerdict(verdict, time, len(curve)))
    return verdicts


def _moment_count(trials: int) -> int:
    return min(_MOST_MOMENTS, max(_FEWEST_MOMENTS, _MOST_CURVES // max(trials, 1)))


def _moments(events: Sequence[tuple[int, str, int]], most: int) -> Iterable[tuple[int, list[str]]]:
    """Yield the time of each moment, at most so many, and whose readings came in it."""
    at_once = -(-len(events) // most)
    if at_once > 1:
        for start in range(0, len(events), at_once):
            some = events[start : start + at_once]
            yield some[-1][0], [name for _, name, _ in some]
    else:
        for time, group in groupby(events, key=lambda event: event[0]):
            yield time, [name for _, name, _ in group]


def _advance(curves: dict[str, Curve], recording: Recording) -> None:
    """Give a trial its next reading, unless it was stopped; with the last one it has ended."""
    name = recording.trial_name
    curve = curves.get(name) or Curve(name, by_number=recording.by_number)
    if curve.standing is not Standing.RUNNING:
        return
    curve = curve.extended([recording.points[len(curve)][1]])
    if len(curve) == len(recording.points):
        curve = curve.ended(Standing.SUCCEEDED if recording.succeeded else Standing.STOPPED)
    curves[name] = curve
