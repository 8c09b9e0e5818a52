"""A scheduler that dies between the write for a pod's volume and the pod's Binding leaves nothing undone for ever."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec
import pytest

from cluster.api import Api
from cluster.connect import connect
from cluster.informer import Informer
from cluster.resource import LEADERSHIPS, NAMESPACES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS
from lab import components, kubectl
from lab.client import client
from lab.fleet import SIMULATED_NODES
from lab.layout import Port
from lab.processes import Daemon
from lab.provisioner import STORAGE_CLASS
from scheduler.objects import Pod
from scheduler.volumes.bindings import ClaimKey
from scheduler.volumes.objects import SELECTED_NODE, Claim, PersistentVolume
from tests.support.depth import repetitions
from tests.support.patience import PATIENCE_S
from tests.support.volumes import claim, local_volume
from tests.system.conftest import Namespace
from tests.system.test_deposed import without_scheduler
from tests.system.test_recovery import settled, start_scheduler
from tests.system.test_volumes import mounting, static

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from lab.layout import Layout

__all__ = ["static", "without_scheduler"]  # fixtures

pytestmark = pytest.mark.apiserver
KILLS = repetitions(5, 50)
DELETED = 5
"""In every fifth round the pod is deleted while no scheduler leads."""
REPLICAS = 3
ELECTION = {
    "--election-lease-seconds": "1.5",
    "--election-renew-deadline-seconds": "1.2",
    "--election-retry-seconds": "0.2",
    "--request-timeout-seconds": "0.5",
}


class _Spec(msgspec.Struct):
    epoch: int
    identity: str


class _Leadership(msgspec.Struct):
    spec: _Spec


class Schedulers:
    """Replicas, one of which leads; an election takes two seconds, and a replica needs more to start."""

    def __init__(self, layout: Layout, api: Api) -> None:
        self.layout = layout
        self.api = api
        self._names = [f"scheduler-volumes-{number}" for number in range(REPLICAS)]

    def start(self) -> None:
        """Start the replicas that do not run."""
        component = components.component(self.layout, "scheduler")
        for number, name in enumerate(self._names):
            ports = {"--port": Port.SCHEDULER, "--namespace-api-port": Port.SCHEDULER_API}
            flags = ELECTION | {flag: str(self.layout.port(port) + 40 + 3 * number) for flag, port in ports.items()}
            if not Daemon(self.layout, name).is_running:
                words = ["--ui-enabled=false", "--ui-exposed=false", *(word for pair in flags.items() for word in pair)]
                components.start_replica(self.layout, component, *words, name=name)

    async def kill_leader(self) -> None:
        """Kill the process of the replica that leads."""
        leads = (
            await self.api.get(LEADERSHIPS, _Leadership, name="tranche-scheduler", namespace="tranche-system")
        ).spec
        (leader,) = [
            daemon
            for name in self._names
            if f"leading with token {leads.epoch}/{leads.identity}"
            in (daemon := Daemon(self.layout, name)).log.read_text(encoding="utf-8")
        ]
        assert leader.pid is not None
        os.kill(leader.pid, signal.SIGKILL)

    def stop(self) -> None:
        """Stop all replicas."""
        for name in self._names:
            Daemon(self.layout, name).stop()


class Seen:
    """What the API server has shown of claims, volumes and pods, and in which order they were bound.

    A resourceVersion is a revision of etcd, in which all objects of the cluster follow one another.
    """

    def __init__(self, api: Api) -> None:
        self.claims = Informer(api, PERSISTENT_VOLUME_CLAIMS, Claim, on_upsert=self._on_claim)
        self.volumes = Informer(api, PERSISTENT_VOLUMES, PersistentVolume, on_upsert=self._wake)
        self.pods = Informer(api, PODS, Pod, on_upsert=self._on_pod)
        self.claim_bound_at: dict[str, int] = {}
        self.pod_bound_at: dict[str, int] = {}
        self._changed = asyncio.Event()

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watch during the block."""
        tasks = [asyncio.create_task(each.run()) for each in (self.claims, self.volumes, self.pods)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds, which depends on what is watched."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    def reserved(self, key: ClaimKey) -> str:
        """Return the volume that is reserved for a claim, or an empty string."""
        references = ((each.metadata.name, each.spec.claim_ref) for each in self.volumes)
        return next((name for name, ref in references if ref and ClaimKey(ref.namespace, ref.name) == key), "")

    def selected(self, key: ClaimKey) -> bool:
        """Whether a claim names the node for which its volume is to be provisioned."""
        shown = self.claims.get(key.name, key.namespace)
        return shown is not None and SELECTED_NODE in shown.metadata.annotations

    def _on_claim(self, claim: Claim, _old: Claim | None) -> None:
        if claim.is_bound:
            self.claim_bound_at.setdefault(claim.metadata.uid, int(claim.metadata.resource_version))
        self._wake()

    def _on_pod(self, pod: Pod, _old: Pod | None) -> None:
        if pod.spec.node_name:
            self.pod_bound_at.setdefault(pod.uid, int(pod.metadata.resource_version))
        self._wake()

    def _wake(self, *_: object) -> None:
        self._changed.set()


async def test_kills_before_the_binding_lose_no_volume(
    without_scheduler: Layout,
    namespace: Namespace,
    static: str,
) -> None:
    """At the end every pod is bound after its claim, and no volume is reserved for a claim that does not get it.

    In turn, a volume is provisioned, or an existing one is reserved; no client completes it before the leader is dead.
    """
    layout = without_scheduler
    names = [f"pv-{namespace.name}-{number:02}" for number in range(KILLS // 2)]
    nodes = [SIMULATED_NODES[number % 3] for number in range(len(names))]
    client(layout).apply(
        *(local_volume(name, node=node, storage_class=static) for name, node in zip(names, nodes, strict=True))
    )
    async with connect(program="tranche-test", kubeconfig=str(layout.kubeconfig)) as connection:
        api = Api(connection)
        schedulers, seen = Schedulers(layout, api), Seen(api)
        try:
            async with seen.watching():
                for number in range(KILLS):
                    await kill_before_binding(schedulers, seen, namespace, number, static)
                await until_all_are_bound(seen, namespace)
                check(seen, namespace)
        finally:
            await asyncio.to_thread(schedulers.stop)
        await api.request("GET", NAMESPACES.path(name=namespace.name))
    start_scheduler(layout)
    settled(layout)
    namespace.empty()
    namespace.api.delete_all("pvc", namespace=namespace.name)
    kubectl.run(layout, "delete", "pv", *names)


async def kill_before_binding(
    schedulers: Schedulers, seen: Seen, namespace: Namespace, number: int, static_class: str
) -> None:
    """Create a pod with a claim, and kill the leader when it has written for the claim."""
    key, name = ClaimKey(namespace.name, f"data-{number:02}"), f"p{number:02}"
    is_static = bool(number % 2)
    api, storage_class = schedulers.api, static_class if is_static else STORAGE_CLASS
    await asyncio.to_thread(schedulers.start)
    with Daemon(schedulers.layout, "kube-controller-manager" if is_static else "local-provisioner").paused():
        await api.create(
            PERSISTENT_VOLUME_CLAIMS, claim(key.name, storage_class=storage_class), namespace=key.namespace
        )
        await api.create(PODS, mounting(name, key.name), namespace=key.namespace)
        await seen.until(lambda: bool(seen.reserved(key)) if is_static else seen.selected(key))
        await schedulers.kill_leader()
        shown = seen.pods.get(name, namespace.name)
        assert shown is not None
        assert not shown.spec.node_name
        if number % DELETED == DELETED - 1:
            await api.request("DELETE", PODS.path(namespace=key.namespace, name=name))


async def until_all_are_bound(seen: Seen, namespace: Namespace) -> None:
    """Wait until every claim has a volume, and every pod that was not deleted has a node."""

    def ours(metadata_namespace: str) -> bool:
        return metadata_namespace == namespace.name

    await seen.until(lambda: all(each.is_bound for each in seen.claims if ours(each.metadata.namespace)))
    await seen.until(lambda: all(each.spec.node_name for each in seen.pods if ours(each.metadata.namespace)))


def check(seen: Seen, namespace: Namespace) -> None:
    """Check that each pod was bound after its claim, where its volume is, and that each reserved volume is used."""
    claims = {each.metadata.name: each for each in seen.claims if each.metadata.namespace == namespace.name}
    pods = {each.metadata.name: each for each in seen.pods if each.metadata.namespace == namespace.name}
    assert (len(claims), len(pods)) == (KILLS, KILLS - KILLS // DELETED)
    for name, pod in pods.items():
        bound = claims[f"data-{name[1:]}"]
        assert seen.claim_bound_at[bound.metadata.uid] < seen.pod_bound_at[pod.uid]
        volume = seen.volumes.get(bound.spec.volume_name)
        assert volume is not None
        assert volume.spec.node_affinity is not None
        assert volume.spec.node_affinity.required is not None
        (term,) = volume.spec.node_affinity.required.node_selector_terms
        assert term.match_expressions[0].values == (pod.spec.node_name,)
    for volume in seen.volumes:
        reference = volume.spec.claim_ref
        if reference is not None and reference.namespace == namespace.name:
            assert claims[reference.name].spec.volume_name == volume.metadata.name
            assert claims[reference.name].metadata.uid == reference.uid
