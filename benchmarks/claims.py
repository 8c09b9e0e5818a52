"""What GpuClaims cost: pods with claims placed per second on a real API server, and the Leases that each of them needs.

A claim for cards of a pod's own takes a Lease per card, and then the Binding; a pod without a claim takes the Binding
alone. Both are placed in the same run and in turns. The Leases are also measured by themselves, without the scheduler.
"""

import asyncio
import time
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec
import uvloop

from allocation import claim, names
from allocation.claim import ClaimDevices
from allocation.settings import AllocationSettings
from benchmarks import cluster, fleets, schedulers, watching
from benchmarks.results import Row, Sample, milliseconds, percentile
from benchmarks.watching import Bound
from cluster.api import Api
from cluster.resource import GPU_CLAIMS, LEASES
from lab.layout import Layout

NAME = "claims"
PLAIN: Final = "plain"
SHARED: Final = "shared"
ONE: Final = "one"
EIGHT: Final = "eight"
_CLAIMS: Final[Mapping[str, ClaimDevices]] = {
    SHARED: ClaimDevices(1, "Shared", memory_mib=3000, cores=10),
    ONE: ClaimDevices(1),
    EIGHT: ClaimDevices(fleets.CARDS),
}
"""The claim that all pods of a kind name; each of them gets cards of its own."""
_LEAST: Final[Mapping[str, float]] = {ONE: 0.7, EIGHT: 0.35}
"""The least rate of a kind, as a part of that of pods without claims."""
_LEASE_SECONDS: Final = 60


class Leases(msgspec.Struct, frozen=True):
    """Seconds of each creation of one Lease after the other, and of each creation of eight at the same time."""

    one: list[float]
    eight: list[float]


class Sizes(msgspec.Struct, frozen=True):
    """The size of a run.

    Attributes:
        nodes: idle nodes, which must suffice for the pods of all turns.
        pods: of each kind but the last in each turn.
        eights: pods with eight cards in each turn, each of which fills a node.
        turns: how often each kind is placed.
        leases: how often Leases are created.
    """

    nodes: int
    pods: int
    eights: int
    turns: int
    leases: int

    def count(self, kind: str) -> int:
        """Return the number of pods of a kind in each turn."""
        return self.eights if kind == EIGHT else self.pods


FULL: Final = Sizes(nodes=1_000, pods=500, eights=100, turns=5, leases=300)
_SMOKE: Final = Sizes(nodes=12, pods=8, eights=2, turns=1, leases=5)


def run(*, smoke: bool) -> Iterator[tuple[Row, Sample]]:
    """Measure; the figures of a smoke run mean nothing."""
    sizes = _SMOKE if smoke else FULL
    turns, leases = uvloop.run(_measure(sizes))
    yield from rates(sizes, turns)
    yield from _writes(leases)


# ---- end to end ------------------------------------------------------------------------------------------------------


async def _measure(sizes: Sizes) -> tuple[list[dict[str, Bound]], Leases]:
    """Return in each turn how the pods of each kind got their nodes, in alternating order, and the Leases alone."""
    with cluster.running() as layout:
        async with cluster.client(layout.kubeconfig) as api:
            await cluster.settle(api, layout, nodes=sizes.nodes, pods=0)
            leases = await _lease_seconds(api, sizes.leases)
            for name, devices in _CLAIMS.items():
                await api.create(GPU_CLAIMS, _claim(name, devices), namespace=cluster.NAMESPACE)
            account, turns = schedulers.identity(layout), []
            for turn in range(sizes.turns):
                kinds = (PLAIN, *_CLAIMS)[:: 1 if turn % 2 == 0 else -1]
                turns.append(
                    {kind: await _turn(api, layout, account, f"{kind}-{turn}-", sizes.count(kind)) for kind in kinds}
                )
    return turns, leases


async def _turn(api: Api, layout: Layout, account: Path, prefix: str, count: int) -> Bound:
    """Create pods of the kind with which the prefix begins, and then have the loop place them."""
    kind = prefix.partition("-")[0]
    await cluster.create(api, (pod(f"{prefix}{number}", kind) for number in range(count)))
    async with watching.bound(api, prefix, count) as seen:
        with schedulers.loop(layout, account):
            return await seen


def pod(name: str, kind: str) -> dict[str, Any]:
    """Return a pod of a kind as admission leaves it."""
    if kind == PLAIN:
        return cluster.fractional(name)
    given = claim.resources(_CLAIMS[kind], AllocationSettings())
    made = cluster.admitted(name, {resource: str(amount) for resource, amount in given.items()})
    annotations = {**made["metadata"].get("annotations", {}), names.CLAIM: kind}
    return {**made, "metadata": {**made["metadata"], "annotations": annotations}}


