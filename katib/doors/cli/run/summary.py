"""Lines about an interrupted run, or one that had ended before."""

from __future__ import annotations

from katib.model.types import Experiment
from katib.model.wording import counted
from katib.service.tuning.states import namespace_option


def interrupted_line(
    experiment: Experiment, command: str, done: int, slurm: tuple[int, int] | None, *, is_cut_off: bool = False
) -> str:
    """Return the line for an interrupted run, with the command that continues it.

    Args:
        done: Number of ended trials.
        slurm: Number of running Slurm trials that were ended with their checkpoints kept, and of those that continue.
        is_cut_off: Whether the latter end with the surrounding allocation.
    """
    ended, left = slurm or (0, 0)
    goes = "ended with the Slurm allocation and start again" if is_cut_off else "continue in Slurm"
    clauses = [
        f"interrupted: {_so_far(experiment, done)} of {experiment.name} are done and kept",
        *([f"running trials ended in Slurm and their checkpoints are kept ({ended})"] if ended else ()),
        *([f"running trials {goes} ({left})"] if left else ()),
        f"`{command}` continues from there",
    ]
    return "; ".join(clauses)


def run_again_line(experiment: Experiment, file: str, place: str) -> str:
    """Return the line for a cluster's experiment that had ended before, with the way to more trials of it.

    Args:
        file: Its file; empty if it was drafted from a line.
        place: Options that later commands need in order to find the experiment again.
    """
    name, spec = experiment.name, experiment.spec
    way = f"give it another name in {file}" if file else "give it another --name"
    if spec.resume_policy in ("LongRunning", "FromVolume") and spec.max_trial_count is not None:
        way = f"`katib budget {name} --max-trials {spec.max_trial_count * 2}{place}`"
    return f"{name} had ended before, so nothing was run now. For more trials, {way}."


def left_line(experiment: Experiment, done: int, place: str) -> str:
    """Return the line for a run that continues unwatched, with the commands that watch or end it."""
    name = experiment.name
    return (
        f"{name} continues in the cluster, {_so_far(experiment, done)} are done; "
        f"`katib watch {name}{place}` shows it again, `katib delete {name}{place}` ends it"
    )


def left_at_server_line(experiment: Experiment, url: str, done: int, place: str) -> str:
    """Return the line for a run that continues on a server, with the commands that watch or stop it."""
    name = experiment.name
    return (
        f"{name} continues in the server at {url}, {_so_far(experiment, done)} are done; "
        f"`katib watch {name}{place}` shows it again, `katib stop {name}{place}` stops it"
    )


def _so_far(experiment: Experiment, done: int) -> str:
    limit = experiment.spec.max_trial_count
    return f"{done} of {limit} trials" if limit is not None else counted(done, "trial")


def options_of(experiment: Experiment, default_namespace: str, place: str) -> str:
    """Return the options that later commands need in order to find the experiment again."""
    return namespace_option(experiment, default_namespace) + place
