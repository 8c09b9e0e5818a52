"""The use of cards in the last hour, sampled while a replica leads."""

import asyncio
from typing import Any

import aiohttp
import msgspec

from allocation.steps import finish
from scheduler.ui.history import UNKNOWN, History
from scheduler.ui_settings import UiSettings
from tests.scheduler.support.terms import PATIENCE_S, Cluster, leading
from tests.scheduler.ui.test_serving import free_port, serving


async def test_the_process_samples_its_term() -> None:
    """The page of a node has the first minute of each card."""
    cluster, port = Cluster(), free_port()
    cluster.node("n1", count=1)
    rows = dict[str, Any]()
    async with (
        asyncio.timeout(PATIENCE_S),
        leading(cluster),
        aiohttp.ClientSession() as session,
        serving(UiSettings(enabled=True, port=port), deciding=cluster.term),
        session.get(f"http://127.0.0.1:{port}/ui/events?section=node:n1") as stream,
    ):
        async for line in stream.content:
            if line.startswith(b'data: {"section"'):
                rows |= msgspec.json.decode(line.removeprefix(b"data: "))["rows"]
            if "history/GPU-n1-0" in rows:
                break
    assert rows["history/GPU-n1-0"]["memoryMiB"] == [UNKNOWN] * 59 + [0]


async def test_another_term_begins_without_a_past() -> None:
    """What an earlier term sampled was that of another replica's time, with a gap in between."""
    cluster, terms = Cluster(), list[object]()
    cluster.node("n1", count=1)
    async with leading(cluster):
        history = History(lambda: terms[0] if terms else None, unix=lambda: 6000.0)  # type: ignore[return-value, arg-type]
        terms.append(cluster.term)
        finish(history.sample())
        assert history.of("n1")[1]["GPU-n1-0"][-1] == 0
        terms.clear()
        finish(history.sample())
        assert history.of("n1") == (100, {})


async def test_nodes_and_cards_that_are_gone_are_forgotten() -> None:
    """A node with other cards begins again; one that is gone takes no memory."""
    cluster, minute = Cluster(), [100]
    cluster.node("n1", count=1)
    async with leading(cluster):
        history = History(lambda: cluster.term, unix=lambda: minute[0] * 60.0)
        finish(history.sample())
        cluster.node("n1", count=2)
        await cluster.until(lambda: len(cluster.term.ledger.inventory("n1").cards) == 2, "the other cards")  # type: ignore[union-attr]
        minute[0] += 1
        finish(history.sample())
        assert history.of("n1")[1] == {f"GPU-n1-{index}": [UNKNOWN] * 59 + [0] for index in range(2)}
        cluster.api.remove("gpunodestatuses", "n1")
        await cluster.until(lambda: not cluster.term.ledger.nodes, "removal")
        finish(history.sample())
        assert history.of("n1")[1] == {}
