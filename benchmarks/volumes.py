"""What volumes, preferences and rules about other pods cost: one decision in this process, and end to end.

Each kind of pod is compared with a plain pod, without any of these, in the same run and in turns. For the way end to
end, the API server is a real one.
"""

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec
import uvloop

from allocation.settings import AllocationSettings
from allocation.steps import finish
from benchmarks import cluster, extender, fleets, schedulers, storage, watching
from benchmarks.results import Row, Sample, microseconds, percentile
from benchmarks.watching import Bound
from cluster import process
from cluster.api import Api
from cluster.resource import NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from lab.layout import Layout
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.result import Scheduled
from scheduler.objects import Pod
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.state.cluster_state import ClusterState
from scheduler.volumes.objects import Claim, PersistentVolume, StorageClass

NAME = "volumes"
_PLAIN: Final = "a plain pod"
_OF_PLAIN: Final = 0.8
_MakePod = Callable[[int], dict[str, Any]]


def run(*, smoke: bool) -> Iterator[tuple[Row, Sample]]:
    """Measure; a smoke run takes a minute and its figures mean nothing."""
    nodes, decisions = (100, 20) if smoke else (5_000, 300)
    for unused in (0,) if smoke else (0, 10_000):
        yield from _decisions(nodes, decisions, unused=unused)
    nodes, held, pods, turns = (10, 0, 20, 1) if smoke else (1_000, cluster.HALF, 1_000, 6)
    yield from _rates(nodes, pods, uvloop.run(_measure(nodes=nodes, held=held, pods=pods, turns=turns)))


# ---- one decision ----------------------------------------------------------------------------------------------------


def _decisions(nodes: int, decisions: int, *, unused: int) -> Iterator[tuple[Row, Sample]]:
    """Measure decisions about pods of each kind in turns, with `unused` further PersistentVolumes."""
    state = _state(nodes)
    volumes = _fill(state, nodes, storage.ZONES + decisions, unused=unused)
    cycle = SchedulingCycle(state)
    process.settle()
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    chance = random.Random(4)
    kinds = _kinds()
    last: dict[str, Pod] = {}
    for number in range(storage.ZONES + decisions):
        for kind in chance.sample(sorted(kinds), len(kinds)):
            pod = _pod(f"{kind}-{number}", kinds[kind](number))
            taken = _decide(cycle, pod)
            if number >= storage.ZONES:  # the first pod of a kind, and of each zone, has no ranking yet
                seconds[kind].append(taken)
            if kind in last:  # pods end, otherwise the nodes of local volumes fill up
                cycle.forget(last[kind])
            last[kind] = pod
    plain = percentile(seconds[_PLAIN], 50)
    fleet = f"{nodes:,} nodes of {fleets.CARDS} cards, {volumes:,} PersistentVolumes"
    for kind in kinds:
        measured = seconds[kind]
        what = f"decision, {kind}, {fleet}"
        ratio = f", {percentile(measured, 50) / plain:.1f} × {_PLAIN}" if kind != _PLAIN else ""
        floor = f"{_PLAIN} {microseconds(seconds[_PLAIN])}" if kind != _PLAIN else ""
        yield Row(NAME, what, microseconds(measured) + ratio, floor), Sample(NAME, what, measured)


def _state(nodes: int) -> ClusterState:
    """Return a fleet that is half full, whose nodes have zones and whose agents are all alive."""
    state = ClusterState(
        settings=AllocationSettings(),
        make_queue=partial(SchedulingQueue, clock=time.monotonic, first_backoff=1.0, longest_backoff=1.0),
        clock=time.monotonic,
    )
    extender.fill(state, nodes, labels=storage.node_labels)
    return state


def _fill(state: ClusterState, nodes: int, pods: int, *, unused: int) -> int:
    """Add the claims and volumes of all kinds of pods; return the number of PersistentVolumes."""
    for storage_class in storage.classes():
        state.storage.set_class(msgspec.convert(storage_class, StorageClass))
    made = [storage.volume("shared", claim="shared")]
    claims = [storage.claim("shared", volume="shared")]
    for number in range(pods):
        for kind, affinity in (("zonal", storage.zonal(number)), ("local", storage.local(number % nodes))):
            name = f"{kind}-{number}"
            made.append(storage.volume(name, affinity, claim=name))
            claims.append(storage.claim(name, volume=name))
        unbound = (storage.MATCHED, storage.PROVISIONED)
        claims += [storage.claim(f"{name}-{number}", storage_class=name) for name in unbound]
    made += [storage.volume(f"available-{number}", storage.local(number)) for number in range(nodes)]
    made += [
        storage.volume(f"other-{number}", storage.zonal(number), claim=f"other-{number}") for number in range(unused)
    ]
    for each in made:
        state.storage.set_volume(msgspec.convert(each, PersistentVolume))
    for each in claims:
        state.storage.set_claim(msgspec.convert(each, Claim))
    return len(made)


