"""Callbacks on the traffic with the API server, so that metrics stay out of the code that causes it."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol


class Cache(Protocol):
    """A copy of one kind of object."""

    @property
    def plural(self) -> str:
        """The plural name of the kind."""

    @property
    def silent_seconds(self) -> float:
        """The time since the API server last sent anything."""

    def __len__(self) -> int:
        """Return the number of objects."""


class ApiObserver:
    """Ignores every callback, for processes without metrics."""

    def answered(self, method: str, path: str, params: Mapping[str, str], *, status: int, seconds: float) -> None:
        """Observe a request whose response began `seconds` later; `status` is 0 without a response."""

    def listed(self, resource: str, reason: str) -> None:
        """Observe a list of the whole state."""

    def applied(self, resource: str, seconds: float) -> None:
        """Observe the time from the receipt of a watch event until its effects have been applied."""

    def following(self, _cache: Cache) -> AbstractContextManager[None]:
        """Observe `cache`, which is kept up to date while the block runs."""
        return nullcontext()
