"""The algorithm `hyperband`: many trials with little of a resource, few of them with more, in several brackets.

Source: [Li2018] Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization, JMLR 18(185). Settings and
the reported state are those of Katib's service.
Differs from Katib's service: all brackets are completed with any number of parallel trials. While a rung waits for its
last trials, the next bracket starts, unless `maxTrialCount` leaves no room for the promotions to come. Progress is
derived from the trials, never from the state in the settings. With `suggestion_trial_dir`, a promoted trial continues
from the checkpoint of its parent instead of training from the beginning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from typing_extensions import override

from katib.errors import FieldError
from katib.model.checkpoints import KEEP_ALL, KEEP_SETTING, TRIAL_DIRECTORY_SETTING, is_url
from katib.model.names import GENERATION_LABEL, PARENT_LABEL
from katib.model.space import Point
from katib.model.wording import counted
from suggestion_services.base.algorithm import Algorithm, AwaitingTrials, PastTrial, Problem, Proposal
from suggestion_services.base.checkpoint_volume import CheckpointVolume, check_place
from suggestion_services.base.priors import PriorGuide
from suggestion_services.base.settings import LiteralError
from suggestion_services.hyperband.rungs import Bracket, Brackets, Labels, RungMember, rank_of
from suggestion_services.hyperband.schedule import (
    MAX_RUNGS,
    MAX_STARTING,
    halvings_between,
    is_resource,
    least_resource,
    plans_of,
    starting_trials,
)

_SETTINGS = "spec.algorithm.algorithmSettings"
_ETA = 3.0


@dataclass(frozen=True, slots=True)
class SearchResource:
    """The resource of a search, from its settings.

    Attributes:
        name: The parameter that receives it.
        largest: The maximum for a trial.
        eta: Factor between rungs.
        s_max: Number of brackets - 1.
    """

    name: str
    largest: float
    eta: float
    s_max: int

    @classmethod
    def of(cls, problem: Problem) -> SearchResource:
        """Return the resource of a problem, with defaults."""
        settings = problem.settings
        name, largest, eta = (
            settings.text("resource_name", ""),
            settings.number("r_l", 1.0),
            settings.number("eta", _ETA),
        )
        parameter = next((p for p in problem.space.parameters if p.name == name), None)
        least = least_resource(parameter) if parameter is not None and is_resource(parameter) else 1.0
        return cls(name, largest, eta, settings.whole("s_max", halvings_between(least, largest, eta)))


class Hyperband(Algorithm):
    """The algorithm `hyperband`."""

    labels = Labels("hyperband.suggestion.katib.kubeflow.org")
    bracket: type[Bracket] = Bracket
    rounds = 1

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._resource = SearchResource.of(problem)
        found = (p for p in problem.space.parameters if p.name == self._resource.name and is_resource(p))
        self._parameter = next(found, None)
        self._plans = plans_of(self._resource.largest, self._resource.eta, self._resource.s_max, self._parameter)
        rounds = problem.settings.whole("rounds", self.rounds)
        self._most = rounds * len(self._plans) or None
        self._brackets = self._empty()
        self._guide = PriorGuide(problem.space, len(problem.fixed))
        self._waits = self._gave_up = False
        self._newest: tuple[Bracket, int] | None = None
        place = problem.settings.text(TRIAL_DIRECTORY_SETTING, "")
        self._keeps_checkpoints = bool(place)
        self._volume = CheckpointVolume.of_environment() if place and not is_url(place) else None
        self._taken: set[str] = set()

    @classmethod
    @override
    def check(cls, problem: Problem) -> Sequence[FieldError]:
        settings = problem.settings
        if (place := settings.text(TRIAL_DIRECTORY_SETTING, "")) and (errors := check_place(place)):
            return errors
        if settings.get("r_l") is None or settings.get("resource_name") is None:
            cause = "r_l and resource_name must be set."
            return [LiteralError(_SETTINGS, cause, "add them", "setting-missing")]
        resource = SearchResource.of(problem)
        if resource.s_max > MAX_RUNGS or starting_trials(resource.eta, resource.s_max, resource.s_max) > MAX_STARTING:
            cause = (
                f"r_l {resource.largest:g} with eta {resource.eta:g} makes {resource.s_max + 1} rungs; "
                f"at most {MAX_RUNGS + 1} rungs and {MAX_STARTING} trials per bracket are possible"
            )
            return [LiteralError(f"{_SETTINGS}.eta", cause, "raise eta or set s_max", "halving-size")]
        return ()

    @classmethod
    @override
    def check_before_start(cls, problem: Problem) -> Sequence[FieldError]:
        resource = SearchResource.of(problem)
        parameter = next((p for p in problem.space.parameters if p.name == resource.name), None)
        path = f"{_SETTINGS}.resource_name"
        if parameter is None:
            cause = "value of resource_name setting must be in parameters."
            return [LiteralError(path, cause, "name one of the parameters", "resource-unknown")]
        if not is_resource(parameter):
            cause = f"resource_name {resource.name} must be a parameter of numbers"
            return [LiteralError(path, cause, "name an int, double or discrete parameter", "resource-type")]
        if any(resource.name in (condition.parameter, condition.parent) for condition in problem.space.conditions):
            cause = f"resource_name {resource.name} must not depend on a parameter, nor a parameter on it"
            remedy = "every trial needs the resource, and continues with more of it as it is"
            return [LiteralError(path, cause, remedy, "resource-conditional")]
        if resource.s_max == 0 and problem.settings.get("s_max") is None:
            least = least_resource(parameter)
            cause = (
                f"r_l {resource.largest:g} is less than eta times {least:g}, the least value of {resource.name}: "
                f"there is nothing to halve; raise r_l to {least * resource.eta:g} or more"
            )
            return [LiteralError(f"{_SETTINGS}.r_l", cause, f"or lower the least {resource.name}", "halving-room")]
        return ()

    @override
    def suggest(self, trials: Sequence[PastTrial], *, first: int, count: int) -> Iterator[Proposal]:
        n_own = self._take_in(trials, first)
        self._gave_up = self._has_lost_too_many(first - n_own)
        if self._gave_up:
            return
        start = 0
        for k in range(first, first + count):
            while (self._most is None or start < self._most) and self._brackets.get(start).is_over:
                start += 1
            proposal = self._next(k, start)
            if proposal is None:
                self._waits = self._most is None or start < self._most
                if self._waits:
                    raise AwaitingTrials
                return
            yield proposal

    @override
    def ahead(self, *, first: int, count: int) -> Iterator[Proposal]:
        """Promote trials before their rung has ended, so that every rung gets its size, and then search on.

        Configurations beyond the brackets get the whole resource.
        """
        for k in range(first, first + (0 if self._gave_up else count)):
            brackets = map(self._brackets.get, self._brackets.begun())
            found = next(((b, *place) for b in brackets if (place := b.early_promotion()) is not None), None)
            last = self._brackets.get(len(self._plans) - 1)
            yield self._begun(k, last) if found is None else self._promoted(k, *found)

    def _take_in(self, trials: Sequence[PastTrial], first: int) -> int:
        """Put all trials in their rungs and remove unneeded checkpoints; return the number of our own trials."""
        own = [trial for trial in trials if not trial.is_earlier]
        self._brackets, self._waits, self._newest = self._empty(), False, None
        self._brackets.fill(own, self.problem, self._most)
        self._taken = {trial.name for trial in own}
        if self._volume is not None and self.problem.settings.text(KEEP_SETTING, "needed") != KEEP_ALL:
            self._volume.remove_unneeded(self.problem, own, first)
        self.prepare(trials)
        return len(own)

    def prepare(self, trials: Sequence[PastTrial]) -> None:
        """Process the history before configurations are drawn."""
        if self._guide:
            self._guide.learn_from(trials, self._rank)

    def _rank(self, trial: PastTrial) -> tuple[float, ...] | None:
        """Return the sort key of a trial, lower is better: those that reached a higher rung come first."""
        amount, rank = self.amount(trial), rank_of(trial, maximize=self.problem.maximize)
        return None if trial.is_earlier or rank is None or amount is None else (-amount, *rank)

    def amount(self, trial: PastTrial) -> float | None:
        """Return the resource of a trial; None if unknown."""
        if self._parameter is None:
            return 0.0
        try:
            return float(self._parameter.nearest(trial.assignments.get(self._parameter.name, "")))
        except ValueError:
            return None

    def draw(self, k: int) -> Point:
        """Return a new configuration for the k-th suggestion; its resource is ignored."""
        return self.sampled(self.problem.random(k), k)

    def sampled(self, random: Random, k: int) -> Point:
        """Return a random configuration for the k-th suggestion: from the mix of the priors if there are any."""
        return self._guide.draw(random, k) if self._guide else self.problem.space.sample(random)

    def noted(self, k: int, point: Point) -> None:
        """Record a new configuration as pending."""

    def _next(self, k: int, start: int) -> Proposal | None:
        """Return the k-th suggestion; None if there is none yet."""
        reserved, number = 0, start
        while self._most is None or number < self._most:
            bracket = self._brackets.get(number)
            promotion = bracket.promotion()
            if promotion is not None:
                return self._promoted(k, bracket, *promotion)
            if bracket.begins:
                budget = self.problem.max_trial_count
                return None if budget is not None and reserved and budget - k <= reserved else self._begun(k, bracket)
            reserved += bracket.outstanding
            number += 1
        return None

    def _promoted(self, k: int, bracket: Bracket, rung: int, parent: RungMember) -> Proposal:
        assignments = dict(self.problem.space.drop_absent(parent.assignments))
        whole = self.problem.space.nearest(parent.assignments.items()) or {}
        for parameter in self.problem.space.parameters:  # a larger resource may make a parameter present
            if parameter.name not in assignments and parameter.name in whole:
                assignments[parameter.name] = parameter.format(whole[parameter.name])
        value = bracket.plan.rungs[rung].resource
        if self._parameter is not None and value is not None:
            assignments[self._parameter.name] = self._parameter.format(value)
        return self._proposed(k, bracket, rung, assignments, parent)

    def _begun(self, k: int, bracket: Bracket) -> Proposal:
        point = self.draw(k)
        self.noted(k, point)
        value = bracket.plan.rungs[0].resource
        if self._parameter is not None and value is not None:
            point = {**point, self._parameter.name: value}
        return self._proposed(k, bracket, 0, self.problem.space.format(point))

    def _proposed(
        self, k: int, bracket: Bracket, rung: int, assignments: Mapping[str, str], parent: RungMember | None = None
    ) -> Proposal:
        name = "" if parent is None else parent.name
        bracket.rungs[rung].append(RungMember(f"/{k}", True, None, assignments, name))  # not the name of any trial
        self._newest = bracket, rung
        labels = self.labels.of(bracket.number, rung, "" if name.startswith("/") else name)
        if not self._keeps_checkpoints:
            return Proposal(assignments, labels)
        origin = name if parent is not None and parent.rank is not None else ""  # a running one has no checkpoint yet
        labels |= {GENERATION_LABEL: str(rung), PARENT_LABEL: origin} if origin else {GENERATION_LABEL: "0"}
        if self._volume is None:
            return Proposal(assignments, labels)
        trial = self._volume.trial_name(self.problem.experiment, k, self._taken)
        self._taken.add(trial)
        self._volume.provide(self.problem.experiment, trial, origin)
        return Proposal(assignments, labels, trial)

    def _has_lost_too_many(self, lost: int) -> bool:
        """Whether more trials than planned ended without information and are missing from the request.

        Katib's controllers leave them out, ours do not. Each is replaced, which must not continue forever.
        """
        rounds = 0 if self._most is None else self._most // len(self._plans)
        return self._most is not None and lost > rounds * sum(plan.size for plan in self._plans)

    def _empty(self) -> Brackets:
        return Brackets(self._plans, self._parameter, self.labels, self.bracket)

    # --- the reported state -------------------------------------------------------------------------------------------

    def _current(self) -> tuple[Bracket, int] | None:
        """Return the current bracket and rung; None when all have ended."""
        number = 0
        while self._most is None or number < self._most:
            bracket = self._brackets.get(number)
            if not bracket.is_over:
                return bracket, bracket.current
            number += 1
        return None

    @override
    def explain(self) -> str:
        name = self.labels.prefix.partition(".")[0]
        return "; ".join(filter(None, (self._progress(name), self._guide.words(name))))

    def _progress(self, name: str) -> str:
        if self._gave_up:
            return "more trials than the brackets have ended without information, so the search was given up"
        current = self._current()
        if current is None:
            return "all brackets have ended"
        bracket, rung = current
        where = f"rung {rung} of bracket {bracket.number}"
        if self._parameter is not None and (value := bracket.plan.rungs[rung].resource) is not None:
            where += f" ({self._parameter.name}={self._parameter.format(value)})"
        if self._waits:
            pending = len(bracket.pending())
            return f"{name} waits for {counted(pending, 'trial')} of {where}"
        size = bracket.plan.rungs[rung].size
        return f"{name} is at {where}: {len(bracket.rungs[rung])} of {size} trials"

    @override
    def reply_settings(self) -> Mapping[str, str]:
        resource = self._resource
        bracket, rung = self._newest or self._current() or (None, 0)
        state = {
            "eta": str(resource.eta),
            "s_max": str(resource.s_max),
            "r_l": str(resource.largest),
            "b_l": str((resource.s_max + 1) * resource.largest),
            "resource_name": resource.name,
        }
        if bracket is None:
            return state | {"r": "-1", "n": "-1", "current_s": "-1", "current_i": "-1", "evaluating_trials": "0"}
        pending = sum(member.is_pending for member in bracket.rungs[rung])
        return state | {
            "r": str(bracket.plan.least),
            "n": str(bracket.plan.rungs[0].size),
            "current_s": str(bracket.plan.s),
            "current_i": str(rung),
            "evaluating_trials": str(pending),
        }
