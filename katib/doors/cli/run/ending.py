"""Summary of an ended experiment. Imported only at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from katib.model.types import Experiment, Trial
from katib.model.wording import format_duration
from katib.service.explaining.ended import cause_of_loss, lost_sentence
from katib.service.explaining.evidence import Evidence
from katib.service.explaining.experiment import diagnose_experiment
from katib.service.explaining.trial import diagnose_trial
from katib.service.tuning.reading import (
    compared_words,
    infeasible_words,
    may_be_noisy,
    objective_text,
    parameters_of,
    pareto_trials,
    pareto_words,
    with_comparison,
)
from katib.service.tuning.service import Confirmation
from katib.service.tuning.states import state_of

# Maximum length of the best value if it is text, such as a genotype: it is the answer, so it is shown whole.
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
    means: Confirmation | None = None,
) -> Iterator[str]:
    """Yield the ending of an experiment, its best trial or a failed one, and the commands that show more.

    Args:
        lost: Some of the trials that failed or had no metrics.
        seconds: Duration of this run.
        place: Options that later commands need in order to find the experiment again.
        savings: A sentence on the savings of early stopping; empty without early stopping.
        last_line: Last output line of the first lost trial.
        means: Findings about configurations with several runs; None without such.
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
        found = f"Pareto set: {pareto_words(experiment)}" if pareto_trials(experiment) else f"Best trial: {found}"
        yield with_comparison(found, experiment)
        yield from () if means is None else (means.verdict, *means.notes)
        is_cluster = " --context " in place or " --kubeconfig " in place  # whose page depends on the cluster
        page = "" if is_cluster else f", katib ui {name}{place}"
        sure = f", katib confirm {name}{place}" if may_be_noisy(experiment) else ""
        yield f"Next: katib trials {name} --sort objective{place}, katib why {name}{place}{sure}{page}"
        return
    if compared := compared_words(experiment):
        yield f"{compared[0].upper()}{compared[1:]}."
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
