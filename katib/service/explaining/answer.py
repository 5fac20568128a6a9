"""A diagnosis under construction, and sentences shared by experiments and trials."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import PurePath
from statistics import fmean, median

from katib.model.failure_text import readable
from katib.model.metrics import parse_time
from katib.model.types import Condition, Experiment
from katib.model.wording import format_duration
from katib.service.explaining.evidence import Evidence, HomeTerms, JobFacts
from katib.service.tuning.reading import (
    assignments_of,
    compared_words,
    further_values,
    infeasible_words,
    objective_values,
    pareto_words,
    short,
    used_words,
)
from katib.service.tuning.service import Diagnosis, RecordedEvent
from katib.service.tuning.states import completed_count, has_several_objectives, stops_early

_SINCE = re.compile(r" since (\S+Z)$")
_SHOWN_WARNINGS = 3
_SHOWN_LINES = 10
SAVINGS_SAMPLE = 100
"""Size of the sample of the newest trials of a state; a larger one would not improve the estimate for ten thousand."""


@dataclass(slots=True)
class DiagnosisDraft:
    """Verdict, findings and remedies under construction."""

    verdict: str
    findings: list[str] = field(default_factory=list)
    remedies: list[str] = field(default_factory=list)
    log_tail: Sequence[str] = ()

    def diagnosis(self, kind: str, name: str, state: str) -> Diagnosis:
        """Return the finished diagnosis, without duplicates and with at most a screenful of output."""
        return Diagnosis(
            kind=kind,
            name=name,
            state=state,
            verdict=self.verdict,
            findings=tuple(dict.fromkeys(self.findings)),
            remedies=tuple(dict.fromkeys(self.remedies)),
            log_tail=tuple(readable(line.encode(errors="replace")) for line in self.log_tail[-_SHOWN_LINES:]),
        )


def with_age(words: str, now: datetime) -> str:
    """Return the words; if they end with a time, followed by the time elapsed since."""
    found = _SINCE.search(words)
    time = parse_time(found[1]) if found else None
    return words if time is None else f"{words}, for {since(time, now)}"


def since(moment: datetime, now: datetime) -> str:
    """Return the time elapsed since a moment."""
    return format_duration((now - moment).total_seconds())


def pick_warnings(events: Sequence[RecordedEvent], kind: str = "", name: str = "") -> list[RecordedEvent]:
    """Return the newest few warnings, of one object or of all, one per reason; not those that repeat a trial's end."""
    newest: dict[str, RecordedEvent] = {}
    for event in events:
        if event.warning and event.reason != "JobFailed" and kind in ("", event.kind) and name in ("", event.name):
            newest.pop(event.reason, None)
            newest[event.reason] = event
    return list(newest.values())[-_SHOWN_WARNINGS:]


def finding_of_event(event: RecordedEvent) -> str:
    """Return a warning as a sentence."""
    times = f" ({event.count} times)" if event.count > 1 else ""
    return f"Warning {event.reason}: {event.message.rstrip('.')}{times}."


def progress_sentence(experiment: Experiment) -> str:
    """Return the numbers of completed, running and waiting trials."""
    status, limit = experiment.status, experiment.spec.max_trial_count
    of = f" of {limit}" if limit is not None else ""
    active = f"{status.trials_running} running, {status.trials_pending} waiting"
    used = "".join(f" Of its {name} {words} are used." for name, words in used_words(experiment).items())
    return f"{completed_count(experiment)}{of} trials are done, {active}.{used}"


def best_sentences(experiment: Experiment, evidence: Evidence) -> list[str]:
    """Return the best trial so far, or that there is none, and how it compares with the trial of the defaults."""
    default, compared = experiment.status.default_trial, compared_words(experiment)
    if default is None:
        return _best_sentences(experiment, evidence)
    begins = "The best trial is " if compared[:1].isdigit() else ""
    sentence = f"{begins}{compared}; it ran as {default.trial_name}."
    return [*_best_sentences(experiment, evidence), f"{sentence[0].upper()}{sentence[1:]}"]


