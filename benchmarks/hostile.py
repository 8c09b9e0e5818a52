"""The most expensive objects that one namespace can create: their memory, and the delay that they cause for others.

First waiting pods, in the process of this benchmark; then every kind on a real API server (`benchmarks.neighbours`).
"""

import asyncio
import gc
import multiprocessing
import re
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from allocation.settings import AllocationSettings
from benchmarks import fleets, hostile_objects, neighbours
from benchmarks.pace import within
from benchmarks.results import Row, Sample
from cluster import process
from cluster.api import Api
from cluster.event_loop import PauseMonitor
from cluster.events import Recorder
from scheduler.binding.binder import Result
from scheduler.binding.binding_cycle import BindingCycle
from scheduler.binding.failure_handler import FailureHandler
from scheduler.binding.lease_keeper import LeaseKeeper
from scheduler.binding.lease_writes import LeaseWrites
from scheduler.binding.plugin_binder import PluginBinder
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.result import Scheduled
from scheduler.fenced_api import FencedApi
from scheduler.gang_scheduling.gang_scheduler import GangScheduler
from scheduler.loop import Loop
from scheduler.metrics.instruments import Metrics
from scheduler.metrics.labels import Outcome
from scheduler.objects import Node, Pod
from scheduler.queue.queueing_hints import ANY_EVENT
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.settings import GangSettings
from scheduler.state.cluster_state import ClusterState

NAME = "hostile"
_ARRIVALS: Final = 50
_BETWEEN_S: Final = 0.1
_MOST_KIB: Final = 100.0
_MOST_PAUSE_S: Final = 0.05
_MOST_WAIT_S: Final = 2.0
_PATIENCE_S: Final = 60.0


class _Measured(msgspec.Struct):
    """The measurements of one process.

    Attributes:
        kib: memory per pending pod, before and after the first decisions on all of them.
        waits: seconds from the arrival of a pod of another namespace until it has a node.
        pause: the longest pause of the event loop, in seconds.
    """

    kib: list[float]
    waits: list[float]
    pause: float


def run(*, smoke: bool) -> Iterator[tuple[Row, Sample]]:
    """Measure; a smoke run takes seconds and its figures mean nothing."""
    pods, nodes, arrivals = (50, 20, 5) if smoke else (10_000, 1_000, _ARRIVALS)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), max_tasks_per_child=1) as processes:
        ordinary = processes.submit(_measure, pods, nodes, arrivals, hostile=False).result()
        hostile = processes.submit(_measure, pods, nodes, arrivals, hostile=True).result()
    subject = f"{pods:,} waiting pods of one namespace at every limit, {nodes:,} nodes"
    what = f"{subject}: memory for each"
    reference = f"ordinary ones {max(ordinary.kib):.1f} KiB"
    kib = max(hostile.kib)
    yield (
        Row(NAME, what, f"{kib:.1f} KiB", reference, f"≤ {_MOST_KIB:.0f} KiB", kib <= _MOST_KIB),
        Sample(NAME, what, hostile.kib),
    )
    what = f"{subject}: longest pause of the event loop"
    yield (
        Row(
            NAME,
            what,
            f"{hostile.pause * 1e3:.1f} ms",
            f"ordinary ones {ordinary.pause * 1e3:.1f} ms",
            f"≤ {_MOST_PAUSE_S * 1e3:.0f} ms",
            within(hostile.pause, _MOST_PAUSE_S),
        ),
        Sample(NAME, what, [hostile.pause]),
    )
    what = f"{subject}: another namespace's pod waits"
    worst = max(hostile.waits)
    yield (
        Row(
            NAME,
            what,
            f"at most {worst * 1e3:.1f} ms",
            f"behind ordinary ones {max(ordinary.waits) * 1e3:.1f} ms",
            f"≤ {_MOST_WAIT_S:g} s",
            within(worst, _MOST_WAIT_S),
        ),
        Sample(NAME, what, hostile.waits),
    )
    yield from neighbours.run(NAME, smoke=smoke)


class _Silent:
    """An API that accepts every write at once."""

    async def request(self, *_: object, **__: object) -> bytes:
        """Return an empty object."""
        return b"{}"


