"""A shuffled order of the numbers below n that is computed, not stored.

Notation: n numbers; a number has two halves of b bits, 4**b >= n. A balanced Feistel network is a bijection of the
4**b numbers, whatever its round function is; applied again until the result is below n, it is a bijection of those.
Source: [Black2002] Ciphers with Arbitrary Finite Domains, CT-RSA 2002, method "cycle walking".
"""

from __future__ import annotations

import hashlib

_ROUNDS = 4  # the least that makes a Feistel network look random in both halves


class Permutation:
    """The index-th number of a shuffled range(n), the same for the same seed.

    Since 4**b < 4 n, the walk takes four steps at most on average.
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