def _kinds() -> Mapping[str, _MakePod]:
    """Return for each kind of pod a function that makes the pod with a number."""
    pod = cluster.fractional("pod")

    def mounting(claim: str) -> _MakePod:
        return lambda number: storage.mounting(pod, f"{claim}-{number}")

    preferred = {"key": storage.ZONE, "operator": "In", "values": [storage.zone_of(0)]}
    term = {"weight": 100, "preference": {"matchExpressions": [preferred]}}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    replica = {**pod, "metadata": {**pod["metadata"], "labels": {"app": "replica"}}}
    others = {"labelSelector": {"matchLabels": {"app": "replica"}}}
    apart = {"requiredDuringSchedulingIgnoredDuringExecution": [{**others, "topologyKey": "kubernetes.io/hostname"}]}
    even = {**others, "topologyKey": storage.ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    return {
        _PLAIN: lambda _: pod,
        "a claim that all pods share": lambda _: storage.mounting(pod, "shared"),
        "a claim of its own, bound in one zone": mounting("zonal"),
        "a claim of its own, bound on one node": mounting("local"),
        "an unbound claim for which a volume is provisioned": mounting(storage.PROVISIONED),
        "an unbound claim that gets a local volume": mounting(storage.MATCHED),
        "a preferred node affinity": lambda _: {**pod, "spec": {**pod["spec"], "affinity": affinity}},
        "apart from its replicas": lambda _: {
            **replica,
            "spec": {**pod["spec"], "affinity": {"podAntiAffinity": apart}},
        },
        "spread over zones": lambda _: {**replica, "spec": {**pod["spec"], "topologySpreadConstraints": [even]}},
    }


def _pod(name: str, manifest: dict[str, Any]) -> Pod:
    pod = msgspec.convert(manifest, Pod)
    pod.metadata.name = pod.metadata.uid = name
    return pod


def _decide(cycle: SchedulingCycle, pod: Pod) -> float:
    """Return the seconds of a decision, whose reservation stays."""
    begin = time.perf_counter()
    result = finish(cycle.schedule(pod))
    taken = time.perf_counter() - begin
    if not isinstance(result, Scheduled):
        raise SystemExit(f"volumes: pod {pod} does not fit: {result.note if result is not None else 'it changed'}")
    return taken


# ---- end to end ------------------------------------------------------------------------------------------------------


async def _measure(*, nodes: int, held: int, pods: int, turns: int) -> list[dict[str, Bound]]:
    """Return in each turn how pods without and with a bound claim got their nodes; the order alternates."""
    measured: list[dict[str, Bound]] = []
    with cluster.running() as layout:
        async with cluster.client(layout.kubeconfig) as api:
            fleet = await cluster.settle(api, layout, nodes=nodes, pods=held)
            await cluster.at_once(
                api.merge(NODES, {"metadata": {"labels": {storage.ZONE: storage.zone_of(number)}}}, name=name)
                for number, name in enumerate(fleet)
            )
            account = schedulers.identity(layout)
            for turn in range(turns):
                order = ("plain", "claim") if turn % 2 == 0 else ("claim", "plain")
                measured.append(
                    {kind: await _turn(api, layout, account, f"volume-{kind}-{turn}-", pods) for kind in order}
                )
    return measured


async def _turn(api: Api, layout: Layout, account: Path, prefix: str, pods: int) -> Bound:
    """Create pods, with claims if the prefix says so, and then have the loop place them."""
    names = [f"{prefix}{number}" for number in range(pods)]
    made = [cluster.fractional(name) for name in names]
    if "claim" in prefix:
        await cluster.at_once(_bound_claim(api, name, number) for number, name in enumerate(names))
        made = [storage.mounting(pod, name) for pod, name in zip(made, names, strict=True)]
    await cluster.create(api, made)
    async with watching.bound(api, prefix, pods) as seen:
        with schedulers.loop(layout, account):
            return await seen


async def _bound_claim(api: Api, name: str, number: int) -> None:
    """Create a claim and its volume as the controllers leave them, which do not run."""
    volume = storage.volume(name, storage.zonal(number), claim=name)
    claim = storage.claim(name, volume=name)
    await asyncio.gather(
        api.create(PERSISTENT_VOLUMES, volume),
        api.create(PERSISTENT_VOLUME_CLAIMS, claim, namespace=cluster.NAMESPACE),
    )
    bound = {"status": {"phase": "Bound"}}
    await api.merge(PERSISTENT_VOLUME_CLAIMS, bound, namespace=cluster.NAMESPACE, name=name, subresource="status")


def _rates(nodes: int, pods: int, turns: Sequence[Mapping[str, Bound]]) -> Iterator[tuple[Row, Sample]]:
    fleet = f"{pods:,} pods created beforehand, {nodes:,} nodes, half full"
    plain, claim = (median(turn[kind].rate for turn in turns) for kind in ("plain", "claim"))
    ratio = median(turn["claim"].rate / turn["plain"].rate for turn in turns)
    what = f"end to end, loop mode, each pod with a bound claim of its own, {fleet}"
    row = Row(
        NAME,
        what,
        f"{claim:.0f} pods/s, {ratio:.2f} × without claims",
        f"without claims {plain:.0f}/s",
        f"! ≥ {_OF_PLAIN:g} × pods without claims",
        ratio >= _OF_PLAIN,
    )
    yield row, _sample(what, turns, "claim")
    what = f"end to end, loop mode, pods without claims, {fleet}"
    rates = ", ".join(f"{turn['plain'].rate:.0f}" for turn in turns)
    yield Row(NAME, what, f"{rates} pods/s"), _sample(what, turns, "plain")


def _sample(what: str, turns: Sequence[Mapping[str, Bound]], kind: str) -> Sample:
    return Sample(NAME, what, [second for turn in turns for second in turn[kind].since_first])
