"""A whole term of a leader, put together as in the process, on an API server in memory."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock, patch

from allocation.inventory import Card, NodeInventory
from allocation.names import HAMI_HANDSHAKE, HAMI_LOCK, HAMI_REGISTER
from allocation.settings import AllocationSettings, BindingSettings, ResourceClaimsPolicy
from allocation.wire import hami
from cluster import process
from cluster.events import Recorder
from scheduler.metrics.instruments import Metrics
from scheduler.settings import SchedulerSettings
from scheduler.term_builder import build_term
from tests.scheduler.support.memory_api import MemoryApi
from tests.scheduler.support.node_manifests import of_node

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from scheduler.kube_scheduler_lease import KubeSchedulerLease
    from scheduler.term import LeaderTerm

TOKEN = "7/leader"  # noqa: S105 -- the token of a term is not a secret
NAMESPACE = "default"
PATIENCE_S = 20.0
Object = dict[str, Any]


class Cluster:
    """The objects of a cluster, and what a term makes of them.

    Attributes:
        api: the API server.
        metrics: the metrics of the term.
        recorder: what records its events.
        term: the term, once it runs.
        is_trusted: whether the leader may write.
        is_over: whether the term has ended by itself.
        settle: what freezes the objects of the process, which does nothing here.
    """

    term: LeaderTerm
    is_over = False

    def __init__(self, api: MemoryApi | None = None) -> None:
        self.api = api or MemoryApi()
        self.metrics = Metrics()
        self.recorder = Recorder(self.api, component="test", instance="test")
        self.is_trusted = True
        self.settle = Mock()

    def node(self, name: str, *cards: Card, count: int = 2, **reported: Any) -> None:
        """Create a node with its report: whole cards of 1000 MiB unless others are given."""
        cards = cards or tuple(Card(f"GPU-{name}-{index}", index, 1000, slots=4) for index in range(count))
        labels = {"kubernetes.io/hostname": name, **reported.pop("labels", {})}
        for plural, each in of_node(name, *cards, metadata={"labels": labels}, **reported):
            self.api.put(plural, each)

    def served_by_hami(self, name: str, *, lock: str = "") -> None:
        """Create a node that HAMi's plugin serves, or change its lock."""
        cards = NodeInventory(name, (Card(f"GPU-{name}-0", 0, 1000, slots=4),))
        annotations = {HAMI_REGISTER: hami.encode_register(cards), HAMI_HANDSHAKE: "Reported 2026-01-01 00:00:00"}
        annotations |= {HAMI_LOCK: lock} if lock else {}
        allocatable = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "4"}
        metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}, "annotations": annotations}
        self.api.put("nodes", {"metadata": metadata, "spec": {}, "status": {"allocatable": allocatable}})

    def pod(self, name: str, *, gpu: int = 1, memory: int | None = 100, **more: Any) -> None:
        """Create a pod that waits; `more` are fields of its metadata and its spec."""
        limits = {"nvidia.com/gpu": str(gpu)} if gpu else {}
        if memory is not None and gpu:
            limits["nvidia.com/gpumem"] = str(memory)
        fields = ("annotations", "labels", "namespace", "finalizers", "ownerReferences")
        metadata = {"namespace": NAMESPACE, **{key: more.pop(key) for key in fields if key in more}, "name": name}
        containers = [{"name": "main", "resources": {"limits": limits, "requests": limits}}]
        spec = {"schedulerName": "tranche", "containers": containers, **more}
        self.api.put("pods", {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})

    def end(self, name: str, namespace: str = NAMESPACE) -> None:
        """Let a pod end."""
        self.api.remove("pods", name, namespace)

    def shown(self, name: str, namespace: str = NAMESPACE) -> Object:
        """Return a pod."""
        return self.api.get_object("pods", name, namespace)

    async def placed(self, name: str, namespace: str = NAMESPACE) -> Object:
        """Wait until a pod has a node, and return it."""
        await self.until(lambda: bool(self.shown(name, namespace)["spec"].get("nodeName")), f"a node for {name}")
        return self.shown(name, namespace)

    async def waits(self, name: str, words: str, namespace: str = NAMESPACE) -> None:
        """Wait until a pod's condition has these words; it has no node."""

        def says() -> bool:
            shown = self.shown(name, namespace)
            assert not shown["spec"].get("nodeName"), f"{name} has a node"
            return any(words in each.get("message", "") for each in shown["status"].get("conditions", ()))

        await self.until(says, f"{name} waiting: {words}")

    async def event(self, reason: str, words: str = "") -> Object:
        """Wait for an event with this reason and these words, and return it."""
        found: list[Object] = []

        def is_there() -> bool:
            found[:] = [each for each in self.api.all("events") if each["reason"] == reason and words in each["note"]]
            return bool(found)

        await self.until(is_there, f"event {reason}: {words}")
        return found[-1]

    async def wrote(self, method: str, path: str) -> None:
        """Wait until a request with this method was sent to a path that ends like this."""
        sent = self.api.requests
        await self.until(
            lambda: any(verb == method and where.endswith(path) for verb, where in sent), f"{method} {path}"
        )

    def metric(self, name: str, **labels: str) -> float:
        """Return a metric of the term; 0 if it has no such sample."""
        samples = (sample for family in self.metrics.registry.collect() for sample in family.samples)
        return next(
            (each.value for each in samples if each.name == name and labels.items() <= each.labels.items()), 0.0
        )

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not condition():  # noqa: ASYNC110 -- whatever the term does
                    await asyncio.sleep(0.005)
        except TimeoutError:
            raise AssertionError(f"no {what}; requests: {self.api.requests[-10:]}") from None


@asynccontextmanager
async def leading(
    cluster: Cluster,
    *,
    bindings: BindingSettings | None = None,
    resource_claims: ResourceClaimsPolicy = "hold",
    kube_scheduler: KubeSchedulerLease | None = None,
    **settings: Any,
) -> AsyncIterator[Cluster]:
    """Run a term on a cluster, with these settings of the scheduler.

    In the end, check that nothing but events was written without the fence (`scheduler.fenced_api`).
    """
    recorder = cluster.recorder
    cluster.term = build_term(
        api=cluster.api,
        token=TOKEN,
        settings=SchedulerSettings(**{"first_backoff_seconds": 0.01, **settings}),
        allocation=AllocationSettings(bindings=bindings or BindingSettings(), resource_claims=resource_claims),
        recorder=recorder,
        metrics=cluster.metrics,
        is_trusted=lambda: cluster.is_trusted,
        kube_scheduler=kube_scheduler,
    )

    async def lead() -> None:
        await cluster.term.run(wait_seconds=0.0)
        cluster.is_over = True

    # A term that begins collects the garbage of its process; that of a whole test run takes a second each time.
    with patch.object(process, "settle", cluster.settle):
        async with _running(cluster, lead(), recorder.run()):
            yield cluster


@asynccontextmanager
async def _running(cluster: Cluster, *works: Coroutine[None, None, None]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(each) for each in works]
    try:
        await cluster.until(lambda: cluster.term.is_deciding or tasks[0].done(), "deciding term")
        yield
        for each in tasks:
            assert not each.done() or not cluster.is_trusted or cluster.term.is_wrong, each
        assert [path for _, path in cluster.api.unlimited if "/events" not in path] == []
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
