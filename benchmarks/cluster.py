"""A real control plane with a simulated fleet: nodes without kubelets, their GPU reports, and running pods."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

import jsonpatch
import msgspec

from allocation import names
from allocation.allocation import Allocation, CardShare
from allocation.inventory import Card, NodeInventory
from allocation.settings import AllocationSettings
from allocation.wire import environment, record
from benchmarks import fleets
from cluster.api import Api
from cluster.connect import connect
from cluster.gpu_node_status import status_of
from cluster.resource import GPU_NODE_STATUSES, LEASES, NAMESPACES, NODES, PODS, Resource
from lab import binaries, cluster, control_plane, manifests
from lab.layout import Layout
from lab.processes import Daemon
from webhook.mutation import mutate
from webhook.quotas import Quotas
from webhook.review import decode_pod
from webhook.settings import WebhookSettings

NAMESPACE = "default"
_SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
_BASE_PORT = 31000
_AT_ONCE = 64
_DAY = 86_400
_GRACE_S = 30.0
_SMOKE_NODES, _SMOKE_PODS = 12, 10
HALF = fleets.CARDS // 2


class _Smoke:
    """The control plane that the benchmarks of a smoke run share, if there is one."""

    def __init__(self) -> None:
        self.stack: ExitStack | None = None
        self.layout: Layout | None = None
        self.nodes = 0


_SMOKE = _Smoke()


@contextmanager
def shared() -> Iterator[None]:
    """Share one control plane and one fleet among all benchmarks of the block: their setups take longer than they do.

    The first benchmark that needs a control plane starts it.
    """
    with ExitStack() as stack:
        _SMOKE.stack = stack
        try:
            yield
        finally:
            _SMOKE.stack = _SMOKE.layout = None
            _SMOKE.nodes = 0


@contextmanager
def running() -> Iterator[Layout]:
    """Yield a control plane without schedulers.

    It is new, and nothing is installed on it yet. A smoke run shares one that has the fleet and the manifests; the pods
    of one benchmark stay, so their names differ from others'.
    """
    if _SMOKE.stack is None:
        with _new(_BASE_PORT) as layout:
            yield layout
        return
    if _SMOKE.layout is None:
        layout = _SMOKE.stack.enter_context(_new(_BASE_PORT))
        with ThreadPoolExecutor(1) as thread:  # the benchmark may run an event loop in this one
            thread.submit(lambda: asyncio.run(_populate(layout))).result()
        _SMOKE.layout = layout
    yield _SMOKE.layout


async def _populate(layout: Layout) -> None:
    async with client(layout.kubeconfig) as api:
        await settle(api, layout, nodes=_SMOKE_NODES, pods=_SMOKE_PODS)


@contextmanager
def _new(base_port: int) -> Iterator[Layout]:
    with TemporaryDirectory(prefix="tranche-bench-") as folder:
        layout = Layout(root=Path(folder), base_port=base_port)
        try:
            control_plane.up(layout, controller_manager=False, kube_scheduler=False, audit=False, report=lambda _: None)
            binaries.provide(layout.bin, ("kube-scheduler",), report=lambda _: None)
            yield layout
        finally:
            cluster.down(layout)


@contextmanager
def process(layout: Layout, name: str, *arguments: str) -> Iterator[int]:
    """Run `python -m name` with `arguments` during the block; yield its process ID. It need not be ready yet."""
    daemon = Daemon(layout, name)
    daemon.start([sys.executable, "-m", name, *arguments])
    try:
        yield daemon.pid or 0
    finally:
        daemon.stop(grace_s=_GRACE_S)


@asynccontextmanager
async def client(kubeconfig: Path | str) -> AsyncIterator[Api]:
    """Yield the API with the identity of a kubeconfig."""
    async with connect(program="tranche-bench", kubeconfig=str(kubeconfig)) as connection:
        yield Api(connection)


async def at_once(work: Iterable[Coroutine[Any, Any, object]], *, limit: int = _AT_ONCE) -> None:
    """Await all coroutines, `limit` at a time."""
    todo = iter(work)

    async def some() -> None:
        for each in todo:
            await each

    await asyncio.gather(*(some() for _ in range(limit)))


async def on_a_clock(work: Iterable[Coroutine[Any, Any, None]], *, a_second: int) -> None:
    """Start coroutines at a steady rate; return when all have ended."""
    begin = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number, each in enumerate(work):
            await asyncio.sleep(begin + number / a_second - time.perf_counter())
            group.create_task(each)


async def settle(api: Api, layout: Layout, *, nodes: int, pods: int = HALF) -> list[str]:
    """Create a fleet with `pods` pods on each node, then install the manifests, policies included; return its nodes.

    The first four pods of a node hold every second card, which makes the fleet half full. Further pods are small.
    The fleet of a smoke run exists already; without `pods`, idle nodes are added to it.
    """
    is_shared = layout is _SMOKE.layout
    if is_shared and pods:
        return [fleets.node(number) for number in range(_SMOKE.nodes)]
    first = _SMOKE.nodes
    fleet = [fleets.node(number) for number in range(first, first + nodes)]
    _SMOKE.nodes += nodes if _SMOKE.stack is not None else 0
    await at_once(node(api, name) for name in fleet)
    await create(api, (_old(name, number) for name in fleet for number in range(pods)))
    if not is_shared:
        await asyncio.to_thread(manifests.install, layout)
    await at_once(_agent(api, name) for name in fleet)
    return fleet


def fractional(name: str, *, memory_mib: int = 3000) -> dict[str, Any]:
    """Return a pod that requests a share of a card, as admission leaves it."""
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(memory_mib), "nvidia.com/gpucores": "10"}
    return admitted(name, limits)


def admitted(name: str, limits: Mapping[str, str]) -> dict[str, Any]:
    """Return a pod with these GPU limits, as admission leaves it."""
    pod = plain(name, scheduler="default-scheduler")
    pod["spec"]["containers"][0]["resources"] = {"limits": dict(limits), "requests": dict(limits)}
    return prepared(pod)


def prepared(pod: dict[str, Any]) -> dict[str, Any]:
    """Return a pod as admission leaves it."""
    mutation = mutate(
        decode_pod(msgspec.Raw(json.dumps(pod).encode())),
        username="",
        allocation=AllocationSettings(),
        settings=WebhookSettings(),
        quotas=Quotas(),
        claim=None,
    )
    patched: dict[str, Any] = jsonpatch.apply_patch(pod, msgspec.to_builtins(mutation.operations))
    return patched


def plain(name: str, *, scheduler: str) -> dict[str, Any]:
    """Return a pod without GPU requests."""
    spec = {"schedulerName": scheduler, "containers": [{"name": "main", "image": "none", "resources": {}}]}
    return {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


async def create(api: Api, pods: Iterable[dict[str, Any]]) -> None:
    """Create pods as fast as the API server accepts them."""
    await at_once(api.create(PODS, pod, namespace=NAMESPACE) for pod in pods)


def card(node: str, index: int) -> str:
    """Return the UUID of a card."""
    return f"GPU-{node}-{index}"


async def namespace(api: Api, name: str, *, labels: Mapping[str, str] = MappingProxyType({})) -> None:
    """Create a namespace and its ServiceAccount, because the controller that would create it does not run."""
    await api.create(NAMESPACES, {"metadata": {"name": name, "labels": dict(labels)}})
    await api.create(_SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, namespace=name)


async def dry_run(api: Api, pod: dict[str, Any], *, namespace: str) -> bytes:
    """Create a pod as a dry run; return the admitted pod."""
    return await api.request("POST", PODS.path(namespace=namespace), params={"dryRun": "All"}, body=pod)


async def node(api: Api, name: str) -> None:
    """Create a schedulable node without a kubelet."""
    allocatable = {"cpu": "256", "memory": "2Ti", "pods": "1000", "ephemeral-storage": "1Ti"}
    labels = {"kubernetes.io/hostname": name}
    status = {"allocatable": allocatable, "capacity": allocatable}
    await api.create(NODES, {"metadata": {"name": name, "labels": labels}, "status": status})
    # Admission taints every new node, and the controller that removes the taint does not run.
    await api.merge(NODES, {"spec": {"taints": None}}, name=name)


def _old(node: str, number: int) -> dict[str, Any]:
    index = (2 * number + number // HALF) % fleets.CARDS
    memory_mib, cores = (40_000, 300) if number < HALF else (1_000, 10)
    share = CardShare(card(node, index), index, memory_mib, cores)
    pod = fractional(f"old-{node}-{number}")
    pod["spec"]["nodeName"] = node
    allocation = Allocation(node, {"main": (share,)})
    annotations = {names.ALLOCATION: record.encode(allocation), **environment.annotations(allocation)}
    pod["metadata"]["annotations"] = annotations
    return pod


async def _agent(api: Api, node: str) -> None:
    """Write an agent's reports, with a Lease of a day, so that no agent has to run."""
    cards = tuple(Card(card(node, at), at, fleets.MEMORY_MIB, model="NVIDIA H100") for at in range(fleets.CARDS))
    body = {"apiVersion": GPU_NODE_STATUSES.api_version, "kind": GPU_NODE_STATUSES.kind, "metadata": {"name": node}}
    await api.create(GPU_NODE_STATUSES, {**body, "spec": {"nodeName": node}})
    status = msgspec.to_builtins(status_of(NodeInventory(node, cards)))
    await api.merge(GPU_NODE_STATUSES, {"status": status}, name=node, subresource="status")
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": "benchmark", "leaseDurationSeconds": _DAY, "renewTime": now}
    lease = {"metadata": {"name": names.heartbeat_lease(node)}, "spec": spec}
    await api.create(LEASES, lease, namespace=names.SYSTEM_NAMESPACE)