def _claim(name: str, devices: ClaimDevices) -> dict[str, Any]:
    written = {key: value for key, value in msgspec.to_builtins(devices).items() if value not in (None, "")}
    body = {"apiVersion": GPU_CLAIMS.api_version, "kind": GPU_CLAIMS.kind, "metadata": {"name": name}}
    return {**body, "spec": {"devices": written}}


def rates(sizes: Sizes, turns: Sequence[Mapping[str, Bound]]) -> Iterator[tuple[Row, Sample]]:
    """Return the rows of the pods per second; each kind with a claim is compared with plain pods, turn by turn."""
    fleet = f"{sizes.nodes:,} idle nodes of {fleets.CARDS} cards"
    whats = {
        SHARED: "each pod with a Shared claim: no Lease",
        ONE: "each pod with an Exclusive claim of one card: one Lease",
        EIGHT: f"each pod with an Exclusive claim of {fleets.CARDS} cards: {fleets.CARDS} Leases",
    }
    plain = median(turn[PLAIN].rate for turn in turns)
    for kind, text in whats.items():
        rate = median(turn[kind].rate for turn in turns)
        ratio = median(turn[kind].rate / turn[PLAIN].rate for turn in turns)
        what = f"end to end, loop mode, {text}, {sizes.count(kind):,} pods created beforehand, {fleet}"
        cards = f", {rate * _CLAIMS[kind].count:.0f} cards/s" if _CLAIMS[kind].count > 1 else ""
        figure = f"{rate:.0f} pods/s{cards}, {ratio:.2f} × without claims"
        target, passed = (
            (f"≥ {_LEAST[kind]:g} × without claims", ratio >= _LEAST[kind]) if kind in _LEAST else ("", None)
        )
        yield Row(NAME, what, figure, f"without claims {plain:.0f}/s", target, passed), _sample(what, turns, kind)
    what = f"end to end, loop mode, pods without claims, {sizes.count(PLAIN):,} created beforehand, {fleet}"
    figures = ", ".join(f"{turn[PLAIN].rate:.0f}" for turn in turns)
    yield Row(NAME, what, f"{figures} pods/s"), _sample(what, turns, PLAIN)


def _sample(what: str, turns: Sequence[Mapping[str, Bound]], kind: str) -> Sample:
    return Sample(NAME, what, [second for turn in turns for second in turn[kind].since_first])


# ---- Leases alone ----------------------------------------------------------------------------------------------------


async def _lease_seconds(api: Api, count: int) -> Leases:
    """Create Leases like those of cards, one at a time and eight at a time in turns, on an idle API server."""
    one, eight = list[float](), list[float]()
    for number in range(count):
        one.append(await _seconds(_create_lease(api, f"one-{number}")))
        together = (_create_lease(api, f"eight-{number}-{card}") for card in range(fleets.CARDS))
        eight.append(await _seconds(asyncio.gather(*together)))
    # The scheduler watches the namespace: it would read these Leases at each start.
    path = LEASES.path(namespace=names.SYSTEM_NAMESPACE)
    await api.request("DELETE", path, params={"labelSelector": names.POD_LABEL})
    return Leases(one, eight)


async def _seconds(work: Awaitable[object]) -> float:
    begin = time.perf_counter()
    await work
    return time.perf_counter() - begin


async def _create_lease(api: Api, name: str) -> None:
    """Create a Lease of the size of a card's, under a name for which the scheduler's policies need no leader."""
    body = {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {
            "name": f"benchmark-{name}",
            "labels": {names.POD_LABEL: name},
            "annotations": {names.LEADER: "1/benchmark", names.CLAIM: ONE},
        },
        "spec": {"holderIdentity": name, "leaseDurationSeconds": _LEASE_SECONDS},
    }
    await api.create(LEASES, body, namespace=names.SYSTEM_NAMESPACE)


def _writes(leases: Leases) -> Iterator[tuple[Row, Sample]]:
    what = "creation of one Lease"
    yield Row(NAME, what, milliseconds(leases.one)), Sample(NAME, what, leases.one)
    what = f"creation of {fleets.CARDS} Leases at the same time"
    ratio = percentile(leases.eight, 50) / percentile(leases.one, 50)
    figure = f"{milliseconds(leases.eight)}, {ratio:.1f} × one"
    yield Row(NAME, what, figure, f"one {milliseconds(leases.one)}"), Sample(NAME, what, leases.eight)
