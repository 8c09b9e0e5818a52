"""Exponential back-off: the pauses between attempts at something that fails."""

import random
from collections.abc import Callable


class Backoff:
    """Pauses that double from the first to the longest, each multiplied by a random factor.

    The factor keeps many processes from repeating their attempts at the same moment.
    """

    def __init__(
        self,
        *,
        first: float,
        longest: float,
        jitter: tuple[float, float] = (1.0, 1.0),
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """Begin at `first` seconds; `uniform` draws the factor from between the two bounds of `jitter`."""
        self._first = min(first, longest)
        self._longest = longest
        self._jitter = jitter
        self._uniform = uniform
        self._pause = self._first

    def next(self, *, requested: float | None = None) -> float:
        """Return the seconds to wait before the next attempt.

        `requested` is what the server asks for, such as in `Retry-After`; it replaces this pause only.
        """
        pause = self._pause if requested is None else min(requested, self._longest)
        self._pause = min(self._pause * 2, self._longest)
        return pause * self._uniform(*self._jitter)

    def reset(self) -> None:
        """Begin at the first pause again, after a success."""
        self._pause = self._first


def write_backoff() -> Backoff:
    """Return the pauses between attempts at one write of which it is not known whether it has taken effect."""
    return Backoff(first=0.2, longest=5.0, jitter=(0.8, 1.2))
