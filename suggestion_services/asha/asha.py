"""The algorithm `asha`: trials pause at a rung, and the best of each rung continue.

Notation as in `hyperband.schedule`; there is one ladder of rungs, with R * eta^-s_max at its foot.
Source: [Li2020] A System for Massively Parallel Hyperparameter Tuning, MLSys, algorithm 2: of n trials that ended at a
rung the best continue, from the top rung downwards; if none may, a new configuration starts.
Differs from the paper: floor(n / (eta + 1)) continue from the first rung and floor(n / sqrt(eta + 1)) from the others,
instead of floor(n / eta) from each. Long trainings are then chosen from fewer and better measured trials, and the first
of them ends after 54 epochs instead of 81 of a ladder from 1 to 27 (`benchmarks/README.md` has the comparison).

A pause is the end of a trial: its slot is free and its checkpoint remains. A continuation is a new trial that names the
paused one as its parent, with more of the resource and, with `suggestion_trial_dir`, its checkpoint. So paused trials
are part of the history like any other, and survive restarts and crashes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from typing_extensions import override

from suggestion_services.base.algorithm import PastTrial, Problem, Proposal
from suggestion_services.hyperband.hyperband import Hyperband
from suggestion_services.hyperband.rungs import Bracket, Labels, RungMember


@dataclass
class AsynchronousBracket(Bracket):
    """A bracket that starts and promotes trials without waiting for a whole rung."""

    @property
    @override
    def begins(self) -> bool:
        return True

    def paused(self, rung: int) -> list[RungMember]:
        """Return the trials that ended at a rung with a value and have no continuation, best first."""
        continued = {member.parent for member in self.rungs[rung + 1]}
        free = (m for m in self.rungs[rung] if m.rank is not None and m.name not in continued)
        return sorted(free, key=lambda m: m.rank or ())

    def share_of_best(self, rung: int, eta: float) -> list[RungMember]:
        """Return the best of the trials that ended at a rung, as many as may continue."""
        ended = [member for member in self.rungs[rung] if not member.is_pending]
        ranked = sorted((m for m in ended if m.rank is not None), key=lambda m: m.rank or ())
        return ranked[: math.floor(len(ended) / (math.sqrt(eta + 1) if rung else eta + 1))]


class Asha(Hyperband):
    """The algorithm `asha`."""

    labels = Labels("asha.suggestion.katib.kubeflow.org")
    bracket = AsynchronousBracket

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._plans, self._most = self._plans[:1], 1
        self._brackets = self._empty()

    @property
    def ladder(self) -> AsynchronousBracket:
        bracket = self._brackets.get(0)
        assert isinstance(bracket, AsynchronousBracket)
        return bracket

    @override
    def suggest(self, trials: Sequence[PastTrial], *, first: int, count: int) -> Iterator[Proposal]:
        self._take_in(trials, first)
        for k in range(first, first + count):
            ladder = self.ladder
            promotion = self.promotion()
            yield self._begun(k, ladder) if promotion is None else self._promoted(k, ladder, *promotion)

    def promotion(self) -> tuple[int, RungMember] | None:
        """Return the next trial to continue and its rung; None if a new one should start."""
        for rung in range(len(self.ladder.rungs) - 2, -1, -1):
            best = self.ladder.share_of_best(rung, self._resource.eta)
            for member in self.ladder.paused(rung):
                if member not in best:
                    break
                if self.problem.space.nearest(member.assignments.items()) is not None:  # else it is from another space
                    return rung + 1, member
        return None

    @override
    def explain(self) -> str:
        name = self.labels.prefix.partition(".")[0]
        parts = []
        for rung, members in zip(self.ladder.plan.rungs, self.ladder.rungs, strict=True):
            if members:
                running = sum(member.is_pending for member in members)
                value = (
                    "" if rung.resource is None or self._parameter is None else self._parameter.format(rung.resource)
                )
                at = f"{self._resource.name}={value}" if value else "a rung"
                parts.append(f"{len(members)} at {at}" + (f" ({running} running)" if running else ""))
        at_rungs = f"{name} has trials at its rungs: {', '.join(parts)}" if parts else ""
        return "; ".join(filter(None, (at_rungs, self._guide.words(name))))

    @override
    def reply_settings(self) -> Mapping[str, str]:
        return {}
