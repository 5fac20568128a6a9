"""Grid search: every combination once, then the search ends.

Without `random_state` the order is natural, the last parameter changing fastest, so that a user can follow it. With it
the order is shuffled, so that a budget smaller than the grid covers all of its regions. Either way the k-th combination
is computed from k: a grid of a billion points costs nothing. Points of trials that the user chose, and those that
violate the constraints on the parameters, are left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from typing_extensions import override

from katib.errors import FieldError
from katib.model.space import Point
from suggestion_services.base.algorithm import Problem, StatelessAlgorithm
from suggestion_services.base.untried import LeftPoints

_ROUNDS = 4  # the minimum for a Feistel network to look random in both halves


class GridSearch(StatelessAlgorithm):
    """The algorithm `grid`."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        size = problem.space.size
        assert size is not None, "check() refuses a space without size"
        self._size = size
        shuffled = problem.is_seeded
        self._order = Permutation(size, problem.seed) if shuffled else None
        self._left = LeftPoints(problem, self._ordered)

    @classmethod
    @override
    def check(cls, problem: Problem) -> Sequence[FieldError]:
        endless = [p.name for p in problem.space.parameters if p.size is None]
        if endless:
            cause = f"{', '.join(endless)} has no step, so its values cannot be listed"
            return [FieldError("spec.parameters", cause, "give feasibleSpace.step", "grid-step")]
        size, budget = problem.space.size, problem.max_trial_count
        if size is not None and budget is not None and budget > size:
            cause = f"{budget} is more than the {size} combinations of the grid"
            remedy = "lower it, or leave it out to try every combination"
            return [FieldError("spec.maxTrialCount", cause, remedy, "grid-size")]
        return []

    @override
    def point(self, k: int) -> Point | None:
        return self._left(k)

    def _ordered(self, k: int) -> Point | None:
        if k >= self._size:
            return None
        return self.problem.space.at(k if self._order is None else self._order[k])


class Permutation:
    """A shuffled order of the numbers below n, computed instead of stored; deterministic in the seed.

    Notation: n numbers; a number has two halves of b bits, 4**b >= n. A balanced Feistel network is a bijection of the
    4**b numbers for any round function; applied again until the result is below n, it is a bijection of those. Since
    4**b < 4 n, that takes four steps at most on average.
    Source: [Black2002] Ciphers with Arbitrary Finite Domains, CT-RSA 2002, method "cycle walking".
    """

    def __init__(self, n: int, seed: str) -> None:
        self._n = n
        self._bits = max((n - 1).bit_length() + 1, 2) // 2
        self._key = hashlib.blake2b(seed.encode()).digest()

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < self._n:
            raise IndexError(f"{index} is not below {self._n}")
        number = self._scramble(index)
        while number >= self._n:
            number = self._scramble(number)
        return number

    def _scramble(self, number: int) -> int:
        mask = (1 << self._bits) - 1
        left, right = number >> self._bits, number & mask
        for i in range(_ROUNDS):
            left, right = right, left ^ (self._round(i, right) & mask)
        return left << self._bits | right

    def _round(self, i: int, half: int) -> int:
        size = self._bits // 8 + 1
        digest = b""
        for block in range((size + 63) // 64):
            message = f"{i}/{block}/{half}".encode()
            digest += hashlib.blake2b(message, key=self._key[:64]).digest()
        return int.from_bytes(digest[:size])
