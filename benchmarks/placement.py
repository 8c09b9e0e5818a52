"""End to end on a real API server: pods created beforehand, until the last one has its node.

Beside our loop, in the same run and on the same control plane with the same policies: a client that posts the same
annotated Bindings as fast as it can, and a stock kube-scheduler with plain pods.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import msgspec

from allocation import names
from allocation.allocation import Allocation, CardShare
from allocation.request import ContainerRequest, Kind, PodRequest
from benchmarks import cluster, fleets
from benchmarks.results import Row, Sample
from cluster.api import Api
from cluster.metadata import ObjectMeta
from cluster.reflector import Reflector
from cluster.resource import LEADERSHIPS, PODS
from lab import control_plane, kubeconfig
from lab.layout import Layout, Port
from lab.processes import Daemon
from scheduler.binder import allocation_annotations
from scheduler.cycle import Chosen

NAME = "placement"
_PATIENCE_S = 300.0
_CEILING, _STOCK = 0.85, 3.0


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Pod(msgspec.Struct):
    metadata: ObjectMeta
    spec: _Spec


class _Token(msgspec.Struct):
    epoch: int
    identity: str


class _Leadership(msgspec.Struct):
    spec: _Token


def run(*, smoke: bool) -> Iterator[tuple[Row, Sample]]:
    """Measure; a smoke run takes a minute and its figures mean nothing."""
    for nodes in (10,) if smoke else (1_000, 5_000):
        rates = asyncio.run(_measure(nodes=nodes, pods=40 if smoke else 2_000, plain=20 if smoke else 1_000))
        (ours, taken), (ceiling, ceiling_taken), (stock, stock_taken) = rates
        what = f"loop, {nodes:,} nodes half full, pods created beforehand"
        yield (
            Row(
                NAME,
                what,
                f"{ours:.0f} pods a second",
                f"{ours / ceiling:.2f} of an unlimited client's {ceiling:.0f};"
                f" {ours / stock:.1f} times kube-scheduler's {stock:.0f}",
                f"≥ {_CEILING} of the client, ≥ {_STOCK:g} times kube-scheduler",
                ours >= _CEILING * ceiling and ours >= _STOCK * stock,
            ),
            Sample(NAME, what, taken),
        )
        for peer, rate, seconds in (
            ("unlimited client", ceiling, ceiling_taken),
            ("kube-scheduler", stock, stock_taken),
        ):
            what = f"{peer}, {nodes:,} nodes"
            yield Row(NAME, what, f"{rate:.0f} pods a second"), Sample(NAME, what, seconds)


_Rate = tuple[float, list[float]]
"""Pods a second, and when each was seen to have its node, in seconds since the first."""


async def _measure(*, nodes: int, pods: int, plain: int) -> tuple[_Rate, _Rate, _Rate]:
    with cluster.running() as layout:
        async with cluster.client(layout.kubeconfig) as api:
            await cluster.settle(api, layout, nodes=nodes)
            scheduler = kubeconfig.service_account_kubeconfig(
                layout, namespace=names.SYSTEM_NAMESPACE, name="tranche-scheduler"
            )
            await cluster.create(api, (cluster.fractional(f"ours-{number}") for number in range(pods)))
            async with _watched(api, "ours-", pods) as seen:
                with _scheduler(layout, scheduler):
                    ours = await seen
            await cluster.create(api, (cluster.fractional(f"client-{number}") for number in range(pods)))
            async with _watched(api, "client-", pods) as seen, cluster.client(scheduler) as identity:
                await _bind_all(identity, nodes=nodes, pods=pods)
                ceiling = await seen
            await cluster.create(
                api, (cluster.plain(f"plain-{number}", scheduler="default-scheduler") for number in range(plain))
            )
            async with _watched(api, "plain-", plain) as seen:
                limits = {"kubeconfig": str(layout.component_kubeconfig("kube-scheduler")), "qps": 5000, "burst": 5000}
                await asyncio.to_thread(
                    control_plane.start_kube_scheduler, layout, configuration={"clientConnection": limits}
                )
                stock = await seen
            Daemon(layout, "kube-scheduler").stop()
    return ours, ceiling, stock


@asynccontextmanager
async def _watched(api: Api, prefix: str, count: int) -> AsyncIterator["asyncio.Future[_Rate]"]:
    """Answer what becomes the rate at which `count` pods with this name get nodes, once the last one has."""
    times: list[float] = []
    result: asyncio.Future[_Rate] = asyncio.get_running_loop().create_future()

    def note(pod: _Pod, old: _Pod | None) -> None:
        if pod.metadata.name.startswith(prefix) and pod.spec.node_name and (old is None or not old.spec.node_name):
            times.append(time.perf_counter())
            if len(times) == count and not result.done():
                result.set_result(((count - 1) / (times[-1] - times[0]), [each - times[0] for each in times]))

    watch = Reflector(api, PODS, _Pod, on_set=note, namespace=cluster.NAMESPACE)
    watching = asyncio.create_task(watch.run())
    await watch.synced.wait()
    try:
        async with asyncio.timeout(_PATIENCE_S):
            yield result
    except TimeoutError:
        raise SystemExit(
            f"placement: {len(times)} of {count} pods {prefix}… have a node after {_PATIENCE_S:g} s"
        ) from None
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


@contextmanager
def _scheduler(layout: Layout, identity: Path) -> Iterator[None]:
    command = [
        sys.executable,
        "-m",
        "scheduler",
        "--kubeconfig",
        str(identity),
        "--port",
        str(layout.port(Port.SCHEDULER)),
    ]
    with (layout.logs / "scheduler.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


async def _bind_all(api: Api, *, nodes: int, pods: int) -> None:
    """Post the Bindings that a scheduler would, without deciding anything."""
    leadership = await api.get(LEADERSHIPS, _Leadership, name="tranche-scheduler", namespace=names.SYSTEM_NAMESPACE)
    token = f"{leadership.spec.epoch}/{leadership.spec.identity}"
    request = PodRequest((ContainerRequest("main", Kind.REGULAR, "", 1, 3000, 0, 100),))

    async def bind(number: int) -> None:
        node, name = fleets.node(number % nodes), f"client-{number}"
        share = CardShare(cluster.card(node, 1), 1, 3000, 100)
        chosen = Chosen(node, request, Allocation(node, {"main": (share,)}), "")
        written = {names.LEADER: token, **allocation_annotations(chosen, unix_seconds=int(time.time()))}
        meta = {"name": name, "annotations": written, "labels": {names.FENCED_LABEL: "true"}}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": {"kind": "Node", "name": node}}
        path = PODS.path(namespace=cluster.NAMESPACE, name=name, subresource="binding")
        await api.request("POST", path, body=body)

    await cluster.at_once(bind(number) for number in range(pods))
