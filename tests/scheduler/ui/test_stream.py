"""The event stream: all rows first, then what changes, without loss over any interruption, and within bounds."""

import asyncio

import aiohttp
import msgspec

from scheduler.ui.feed import Feed
from scheduler.ui.sections.kinds import kinds
from scheduler.ui.stream import _Stream, _wait
from scheduler.ui.viewer import ADMINISTRATOR
from tests.scheduler.ui.pages import REPLICA, Site, serving


async def test_a_page_gets_all_rows_and_then_what_changes(site: Site) -> None:
    """A pod that is bound changes the row of its node, and no other row is sent again."""
    async with site.reading("use") as reader:
        await reader.until(lambda: len(reader.rows.get("use", ())) == 2, "rows of both nodes")
        seen = len(reader.events)
        site.cluster.pod("a", memory=300)
        await reader.until(lambda: any(card[0] for row in reader.rows["use"].values() for card in row["cards"]), "use")
        changed = [content["rows"] for name, content in reader.events[seen:] if name == "rows"]
        assert {key for rows in changed for key in rows} == {site.cluster.shown("a")["spec"]["nodeName"]}


async def test_a_page_that_comes_back_gets_what_it_missed(site: Site) -> None:
    """It names the last event that it has, and gets the changes since, not everything; also of removed nodes."""
    async with site.reading("use", "capacities") as reader:
        await reader.until(lambda: len(reader.rows) == 2, "rows of both sections")
    site.cluster.pod("a", memory=300)
    await site.cluster.placed("a")
    async with site.reading("use", "capacities", after=reader.last_id) as again:
        await again.until(lambda: bool(again.rows.get("use")), "changes")
        assert [content["reset"] for name, content in again.events if name == "rows"] == [False]
        reader.rows["use"].update(again.rows["use"])
    async with site.reading("use") as fresh:
        await fresh.until(lambda: bool(fresh.rows.get("use")), "rows")
        assert fresh.rows["use"] == reader.rows["use"]


async def test_a_page_of_another_term_begins_again(site: Site) -> None:
    """The versions of two terms have nothing in common, so the position of the earlier one is not believed."""
    async with site.reading("use") as reader:
        await reader.until(lambda: bool(reader.rows.get("use")), "rows")
        first = reader.last_id
        site.decides, site.replica = False, msgspec.structs.replace(REPLICA, state="standby", leader="b")
        await reader.until(lambda: reader.events[-1][0] == "replica", "the other state")
        assert reader.events[-1][1]["replica"]["leader"] == "b"
        site.decides = True
        await reader.until(lambda: reader.last_id != first, "rows of the new term")
        assert [content["reset"] for name, content in reader.events if name == "rows"][-1]


async def test_a_section_that_fails_is_named_and_the_others_go_on(site: Site, monkeypatch: object) -> None:
    """The page says that the rows are old; they come back by themselves."""
    state = site.cluster.term.state
    closed, state.closed_nodes.now = state.closed_nodes.now, None  # type: ignore[method-assign, assignment]
    async with site.reading("use") as reader:
        await reader.until(lambda: any(content.get("failed") == ["use"] for _, content in reader.events), "failure")
        state.closed_nodes.now = closed  # type: ignore[method-assign]
        await reader.until(lambda: len(reader.rows.get("use", ())) == 2, "rows")
        assert reader.events[-1][1] != {"failed": ["use"]}


async def test_streams_are_bounded() -> None:
    """One more than the limit is refused with the setting to change; a closed one makes room."""
    async with serving(most=1) as site:
        async with site.reading("use"):
            status, headers, text = await site.get("ui/events")
            assert (status, "Retry-After" in headers, b"scheduler.ui.most_streams" in text) == (503, True, True)
        async with asyncio.timeout(20):
            while (await _status(site))[0] != 200:  # noqa: ASYNC110 -- the server notices within a second
                await asyncio.sleep(0.01)


async def _status(site: Site) -> tuple[int]:
    async with aiohttp.ClientSession() as session, session.get(f"{site.url}ui/events") as response:
        return (response.status,)


async def test_sections_are_bounded(site: Site) -> None:
    """Unknown sections, names that no object can have, and too many sections are refused."""
    for query in ("section=nothing", "section=use:x", "section=use:%0A", f"section=use:{'a' * 600}"):
        assert (await site.get(f"ui/events?{query}"))[0] == 404, query
    many = "&".join(f"section=node:n{number}" for number in range(9))
    assert (await site.get(f"ui/events?{many}"))[0] == 400


async def test_only_permitted_namespaces_are_shown(site: Site) -> None:
    """Rows without a namespace are shown to every reader; those of the fleet are such rows."""

    class Outsider:
        name = "outsider"

        async def permitted(self, _namespaces: frozenset[str]) -> frozenset[str]:
            return frozenset()

    site.viewer = Outsider()
    async with site.reading("use") as reader:
        await reader.until(lambda: len(reader.rows.get("use", ())) == 2, "rows of nodes")


async def test_nothing_is_queued_for_a_slow_page(site: Site) -> None:
    """While a write waits for the page to read, changes pile up nowhere; then one step has the last state of each."""
    term, cluster = site.cluster.term, site.cluster
    feed = Feed(lambda: term, kinds=kinds(cluster.recorder.recent, site.history))
    written, may_write = list[bytes](), asyncio.Event()

    async def write(content: bytes) -> None:
        written.append(content)
        await may_write.wait()

    topic = feed.topic("use")
    assert topic is not None
    stream = _Stream(feed, lambda: REPLICA, write=write, names=("use",), cursors={}, viewer=ADMINISTRATOR)
    with topic.followed(asyncio.Event()):
        await feed.refresh()
        task = asyncio.create_task(stream.run(is_open=lambda: True))
        try:
            await cluster.until(lambda: len(written) == 1, "the first write, which waits")
            for number in range(50):
                cluster.pod(f"p{number}", memory=1)
                await cluster.until(lambda n=number: cluster.term.state.ledger.reservation(f"uid-p{n}"), "a pod")
                await feed.refresh()
                cluster.end(f"p{number}")
            await feed.refresh()
            assert len(written) == 1
            may_write.set()
            await cluster.until(lambda: len(written) == 2, "the rest")
            content = msgspec.json.decode(written[1].split(b"data: ")[1])
            assert content["rows"].keys() == {"n1", "n2"}
        finally:
            task.cancel()


async def test_a_reader_that_has_gone_is_noticed_soon() -> None:
    """A person who looks at ten sections in a second does not take the places of ten pages."""
    looks = iter((True, True, False))
    assert not await _wait(asyncio.Event(), is_open=lambda: next(looks))
    assert next(looks, None) is None