class _Binder:
    """A binder that succeeds at once."""

    def needs_lock(self, _: Scheduled) -> bool:
        """Return False: no node is locked."""
        return False

    async def bind(self, _: Pod, __: Scheduled) -> Result:
        """Return success."""
        return Result(Outcome.BOUND)


def _measure(pods: int, nodes: int, arrivals: int, *, hostile: bool) -> _Measured:
    return asyncio.run(_run(pods, nodes, arrivals, hostile=hostile))


async def _run(pods: int, nodes: int, arrivals: int, *, hostile: bool) -> _Measured:
    cycle: SchedulingCycle
    make_queue = partial(
        SchedulingQueue,
        clock=time.monotonic,
        first_backoff=0.2,
        longest_backoff=5.0,
        may_fit=lambda kind: cycle.may_fit(kind),  # noqa: PLW0108 -- the cycle is made below
    )
    state = ClusterState(settings=AllocationSettings(), make_queue=make_queue, clock=time.monotonic)
    queue = state.queue
    for number in range(nodes):
        state.set_node(msgspec.convert(_node(fleets.node(number)), Node))
        state.ledger.set_node(fleets.inventory(number))
    decoder = msgspec.json.Decoder(Pod)

    def decoded(name: str, namespace: str, number: int = 0, *, hostile: bool = False, fits: bool = False) -> Pod:
        made = hostile_objects.pod(name, number, hostile=hostile, fits=fits)
        made["metadata"] |= {"namespace": namespace, "uid": f"{namespace}/{name}"}
        return decoder.decode(msgspec.json.encode(made))

    before = _resident_kib()
    for number in range(pods):
        state.set_pod(decoded(f"waits-{number}", "tenant", number, hostile=hostile))
        await asyncio.sleep(0)
    kib = [(_resident_kib() - before) / pods]
    api = cast("Api", _Silent())
    fenced = FencedApi(api, token="", timeout_seconds=1, is_trusted=lambda: True)
    recorder = Recorder(api, component="benchmark", instance="benchmark")
    metrics = Metrics()
    binder = cast("PluginBinder", _Binder())
    leases = state.device_leases
    keeper = LeaseKeeper(
        LeaseWrites(fenced, leases=leases),
        leases=leases,
        inventory_of=state.ledger.inventory,
        on_found=state.set_lease,
    )
    cycle = SchedulingCycle(state)
    failures = FailureHandler(fenced, queue=queue, cycle=cycle, recorder=recorder, metrics=metrics)
    binding_cycle = BindingCycle(binder=binder, leases=keeper, failures=failures, recorder=recorder, metrics=metrics)
    loop = Loop(
        queue=queue,
        cycle=cycle,
        binding_cycle=binding_cycle,
        gangs=GangScheduler(
            cycle,
            binding_cycle=binding_cycle,
            failures=failures,
            recorder=recorder,
            metrics=metrics,
            settings=GangSettings(),
            concurrent_binds=64,
            is_trusted=lambda: True,
        ),
        failures=failures,
        metrics=metrics,
        concurrent_binds=64,
        is_trusted=lambda: True,
    )
    process.settle()
    pauses = PauseMonitor()
    chores = [asyncio.create_task(each) for each in (pauses.run(), recorder.run(), failures.run(), loop.run())]
    waits = []
    for number in range(arrivals):
        await asyncio.sleep(_BETWEEN_S)
        queue.notify(ANY_EVENT)
        arrival = decoded(f"arrives-{number}", "stranger", fits=True)
        begin = time.monotonic()
        state.set_pod(arrival)
        while state.ledger.reservation(arrival.uid) is None:
            await asyncio.sleep(0.001)
            if time.monotonic() - begin > _PATIENCE_S:
                raise SystemExit(f"hostile: pod arrives-{number} has no reservation after {_PATIENCE_S:g} s")
        waits.append(time.monotonic() - begin)
        state.drop_pod(arrival)
    for chore in chores:
        chore.cancel()
    await asyncio.gather(*chores, return_exceptions=True)
    kib.append((_resident_kib() - before) / pods)
    return _Measured(kib, waits, pauses.longest)


def _node(name: str) -> dict[str, Any]:
    labels = {"kubernetes.io/hostname": name, **{f"example.com/label-{number}": "value" for number in range(20)}}
    return {
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110"}},
    }


def _resident_kib() -> int:
    gc.collect()
    match = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8"))
    return int(match[1]) if match else 0
