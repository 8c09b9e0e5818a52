"""Keeps the tables current that open pages follow, and nothing else; all pages share them.

Tables are refreshed in slices between other work, at most once a second, and within a budget of processor time.
"""

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final, Protocol

import msgspec

from allocation.steps import Steps
from scheduler.pacing import Pacer
from scheduler.term import LeaderTerm
from scheduler.ui.table import Table

log = logging.getLogger(__name__)

_PART: Final = 0.05
"""The part of a processor core that refreshing takes over time."""
_BURST_SECONDS: Final = 1.0
"""How much of it may be spent at once, as when a page is opened."""
_KEPT_SECONDS: Final = 60.0
"""How long a table is kept that is not followed, so that a page that comes back gets only what it missed."""
_MOST_UNFOLLOWED: Final = 64
"""How many such tables are kept, whatever names pages ask for."""
_ARGUMENT: Final = re.compile(r"[a-z0-9./-]{0,512}")
"""The characters of names of objects, and of a namespace before one."""


class Section(Protocol):
    """What a table shows."""

    def refresh(self, table: Table) -> Steps[None]:
        """Bring the rows of the table up to date. Whatever was read may change between two steps."""


class Kind(msgspec.Struct, frozen=True):
    """How a section is made for a term.

    Attributes:
        make: returns the section, given the term and what follows the colon in the section's name.
        is_named: whether anything has to follow, such as the name of a node.
    """

    make: Callable[[LeaderTerm, str], Section]
    is_named: bool = False


class UnknownSectionError(LookupError):
    """The page has no such section."""


class Topic:
    """One table, and the pages that follow it.

    Attributes:
        name: the name of its section, with its argument.
        generation: tells the tables of different terms and processes apart, whose versions have nothing in common.
        table: the rows.
        is_ready: whether it was refreshed before.
        failed: whether the last refresh ended with an error; the rows are older then.
        unfollowed_since: when the last page stopped to follow it, or it was created.
    """

    def __init__(self, name: str, section: Section, *, generation: str, clock: Callable[[], float]) -> None:
        self.name = name
        self.generation = generation
        self.table = Table()
        self.is_ready = self.failed = False
        self.unfollowed_since = clock()
        self._section = section
        self._clock = clock
        self._followers: set[asyncio.Event] = set()

    @property
    def is_followed(self) -> bool:
        """Whether a page follows it."""
        return bool(self._followers)

    @contextmanager
    def followed(self, changed: asyncio.Event) -> Iterator[None]:
        """Set `changed` whenever the table was refreshed, while the block runs."""
        self._followers.add(changed)
        try:
            yield
        finally:
            self._followers.discard(changed)
            self.unfollowed_since = self._clock()

    def wake(self) -> None:
        """Let the pages look again."""
        for changed in self._followers:
            changed.set()

    async def refresh(self, pacer: Pacer) -> None:
        """Bring the table up to date."""
        before = self.table.version, self.failed, self.is_ready
        try:
            await pacer.run(self._section.refresh(self.table))
            self.failed = False
        except Exception:
            if not self.failed:
                log.exception("section %s of the page cannot be refreshed", self.name)
            self.failed = True
        self.is_ready = True
        if (self.table.version, self.failed, self.is_ready) != before:
            self.wake()


class Feed:
    """The topics of the current term."""

    def __init__(
        self,
        term: Callable[[], LeaderTerm | None],
        *,
        kinds: Mapping[str, Kind],
        clock: Callable[[], float] = time.monotonic,
        seconds: float = 1.0,
    ) -> None:
        """Show the term that `term` returns, None while this replica does not schedule.

        Tables are refreshed at most once in `seconds`.
        """
        self._term = term
        self._kinds = kinds
        self._clock = clock
        self._seconds = seconds
        self._topics: dict[str, Topic] = {}
        self._shown: LeaderTerm | None = None
        self._generation = ""
        self._wanted = asyncio.Event()
        self._spent = 0.0

    def topic(self, name: str) -> Topic | None:
        """Return the topic of a section, or None outside a term.

        Raises:
            UnknownSectionError: the page has no such section.
        """
        base, _, argument = name.partition(":")
        kind = self._kinds.get(base)
        if kind is None or kind.is_named != bool(argument) or not _ARGUMENT.fullmatch(argument):
            raise UnknownSectionError(name)
        term = self._current()
        if term is None:
            return None
        topic = self._topics.get(name)
        if topic is None:
            section = kind.make(term, argument)
            self._forget_unfollowed()
            topic = self._topics[name] = Topic(name, section, generation=self._generation, clock=self._clock)
        self._wanted.set()
        return topic

    def _forget_unfollowed(self) -> None:
        """Forget tables that are not followed if there are too many of them, the oldest first."""
        unfollowed = [each for each in self._topics.values() if not each.is_followed]
        excess = max(0, len(unfollowed) + 1 - _MOST_UNFOLLOWED)
        for topic in sorted(unfollowed, key=lambda each: each.unfollowed_since)[:excess]:
            del self._topics[topic.name]

    async def run(self) -> None:
        """Refresh the topics that are followed until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while await self.refresh():
                await self._rest()

    async def refresh(self) -> bool:
        """Refresh each topic that is followed, once; return whether there are topics."""
        self._current()
        pacer = Pacer()
        for topic in tuple(self._topics.values()):
            if topic.is_followed:
                await topic.refresh(pacer)
                self._spent += pacer.spent
            elif self._clock() - topic.unfollowed_since > _KEPT_SECONDS:
                self._topics.pop(topic.name, None)
        return bool(self._topics)

    async def _rest(self) -> None:
        """Wait, longer if the budget is used up; otherwise a page that was opened ends the wait."""
        begin, overdrawn = self._clock(), (self._spent - _BURST_SECONDS) / _PART
        if overdrawn > 0:
            await asyncio.sleep(max(self._seconds, overdrawn))
        else:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._seconds):
                    await self._wanted.wait()
        self._wanted.clear()
        self._spent = max(0.0, self._spent - (self._clock() - begin) * _PART)

    def _current(self) -> LeaderTerm | None:
        """Return the current term; forget the topics of another one."""
        term = self._term()
        if term is not self._shown:
            self._shown, self._generation = term, secrets.token_hex(4)
            for topic in self._topics.values():
                topic.wake()
            self._topics.clear()
        return term
