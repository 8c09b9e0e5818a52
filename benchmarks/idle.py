"""The API writes of an agent while its cards do not change."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager

import uvloop
import yaml

from benchmarks import cluster, fleets, waiting, writes
from benchmarks.results import Row, Sample
from cluster.api import Api
from lab import manifests
from lab.layout import Layout, Port

NAME = "idle"
_NODE = "idle"
_CARD = {"count": fleets.CARDS, "memoryMiB": fleets.MEMORY_MIB, "slots": 10, "model": "NVIDIA H100 80GB HBM3"}
_HEARTBEAT_S = 6
_STARTED_S = 30.0


def run(*, smoke: bool) -> Iterator[tuple[Row, Sample]]:
    """Measure; a smoke run takes seconds and its figures mean nothing."""
    seconds = 3.0 if smoke else 40.0
    written = uvloop.run(_measure(seconds=seconds))
    counted = {resource: number for resource, number in written.items() if number}
    what = f"API writes of an idle agent in {seconds:g} s, a heartbeat that is valid for {_HEARTBEAT_S} s"
    listed = ", ".join(f"{number} {resource}" for resource, number in sorted(counted.items()))
    row = Row(NAME, what, listed, "", "! heartbeat Lease only", set(counted) == {"leases"})
    yield row, Sample(NAME, what, [seconds])


async def _measure(*, seconds: float) -> Counter[str]:
    with cluster.running() as layout:
        async with cluster.client(layout.kubeconfig) as api:
            await asyncio.to_thread(manifests.install, layout)
            await cluster.node(api, _NODE)
            begun = await writes.count(api)
            with _agent(layout):
                await _reported(api, begun)
                before = await writes.count(api)
                await asyncio.sleep(seconds)  # the time that is measured
                return await writes.count(api) - before


def _agent(layout: Layout) -> AbstractContextManager[int]:
    fleet = layout.config / "fleet.yaml"
    fleet.write_text(yaml.safe_dump({_NODE: _CARD}))
    arguments = {
        "--kubeconfig": layout.kubeconfig,
        "--fleet-file": fleet,
        "--heartbeat-lease-seconds": _HEARTBEAT_S,
        "--metrics-address": "127.0.0.1",
        "--metrics-port": layout.port(Port.AGENT_METRICS),
    }
    return cluster.process(layout, "agent", *(f"{flag}={value}" for flag, value in arguments.items()))


async def _reported(api: Api, begun: Counter[str]) -> None:
    """Wait until the agent has reported its node and renewed its heartbeat twice; from then on it is idle."""

    async def is_idle() -> bool:
        written = await writes.count(api) - begun
        return written["leases"] >= 3 and written["gpunodestatuses/status"] > 0

    await waiting.until(is_idle, what="the agent's report of its node", seconds=_STARTED_S)
