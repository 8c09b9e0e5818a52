"""Who is told of the traffic with the API server, so that it can be measured without being known to who causes it."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol


class Cache(Protocol):
    """A copy of one kind of object."""

    @property
    def plural(self) -> str:
        """Answer what the objects are called."""

    @property
    def silent_seconds(self) -> float:
        """Answer how long ago the API server last said anything."""

    def __len__(self) -> int:
        """Count the objects."""


class Traffic:
    """Is told, and keeps nothing: for processes that nobody measures."""

    def answered(self, method: str, path: str, params: Mapping[str, str], *, status: int, seconds: float) -> None:
        """Take a request whose answer began `seconds` later; `status` is 0 where none came."""

    def listed(self, resource: str, reason: str) -> None:
        """Take that the whole state is listed."""

    def applied(self, resource: str, seconds: float) -> None:
        """Take how long after its receipt all was known that follows from a line of a watch."""

    def following(self, _cache: Cache) -> AbstractContextManager[None]:
        """Take that `cache` is kept up to date while the block runs."""
        return nullcontext()
