"""Growing pauses between attempts. Every room may use it, the sidecar's too."""

from __future__ import annotations

from dataclasses import dataclass

_MOST_STEPS = 64  # all pauses have reached their bound by then; keeps the power from overflowing


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait after failures in a row: a pure function of their number.

    Attributes:
        first_seconds: Pause after the first failure.
        longest_seconds: Bound of every pause.
        factor: By how much each further failure lengthens the pause.
        jitter: Which share of a pause chance may take away, so that many clients do not come back together.
    """

    first_seconds: float
    longest_seconds: float
    factor: float = 2.0
    jitter: float = 0.0

    def pause_seconds(self, failures: int, chance: float = 0.0) -> float:
        """Return how long to wait after this many failures in a row; 0 without a failure.

        Args:
            failures: How many there were.
            chance: Random number in [0, 1]: how much of the jitter is taken away.
        """
        if failures < 1:
            return 0.0
        seconds = min(self.first_seconds * self.factor ** min(failures - 1, _MOST_STEPS), self.longest_seconds)
        return seconds * (1.0 - self.jitter * chance)