def _best_sentences(experiment: Experiment, evidence: Evidence) -> list[str]:
    best = evidence.best
    if best is None and (infeasible := infeasible_words(experiment)):
        count = experiment.status.trials_infeasible
        return [f"{infeasible[0].upper()}{infeasible[1:]}: all {count} that were measured are outside."]
    if best is None:
        return ["No trial has a usable objective value so far."]
    values = ", ".join(f"{key}={short(value)}" for key, value in assignments_of(best).items())
    metrics = (*objective_values(best), *further_values(best))
    reached = ", ".join(f"{metric}={short(value)}" for metric, value in metrics)
    if has_several_objectives(experiment):
        first = f"The best of them in the first objective: {best.name} with {reached} ({values})."
        return [f"Pareto set so far: {pareto_words(experiment)}.", first]
    return [f"Best trial so far: {best.name} with {reached} ({values})."]


def condition_words(condition: Condition) -> str:
    """Return the message or reason of a condition, without a full stop."""
    return (condition.message or condition.reason or "no reason was recorded").rstrip(".")


def saved_share(
    stopped_readings: Sequence[int], complete_readings: Sequence[int], *, stopped: int, complete: int
) -> float | None:
    """Return the share of readings saved by early stopping; None if no trial was completed for comparison.

    Args:
        stopped_readings: Readings of the objective per trial, for a sample of the stopped trials.
        complete_readings: The same for completed trials; their median is the expected number.
    """
    if not stopped_readings or not complete_readings:
        return None
    usual = median(complete_readings)
    saved = stopped * fmean(max(0.0, usual - count) for count in stopped_readings)
    reported = stopped * fmean(stopped_readings) + complete * fmean(complete_readings)
    return saved / (saved + reported) if saved + reported else None


def savings_sentence(experiment: Experiment, share: float | None) -> str:
    """Return the savings of an experiment's early stopping as a sentence; empty if none, or if no trial has ended."""
    status = experiment.status
    stopped, complete = status.trials_early_stopped, status.trials_succeeded
    if not stops_early(experiment) or not stopped + complete:
        return ""
    ended = f"Early stopping ended {stopped or 'none'} of {status.trials} trials"
    return f"{ended}." if share is None else f"{ended} and saved about {share:.0%} of the readings."


_MODULE_MISSING = re.compile(r"\bNo module named '?[\w.-]+|\bcannot import name\b")
_FILE_MISSING = re.compile(r"\bNo such file or directory\b", re.IGNORECASE)
_INPUT_MISSING = re.compile(r"\bEOF when reading a line\b")
_FORBIDDEN = re.compile(r"\bPermission denied\b|\bOperation not permitted\b", re.IGNORECASE)
_MAIN_MISSING = re.compile(r"\bPickl\w+Error\b.*\bon __main__\b")
_PYTHON = re.compile(r"^python[\d.]*$")


def known_remedy(cause: str, facts: JobFacts, place: HomeTerms, workspace: str = "") -> str:
    """Return the remedy for a failure as a sentence; empty if its cause is not a common one.

    Args:
        workspace: Directory of its relative paths; empty if unknown.
    """
    if _MODULE_MISSING.search(cause):
        python = facts.program if _PYTHON.match(PurePath(facts.program).name) else ""
        return place.module if not python else f"It ran with {python}. {place.module}"
    if _FILE_MISSING.search(cause):
        start = place.workspace.format(workspace) if workspace else ""
        return f"{start} {place.file}".lstrip()
    if _INPUT_MISSING.search(cause):
        return "A trial has no input: give the program its answers as arguments or in a file."
    if _FORBIDDEN.search(cause):
        return place.permission
    if _MAIN_MISSING.search(cause):
        return "Put what other processes of the trial need into a module beside the script, and import it there."
    return ""
