"""Only followed tables are refreshed, and all pages together have a budget."""

import asyncio
from types import SimpleNamespace
from typing import cast

from allocation.steps import Steps
from scheduler.term import LeaderTerm
from scheduler.ui.feed import Feed, Kind
from scheduler.ui.table import Table


class Counter:
    """A section that counts its refreshes."""

    def __init__(self) -> None:
        self.refreshes = 0

    def refresh(self, table: Table) -> Steps[None]:
        """Put the number."""
        yield
        self.refreshes += 1
        table.put("count", str(self.refreshes).encode())


class Clock:
    """Seconds that pass when the test says so."""

    now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


async def test_a_table_that_is_not_followed_is_not_refreshed_and_forgotten_later() -> None:
    """A page that comes back within a minute goes on; the table is new after that."""
    term, section, clock = cast("LeaderTerm", SimpleNamespace()), Counter(), Clock()
    feed = Feed(lambda: term, kinds={"count": Kind(lambda *_: section)}, clock=clock)
    topic = feed.topic("count")
    assert topic is not None
    with topic.followed(asyncio.Event()):
        await feed.refresh()
        await feed.refresh()
    assert section.refreshes == 2
    await feed.refresh()
    assert (section.refreshes, feed.topic("count")) == (2, topic)
    clock.now = 61.0
    assert not await feed.refresh()
    assert feed.topic("count") is not topic


async def test_pages_of_one_section_share_its_table() -> None:
    """However many follow it, it is refreshed once."""
    term, section = cast("LeaderTerm", SimpleNamespace()), Counter()
    feed = Feed(lambda: term, kinds={"count": Kind(lambda *_: section)})
    one, other = feed.topic("count"), feed.topic("count")
    assert one is other is not None
    with one.followed(asyncio.Event()), one.followed(asyncio.Event()):
        await feed.refresh()
    assert section.refreshes == 1


async def test_followers_are_woken_when_the_term_ends() -> None:
    """So that the page says at once that what it shows is old."""
    terms: list[LeaderTerm | None] = [cast("LeaderTerm", SimpleNamespace())]
    feed, changed = Feed(lambda: terms[0], kinds={"count": Kind(lambda *_: Counter())}), asyncio.Event()
    topic = feed.topic("count")
    assert topic is not None
    with topic.followed(changed):
        await feed.refresh()
        changed.clear()
        terms[0] = None
        await feed.refresh()
        assert changed.is_set()
    assert feed.topic("count") is None


async def test_tables_without_followers_are_bounded() -> None:
    """However many names are asked for, the tables that are kept for a return are few."""
    term = cast("LeaderTerm", SimpleNamespace())
    feed = Feed(lambda: term, kinds={"node": Kind(lambda *_: Counter(), is_named=True)}, clock=Clock())
    first = feed.topic("node:n0")
    assert first is not None
    with first.followed(asyncio.Event()):
        for number in range(1, 500):
            feed.topic(f"node:n{number}")
        assert len(feed._topics) == 65  # the one that is followed, and the last 64
        assert feed.topic("node:n0") is first
