"""Ingestion of pod events at the rate of a busy cluster, by a scheduler that schedules meanwhile.

The watch is real, over HTTP, from a process that simulates the API server; the events are kubelets' updates and pods
that start and end.
"""

import asyncio
import json
import time
from collections.abc import Iterator
from functools import partial
from multiprocessing.connection import Connection as Pipe
from typing import Any

import aiohttp
import msgspec
import uvloop
from aiohttp import web

from allocation import names
from allocation.allocation import Allocation, CardShare
from allocation.settings import AllocationSettings
from allocation.steps import finish
from allocation.wire import environment, record
from benchmarks import cluster, extender, fleets, subprocesses
from benchmarks.pace import within
from benchmarks.results import Row, Sample, milliseconds, percentile
from cluster import process
from cluster.api import Api
from cluster.connection import Connection
from cluster.informer import Informer
from cluster.resource import PODS
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.objects import Pod
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.state.cluster_state import ClusterState

NAME = "ingestion"
_NODES = 5_000
_RATE = 5_000
_TICK_S = 0.01
_PAUSE_S = 0.005
_WAIT_MS = 5.0


def run(*, smoke: bool) -> Iterator[tuple[Row, Sample]]:
    """Measure; a smoke run takes seconds and its figures mean nothing."""
    nodes, seconds = (100, 1.0) if smoke else (_NODES, 10.0)
    with subprocesses.running(_serve, nodes, seconds, what="the source of events") as (_, port):
        rate, busy, waits = uvloop.run(_follow(nodes, port, events=int(_RATE * seconds)))
    what = f"{_RATE:,} pod events a second, {nodes:,} nodes, decisions meanwhile"
    figure = f"{rate:.0f} a second with {busy:.0f} % of a processor; a decision waits {milliseconds(waits)}"
    p99 = percentile(waits, 99) * 1e3
    target = f"≥ {_RATE * 0.95:.0f} a second, a decision waits p99 ≤ {_WAIT_MS:g} ms"
    yield Row(NAME, what, figure, "", target, rate >= _RATE * 0.95 and within(p99, _WAIT_MS)), Sample(NAME, what, waits)


async def _follow(nodes: int, port: int, *, events: int) -> tuple[float, float, list[float]]:
    """Return events per second, the percentage of a processor, and the delays of decisions that were due every 5 ms."""
    make_queue = partial(SchedulingQueue, clock=time.monotonic, first_backoff=1, longest_backoff=8)
    state = ClusterState(settings=AllocationSettings(), make_queue=make_queue, clock=time.monotonic)
    extender.fill(state, nodes)
    seen, done = [0], asyncio.Event()

    def count(*_: object) -> None:
        seen[0] += 1
        if seen[0] == events:
            done.set()

    def on_upsert(pod: Pod, old: Pod | None) -> None:
        state.set_pod(pod, old)
        count()

    def on_delete(pod: Pod) -> None:
        state.drop_pod(pod)
        count()

    pending = msgspec.convert(cluster.fractional("pending"), Pod)
    pending.metadata.uid = "pending"
    waits: list[float] = []
    cycle = SchedulingCycle(state)

    async def decide() -> None:
        while True:
            due = time.perf_counter() + _PAUSE_S
            await asyncio.sleep(_PAUSE_S)
            finish(cycle.schedule(pending))
            cycle.forget(pending)
            waits.append(time.perf_counter() - due)

    async with aiohttp.ClientSession() as session:
        api = Api(
            Connection(session=session, server=f"http://127.0.0.1:{port}", headers=extender.nothing, namespace="")
        )
        pods = Informer(api, PODS, Pod, on_upsert=on_upsert, on_delete=on_delete)
        process.settle()
        following = asyncio.create_task(pods.run())
        await pods.synced.wait()
        deciding = asyncio.create_task(decide())
        begin, processor = time.perf_counter(), time.process_time()
        await asyncio.wait((asyncio.ensure_future(done.wait()), deciding), timeout=120, return_when="FIRST_COMPLETED")
        for task in (following, deciding):
            if task.done():
                task.result()
            task.cancel()
        if not done.is_set():
            raise SystemExit(f"ingestion: {seen[0]} of {events} events arrived within 120 s")
    taken = time.perf_counter() - begin
    return events / taken, (time.process_time() - processor) / taken * 100, waits


def _serve(nodes: int, seconds: float, pipe: Pipe) -> None:
    """Simulate an API server that starts without pods and then sends events at a steady rate."""
    lines = [_line(number, nodes) for number in range(int(_RATE * seconds))]

    async def pods(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})
        response = web.StreamResponse()
        await response.prepare(request)
        begin, sent = time.perf_counter(), 0
        while sent < len(lines):
            due = min(int((time.perf_counter() - begin) * _RATE) + 1, len(lines))
            await response.write(b"".join(lines[sent:due]))
            sent = due
            await asyncio.sleep(_TICK_S)
        await asyncio.Event().wait()
        return response

    async def main() -> None:
        application = web.Application()
        application.add_routes([web.get("/api/v1/pods", pods)])
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        pipe.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    uvloop.run(main())


def _line(number: int, nodes: int) -> bytes:
    """Return an event; each pod is bound, updated twice by its kubelet, and deleted."""
    pod, step = divmod(number, 4)
    kind = ("ADDED", "MODIFIED", "MODIFIED", "DELETED")[step]
    made = _pod(pod, nodes, "Pending" if step == 0 else "Running")
    made["metadata"]["resourceVersion"] = str(number + 2)
    return json.dumps({"type": kind, "object": made}).encode() + b"\n"


def _pod(number: int, nodes: int, phase: str) -> dict[str, Any]:
    """Return a pod on a card, with the fields of a real one."""
    node = fleets.node(number % nodes)
    allocation = Allocation(node, {"main": (CardShare(cluster.card(node, 0), 0, 100, 1),)})
    pod = cluster.fractional(f"runs-{number}")
    pod["spec"]["nodeName"] = node
    pod["metadata"] |= {
        "uid": f"uid-{number}",
        "labels": {"app": "train"},
        "annotations": {names.ALLOCATION: record.encode(allocation), **environment.annotations(allocation)},
        "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {"f:conditions": {".": {}}}}}] * 8,
    }
    conditions = [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Initialized", "Ready")]
    pod["status"] = {"phase": phase, "conditions": conditions, "containerStatuses": [{"name": "main", "ready": True}]}
    return pod
