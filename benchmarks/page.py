"""How fast the page is in a real browser, with a large fleet: until it is painted, and until it responds to a person.

And what its event stream costs. Pods come and go all the while. The scheduler's half runs in a process of its own, as
the browser does. Without a browser nothing is measured.
"""

import asyncio
import importlib.util
import itertools
import shutil
import time
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, cast

import aiohttp
import uvloop

from allocation.ledger.ledger import Ledger
from allocation.settings import AllocationSettings
from benchmarks import extender, fleets, machine, subprocesses
from benchmarks.pace import within
from benchmarks.results import Row, Sample, milliseconds, percentile
from cluster.http.listener import listening
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.state.cluster_state import ClusterState
from scheduler.term import LeaderTerm
from scheduler.ui.feed import Feed, Kind
from scheduler.ui.messages import Replica
from scheduler.ui.routes import ui_application, ui_routes
from scheduler.ui.sections.fleet import Capacities, Use
from scheduler.ui.stream import Streams

NAME = "page"
_PAINT_S: Final = 2.0
_RESPONSE_MS: Final = 100.0
_STREAM_BYTES: Final = 200_000
_CORE_PART: Final = 0.05
_PODS: Final = 500
"""Pods that get a node in each second; as many others end."""
_TICKS: Final = 10
_PATIENCE_MS: Final = 60_000
_FLAGS: Final = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage")
_OBSERVE: Final = """
globalThis.responses = [];
new PerformanceObserver((list) => {
  for (const each of list.getEntries()) if (each.interactionId) responses.push(each.duration);
}).observe({ type: 'event', durationThreshold: 16, buffered: true });
"""
"""Collect how long after each key and click the next frame is painted, in steps of 8 ms, if that is 16 ms or more."""
_PAINTED: Final = "(text) => document.querySelector('.figures dd')?.textContent === text && performance.now()"


def run(*, smoke: bool) -> Iterator[tuple[Row, Sample]]:
    """Measure; a smoke run takes seconds and its figures mean nothing."""
    if importlib.util.find_spec("playwright") is None or not shutil.which("chromium"):
        print("page: not measured, because Chromium or the Python package playwright is not installed")
        return
    nodes, times = (40, 1) if smoke else (5_000, 10)
    with subprocesses.running(_serve, nodes, what="the page") as (pid, port):
        url = f"http://127.0.0.1:{port}/ui/"
        size, busy, took = uvloop.run(_follow(url, pid, seconds=2.0 if smoke else 20.0))
        painted, responses = uvloop.run(_browse(url, nodes * fleets.CARDS, times=times))
    fleet = f"{nodes:,} nodes with {fleets.CARDS} cards, {_PODS} pods/s"
    rate, part = size / took, busy / took
    what = f"the event stream of the fleet, {fleet}"
    yield (
        Row(NAME, what, f"{rate / 1e3:.0f} KB/s", "", f"≤ {_STREAM_BYTES / 1e3:g} KB/s", rate <= _STREAM_BYTES),
        Sample(NAME, what, [took]),
    )
    what = f"the scheduler's processor time for an open page, {fleet}"
    yield (
        Row(NAME, what, f"{part * 100:.1f} % of a core", "", f"≤ {_CORE_PART * 100:g} %", within(part, _CORE_PART)),
        Sample(NAME, what, [busy]),
    )
    for what, seconds, limit in (
        (f"the page is painted, {fleet}", painted, _PAINT_S),
        (f"the page responds to a key or a click, {fleet}", responses, _RESPONSE_MS / 1e3),
    ):
        passed = within(percentile(seconds, 98), limit)
        yield Row(NAME, what, milliseconds(seconds), "", f"≤ {limit * 1e3:g} ms", passed), Sample(NAME, what, seconds)


async def _follow(url: str, pid: int, *, seconds: float) -> tuple[int, float, float]:
    """Return the bytes of the stream after its first rows, the seconds of processor time, and those that passed."""
    idle = machine.cpu_seconds(pid)
    await asyncio.sleep(seconds)
    idle = machine.cpu_seconds(pid) - idle
    size = 0
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{url}events?section=capacities&section=use", timeout=aiohttp.ClientTimeout()) as response,
    ):

        async def read() -> None:
            nonlocal size
            async for chunk in response.content.iter_any():
                size += len(chunk)

        reading = asyncio.create_task(read())
        await asyncio.sleep(seconds / 4)  # the first rows, and the budget that they have used
        begin, busy, received = time.monotonic(), machine.cpu_seconds(pid), size
        await asyncio.sleep(seconds)
        took, busy, received = time.monotonic() - begin, machine.cpu_seconds(pid) - busy, size - received
        reading.cancel()
    return received, max(0.0, busy - idle * took / seconds), took


async def _browse(url: str, cards: int, *, times: int) -> tuple[list[float], list[float]]:
    """Return how long the page took until it was painted, and to respond: seconds."""
    from playwright.async_api import async_playwright  # noqa: PLC0415 -- only for development

    painted: list[float] = []
    responses: list[float] = []
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=shutil.which("chromium"), args=_FLAGS)
        for _ in range(times):
            profile = await browser.new_context()
            page = await profile.new_page()
            page.set_default_timeout(_PATIENCE_MS)
            await page.goto(url)
            handle = await page.wait_for_function(_PAINTED, arg=f"{cards:,}", polling="raf")
            painted.append(await handle.json_value() / 1e3)
            await page.evaluate(_OBSERVE)
            await page.get_by_label("Name, model, mode or state").click()
            for key in "node-1":
                await page.keyboard.press(key)
            for _ in "node-1":
                await page.keyboard.press("Backspace")
            for name in ("Compute", "Slots", "Table", "Map"):
                await page.get_by_text(name, exact=True).click()
            await page.evaluate("new Promise((done) => setTimeout(done, 300))")  # entries come after their frame
            responses += [each / 1e3 for each in await page.evaluate("responses")] or [0.016]
            await profile.close()
        await browser.close()
    return painted, responses


def _serve(nodes: int, pipe: Any) -> None:
    uvloop.run(_page(nodes, pipe))


async def _page(nodes: int, pipe: Any) -> None:
    state = ClusterState(
        settings=AllocationSettings(),
        make_queue=partial(SchedulingQueue, clock=time.monotonic, first_backoff=1.0, longest_backoff=1.0),
        clock=time.monotonic,
    )
    extender.fill(state, nodes)
    term = cast("LeaderTerm", SimpleNamespace(state=state, informers=SimpleNamespace(nodes={}, statuses={})))
    kinds = {"capacities": Kind(lambda term, _: Capacities(term)), "use": Kind(lambda term, _: Use(term))}
    feed = Feed(lambda: term, kinds=kinds)
    replica = Replica("deciding", "", "benchmark", "loop", "0")
    app = ui_application(ui_routes(Streams(feed, replica=lambda: replica, most=8)))
    async with listening(app, host="127.0.0.1", port=0) as port:
        pipe.send(port)
        churning = asyncio.create_task(_churn(state.ledger, nodes))
        try:
            await feed.run()
        finally:
            churning.cancel()


async def _churn(ledger: Ledger, nodes: int) -> None:
    """Let pods get nodes, and those that came a second ago end."""
    running: list[str] = []
    for number in itertools.count():
        for each in range(_PODS // _TICKS):
            pod = number * (_PODS // _TICKS) + each
            ledger.record(f"pod-{pod}", fleets.node(pod % nodes), (fleets.charge(fleets.card(pod % nodes)),))
            running.append(f"pod-{pod}")
        while len(running) > _PODS:
            ledger.release(running.pop(0))
        await asyncio.sleep(1 / _TICKS)
