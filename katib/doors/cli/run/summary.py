"""What is said when a run is over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from katib.model.types import Experiment, Trial
from katib.model.wording import counted
from katib.service.explaining import Evidence, cause_of_loss, diagnose_experiment, diagnose_trial, lost_sentence
from katib.service.explaining.answer import namespace_option
from katib.service.tuning.reading import (
    format_duration,
    infeasible_words,
    objective_text,
    parameters_of,
    pareto_trials,
    pareto_words,
    state_of,
)

# Characters of the best value where it is text, as a genotype is: it is the answer, so it is shown whole.
_LONGEST_BEST = 400


def ended_lines(
    experiment: Experiment,
    best: Trial | None,
    lost: Sequence[Trial],
    *,
    seconds: float,
    place: str,
    savings: str = "",
    last_line: str = "",
) -> Iterator[str]:
    """Yield how an experiment ended, its best trial or one that failed, and the commands that show more.

    Args:
        experiment: As it ended.
        best: Its best trial.
        lost: A few of the trials that failed or had no metrics.
        seconds: How long this run took.
        place: Options that later commands need in order to find the experiment again.
        savings: What its early stopping saved, a sentence; empty without early stopping.
        last_line: The end of the output of the first lost trial.
    """
    name = experiment.name
    evidence = Evidence(now=datetime.now(UTC), experiment=experiment, best=best, trials=lost)
    yield f"{diagnose_experiment(experiment, evidence).verdict} ({format_duration(seconds)})"
    if savings:
        yield savings
    example = next(iter(lost), None)
    if best is not None:
        if example is not None:
            yield f"{lost_sentence(experiment)} Look at {example.name}: {cause_of_loss(example, evidence)}"
        found = f"{best.name} with {objective_text(best, longest=_LONGEST_BEST)} ({parameters_of(best)})"
        yield f"Pareto set: {pareto_words(experiment)}" if pareto_trials(experiment) else f"Best trial: {found}"
        page = "" if _is_cluster(place) else f", katib ui {name}{place}"
        yield f"Next: katib trials {name} --sort objective{place}, katib why {name}{place}{page}"
        return
    if infeasible := infeasible_words(experiment):
        yield f"{infeasible[0].upper()}{infeasible[1:]}."
    if example is not None:
        cause = cause_of_loss(example, evidence)
        ends = f"; its output ends with: {last_line}" if last_line and last_line.rstrip(".") not in cause else ""
        yield f"Look at {example.name}: {cause}{ends}"
        if state_of(example) == "MetricsUnavailable":
            yield from diagnose_trial(example, evidence).remedies[:1]
    logs = f"katib logs {example.name}{place}, " if example is not None else ""
    yield f"Next: {logs}katib why {name}{place}"


def _is_cluster(place: str) -> bool:
    """Return whether options choose a cluster, whose page is where the cluster has it."""
    return " --context " in place or " --kubeconfig " in place


def interrupted_line(
    experiment: Experiment, command: str, done: int, slurm: tuple[int, int] | None, *, is_cut_off: bool = False
) -> str:
    """Return what was left and how to go on.

    Args:
        experiment: As it is.
        command: That goes on with it.
        done: How many trials have ended.
        slurm: How many running trials were ended in Slurm, with their checkpoints kept, and how many go on there.
        is_cut_off: Whether they end there, as the allocation does in which they run.
    """
    ended, left = slurm or (0, 0)
    goes = "ended with the Slurm allocation and start again" if is_cut_off else "go on in Slurm"
    clauses = [
        f"interrupted: {_so_far(experiment, done)} of {experiment.name} are done and kept",
        *([f"running trials ended in Slurm and their checkpoints are kept ({ended})"] if ended else ()),
        *([f"running trials {goes} ({left})"] if left else ()),
        f"`{command}` goes on from there",
    ]
    return "; ".join(clauses)


def run_again_line(experiment: Experiment, file: str, place: str) -> str:
    """Return that an experiment of a cluster had ended before, and how to have more trials of it.

    Args:
        experiment: As it ended.
        file: Its file; empty where a line made it.
        place: Options that later commands need in order to find the experiment again.
    """
    name, spec = experiment.name, experiment.spec
    way = f"give it another name in {file}" if file else "give it another --name"
    if spec.resume_policy in ("LongRunning", "FromVolume") and spec.max_trial_count is not None:
        way = f"`katib budget {name} --max-trials {spec.max_trial_count * 2}{place}`"
    return f"{name} had ended before, so nothing was run now. For more trials, {way}."


def left_line(experiment: Experiment, done: int, place: str) -> str:
    """Return what continues to run unwatched, and how to watch it again or end it."""
    name = experiment.name
    return (
        f"{name} goes on in the cluster, {_so_far(experiment, done)} are done; "
        f"`katib watch {name}{place}` shows it again, `katib delete {name}{place}` ends it"
    )


def left_at_server_line(experiment: Experiment, url: str, done: int, place: str) -> str:
    """Return what continues to run in a server, and how to watch it again or stop it."""
    name = experiment.name
    return (
        f"{name} goes on in the server at {url}, {_so_far(experiment, done)} are done; "
        f"`katib watch {name}{place}` shows it again, `katib stop {name}{place}` stops it"
    )


def _so_far(experiment: Experiment, done: int) -> str:
    limit = experiment.spec.max_trial_count
    return f"{done} of {limit} trials" if limit is not None else counted(done, "trial")


def options_of(experiment: Experiment, default_namespace: str, place: str) -> str:
    """Return the options that later commands need in order to find the experiment again.

    Args:
        experiment: Which.
        default_namespace: The namespace that is meant when none is named.
        place: Options that name where the experiment is.
    """
    return namespace_option(experiment, default_namespace) + place
