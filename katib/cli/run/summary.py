"""What is said when a run is over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from katib.cli.best import best_lines
from katib.diagnosis import Evidence, diagnose_experiment
from katib.tuning.reading import Json, format_duration, name_of, namespace_of
from katib.tuning.service import DEFAULT_NAMESPACE


def ended_lines(
    experiment: Json, best: Json | None, lost: Sequence[Json], *, seconds: float, data_dir: Path | None
) -> Iterator[str]:
    """Yield how an experiment ended, its best trial, where the logs are, and what to do next.

    Args:
        experiment: As it ended.
        best: Its best trial.
        lost: A few of the trials that failed or had no metrics.
        seconds: How long this run took.
        data_dir: As given on the command line; None for the default.
    """
    evidence = Evidence(now=datetime.now(UTC), experiment=experiment, best=best, trials=lost)
    yield f"{diagnose_experiment(experiment, evidence).verdict} ({format_duration(seconds)})"
    options = _options(experiment, data_dir)
    if best is not None:
        yield ""
        yield from best_lines(best)
        yield ""
        yield f"Its output:   katib logs {name_of(best)}{options}"
    elif lost:
        yield ""
        yield f"Its output:   katib logs {name_of(lost[0])}{options}"
    yield f"All trials:   katib trials {name_of(experiment)} --sort objective{options}"
    yield f"More:         katib why {name_of(experiment)}{options}"


def interrupted_line(experiment: Json, file: str, done: int, data_dir: Path | None) -> str:
    """Return what was left and how to go on."""
    limit = experiment.get("spec", {}).get("maxTrialCount")
    of = f" of {limit}" if limit is not None else ""
    data = f" --data-dir {data_dir}" if data_dir is not None else ""
    return (
        f"interrupted: {done}{of} trials of {name_of(experiment)} are done and kept; "
        f"`katib run {file}{data}` goes on from there"
    )


def _options(experiment: Json, data_dir: Path | None) -> str:
    """Return the options that later commands need in order to find the experiment again."""
    namespace = namespace_of(experiment)
    space = f" -n {namespace}" if namespace not in ("", DEFAULT_NAMESPACE) else ""
    return space + (f" --data-dir {data_dir}" if data_dir is not None else "")
