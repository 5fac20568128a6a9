"""What early stopping saved: the readings that stopped trials did not report. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

from katib.tuning.reading import Json, status_of

SAMPLE = 100
"""So many trials of a kind are looked at, the newest ones; more would not make the share of ten thousand more exact."""


def saved_share(
    stopped_readings: Sequence[int], complete_readings: Sequence[int], *, stopped: int, complete: int
) -> float | None:
    """Return which share of all readings was saved; None when no trial ran to its end, so the whole is not known.

    Args:
        stopped_readings: How many readings of the objective some of the trials reported that were stopped.
        complete_readings: The same of trials that ran to their end; their median is what the others would have had.
        stopped: How many trials were stopped.
        complete: How many ran to their end.
    """
    if not stopped_readings or not complete_readings:
        return None
    usual = median(complete_readings)
    saved = stopped * fmean(max(0.0, usual - count) for count in stopped_readings)
    reported = stopped * fmean(stopped_readings) + complete * fmean(complete_readings)
    return saved / (saved + reported) if saved + reported else None


def savings_sentence(experiment: Json, stopped_readings: Sequence[int], complete_readings: Sequence[int]) -> str:
    """Return what the early stopping of an experiment saved, a sentence; empty when it has none or nothing ended yet.

    Args:
        experiment: The Experiment.
        stopped_readings: As above.
        complete_readings: As above.
    """
    status = status_of(experiment)
    stopped, complete = int(status.get("trialsEarlyStopped") or 0), int(status.get("trialsSucceeded") or 0)
    total = int(status.get("trials") or 0)
    if not (experiment.get("spec", {}).get("earlyStopping") and stopped + complete):
        return ""
    ended = f"Early stopping ended {stopped or 'none'} of {total} trials"
    share = saved_share(stopped_readings, complete_readings, stopped=stopped, complete=complete)
    return f"{ended}." if share is None else f"{ended} and saved about {share:.0%} of the readings."
