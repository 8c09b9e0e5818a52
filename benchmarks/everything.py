"""What all features together cost a pod that uses few of them: the next pod, its decision, and the memory of the state.

One scheduler has GpuQueues, ResourceQuotas, GpuClaims, gangs and GPUBindings; the other has none. Both have the same
nodes and the same waiting pods, and decide in turns.
"""

import asyncio
import gc
import tracemalloc
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from allocation import names
from allocation.claim import ClaimDevices, ClaimSpec
from benchmarks import cluster, fleets, queues
from benchmarks.queues import Scheduler
from benchmarks.results import Row, Sample, microseconds, percentile
from cluster import process
from cluster.gpu_binding import GpuBinding
from cluster.gpu_claim import GpuClaim
from cluster.metadata import ObjectMeta
from cluster.resource_quota import ResourceQuota
from scheduler.objects import Pod

NAME: Final = "everything"
_MOST_RATIO: Final = 1.1
_GANG_SIZE: Final = 8


class Counts(msgspec.Struct, frozen=True):
    """How many objects the scheduler with everything has; each gang has eight pods, of which one is missing."""

    queues: int
    quotas: int
    claims: int
    gangs: int
    bindings: int

    def __str__(self) -> str:
        """Return the counts in words."""
        return ", ".join(f"{count} {name}" for name, count in msgspec.structs.asdict(self).items())


_FULL: Final = Counts(queues=50, quotas=50, claims=200, gangs=20, bindings=500)
_SMOKE: Final = Counts(queues=5, quotas=5, claims=5, gangs=2, bindings=5)
_SMOKE_SIZES: Final = queues.Sizes(nodes=20, pods=100, queues=5, shapes=5, decisions=20, sweeps=0)


def run(*, smoke: bool) -> Iterator[tuple[Row, Sample]]:
    """Measure; a smoke run takes seconds and its figures mean nothing."""
    counts = _SMOKE if smoke else _FULL
    sizes = _SMOKE_SIZES if smoke else msgspec.structs.replace(queues.FULL, queues=counts.queues)
    process.settle()
    yield from asyncio.run(_measure(sizes, counts))


async def _measure(sizes: queues.Sizes, counts: Counts) -> list[tuple[Row, Sample]]:
    tracemalloc.start()
    bare, bare_bytes = _built(sizes, None)
    loaded, loaded_bytes = _built(sizes, counts)
    tracemalloc.stop()
    pops: dict[bool, list[float]] = {True: [], False: []}
    decisions: dict[bool, list[float]] = {True: [], False: []}
    for number in range(sizes.decisions):
        for is_loaded in (True, False) if number % 2 else (False, True):
            popped, decided = await queues.one(loaded if is_loaded else bare)
            if number >= sizes.decisions // 10:
                pops[is_loaded].append(popped)
                decisions[is_loaded].append(decided)
    both = {on: [sum(pair) for pair in zip(pops[on], decisions[on], strict=True)] for on in (True, False)}
    subject = f"{counts}; {sizes.nodes:,} nodes, {sizes.pods:,} waiting pods"
    return [
        _row(f"decision beside {subject}", decisions),
        _row(f"next pod and its decision beside {subject}", both),
        _memory_row(f"memory of the state with {subject}", loaded_bytes, bare_bytes),
    ]


def _row(what: str, seconds: dict[bool, list[float]]) -> tuple[Row, Sample]:
    ratio = percentile(seconds[True], 50) / percentile(seconds[False], 50)
    figure = f"{microseconds(seconds[True])}, {ratio:.2f} × without"
    target, floor = f"≤ {_MOST_RATIO:g} ×", f"without them {microseconds(seconds[False])}"
    return Row(NAME, what, figure, floor, target, ratio <= _MOST_RATIO), Sample(NAME, what, seconds[True])


def _memory_row(what: str, loaded: int, bare: int) -> tuple[Row, Sample]:
    ratio = loaded / bare
    figure, floor = f"{loaded / 1e6:.1f} MB, {ratio:.2f} × without", f"without them {bare / 1e6:.1f} MB"
    return Row(NAME, what, figure, floor, f"≤ {_MOST_RATIO:g} ×", ratio <= _MOST_RATIO), Sample(NAME, what, [loaded])


# ---- the two schedulers ----------------------------------------------------------------------------------------------


def _built(sizes: queues.Sizes, counts: Counts | None) -> tuple[Scheduler, int]:
    """Return a scheduler with waiting pods, and how many bytes of memory it takes."""
    before, _ = tracemalloc.get_traced_memory()
    scheduler = Scheduler(sizes, queues=counts.queues if counts else 0)
    if counts is not None:
        _add_objects(scheduler, counts)
    queues.add_pods(scheduler, sizes)
    gc.collect()
    return scheduler, tracemalloc.get_traced_memory()[0] - before


def _add_objects(scheduler: Scheduler, counts: Counts) -> None:
    state = scheduler.state
    for number in range(counts.quotas):
        state.limits.set_quota(_quota(number))
    for number in range(counts.claims):
        state.set_claim(_claim(number))
    for number in range(counts.bindings):
        node = fleets.node(number % len(state.node_cache))
        state.bindings.set(_binding(number, node))
    for number in range(counts.gangs):
        for member in range(_GANG_SIZE - 1):
            state.set_pod(_member(number, member))


def _quota(number: int) -> ResourceQuota:
    meta = {"name": "gpus", "namespace": f"team-{number}", "uid": f"quota-{number}"}
    hard = {"limits.nvidia.com/gpu": "100000", "limits.nvidia.com/gpumem": "1000000000"}
    return msgspec.convert({"metadata": meta, "spec": {"hard": hard}}, ResourceQuota)


def _claim(number: int) -> GpuClaim:
    meta = ObjectMeta(name=f"claim-{number}", namespace=f"team-{number % 50}", uid=f"claim-{number}")
    return GpuClaim(meta, ClaimSpec(ClaimDevices(1)))


def _binding(number: int, node: str) -> GpuBinding:
    meta = {"name": f"binding-{number}", "uid": str(number), "creationTimestamp": queues.CREATED}
    spec = {
        "uuid": cluster.card(node, fleets.CARDS - 1),
        "appName": f"app-{number}",
        "owner": "alice",
        "namespace": cluster.NAMESPACE,
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": f"app-{number}"}},
        "memory": "1000",
    }
    return msgspec.convert({"metadata": meta, "spec": spec}, GpuBinding)


def _member(gang: int, number: int) -> Pod:
    """Return a pod of a gang that waits for its last member."""
    pod: dict[str, Any] = queues.pod_body(f"gang-{gang}-{number}", gang % 50, 2_000)
    pod["metadata"]["annotations"] = {names.GANG: f"gang-{gang}", names.GANG_MIN_MEMBERS: str(_GANG_SIZE)}
    return msgspec.convert(pod, Pod)
