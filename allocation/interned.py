"""Values that many nodes share, by number, so that what follows from a value is computed once for all of them.

What agents report is not limited in variety: a port that fails makes another fabric, and a hostile agent can report
another layout each second. So values that no node has any more are forgotten, and their numbers used again.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

T = TypeVar("T", bound=Hashable)

_MOST_IDLE: Final = 64
"""Values without a node that are remembered: a node that reports again drops its value first."""


class Interned(Generic[T]):
    """The values in use.

    Attributes:
        values: by number; the value of a number that is not in use has no meaning.
    """

    def __init__(self, on_forget: Callable[[int], None] = lambda _: None) -> None:
        """Call `on_forget` with a number before it is used for another value."""
        self.values: list[T] = []
        self._numbers: dict[T, int] = {}
        self._uses: list[int] = []
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._on_forget = on_forget

    def acquire(self, value: T) -> int:
        """Return the number of a value, which keeps it until it was released as often as it was acquired."""
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = self._place(value)
        self._idle.pop(number, None)
        self._uses[number] += 1
        return number

    def release(self, number: int) -> None:
        """Give a number back."""
        self._uses[number] -= 1
        if not self._uses[number]:
            self._idle[number] = None

    def _place(self, value: T) -> int:
        if len(self._idle) <= _MOST_IDLE:
            self.values.append(value)
            self._uses.append(0)
            return len(self.values) - 1
        number, _ = self._idle.popitem(last=False)
        del self._numbers[self.values[number]]
        self._on_forget(number)
        self.values[number] = value
        return number
