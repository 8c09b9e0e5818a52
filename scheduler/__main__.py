"""`python -m scheduler`: the scheduler loop."""

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from allocation.names import SCHEDULER_NAME
from cluster.api import Api
from cluster.configuration import Configuration, load
from cluster.connection import connect
from cluster.errors import ClusterError
from cluster.events import Recorder
from cluster.gpu_node_status import GpuNodeStatus
from cluster.reflector import Reflector
from cluster.resource import GPU_NODE_STATUSES, NODES, PODS
from scheduler.binder import Binder
from scheduler.loop import Loop
from scheduler.metrics import Metrics
from scheduler.objects import Node, Pod
from scheduler.queue import Queue
from scheduler.server import application
from scheduler.settings import SchedulerSettings
from scheduler.state import State

log = logging.getLogger("scheduler")


def main(argv: Sequence[str] | None = None) -> None:
    """Run until told to end."""
    configuration = load(
        argv,
        section="scheduler",
        settings=SchedulerSettings,
        prog="tranche-scheduler",
        description="Places pods that ask for GPUs: one decision, one Binding.",
    )
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        asyncio.run(_run(configuration))
    except (ClusterError, OSError) as error:
        sys.exit(f"error: {error}")


async def _run(configuration: Configuration[SchedulerSettings]) -> None:
    settings = configuration.own
    cluster = configuration.cluster
    async with connect(kubeconfig=cluster.kubeconfig, context=cluster.context) as connection:
        api = Api(connection)
        queue = Queue(
            clock=time.monotonic,
            first_backoff=settings.first_backoff_seconds,
            longest_backoff=settings.longest_backoff_seconds,
        )
        state = State(settings=configuration.allocation, queue=queue, aliases=settings.aliases)
        relist = settings.relist_seconds
        nodes = Reflector(api, NODES, Node, on_set=state.set_node, on_delete=state.drop_node, relist_seconds=relist)
        statuses = Reflector(
            api,
            GPU_NODE_STATUSES,
            GpuNodeStatus,
            on_set=state.set_status,
            on_delete=state.drop_status,
            relist_seconds=relist,
        )
        pods = Reflector(api, PODS, Pod, on_set=state.set_pod, on_delete=state.drop_pod, relist_seconds=relist)
        metrics = Metrics()
        recorder = Recorder(api, component=SCHEDULER_NAME, instance=f"{socket.gethostname()}-{os.getpid()}")
        loop = Loop(
            api=api,
            state=state,
            binder=Binder(api, timeout_seconds=settings.request_timeout_seconds),
            recorder=recorder,
            metrics=metrics,
            concurrent_binds=settings.concurrent_binds,
        )
        caches = (nodes, statuses, pods)
        ready = asyncio.Event()
        runner = web.AppRunner(application(metrics=metrics, ready=ready.is_set), access_log=None)
        await runner.setup()
        await web.TCPSite(runner, settings.host, settings.port).start()
        background = [asyncio.create_task(cache.run()) for cache in caches]
        background.append(asyncio.create_task(recorder.run()))
        try:
            ended = _ended()
            await _first(asyncio.gather(*(cache.synced.wait() for cache in caches)), ended, *background)
            if not ended.done():
                ready.set()
                log.info("ready: %d nodes, %d with cards, %d pods", len(nodes), len(state.ledger.nodes), len(pods))
                deciding = asyncio.create_task(loop.run())
                await _first(deciding, ended, *background)
                deciding.cancel()
                log.info("ending: waiting for the writes under way")
                await loop.drain(settings.drain_seconds)
                await recorder.drain(settings.drain_seconds)
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            await runner.cleanup()


def _ended() -> "asyncio.Future[None]":
    """Answer a future that is done when the process is told to end."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def end() -> None:
        if not ended.done():
            ended.set_result(None)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    return ended


async def _first(*work: "asyncio.Future[Any]") -> None:
    """Wait for the first of `work` to end; what went wrong in it is raised."""
    done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
    for each in done:
        each.result()


if __name__ == "__main__":
    main()
