"""`python -m lab.simulated`: simulate the kubelets of nodes that do not exist.

Each Node stays Ready through its Lease, and is reported Ready again if it was not. A pod that is bound there is
reported Running and Ready at once, with its init containers completed. A deleted pod ends as on a real node: first its
containers and its phase, then the object, unless it has finalizers (`lab.simulated_pods`). These requests use the
identity of the node, because admission accepts some of them from no other. No container runs, and each pod shows it:
`kubectl get pods` prints the status reason Simulated instead of Running, and `kubectl describe pod` its message.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from cluster import logs
from cluster.api import STRATEGIC_MERGE_PATCH, Api
from cluster.connect import connect
from cluster.connection import Connection
from cluster.errors import ClusterError, NotFoundError
from cluster.informer import Informer
from cluster.logs import LogSettings
from cluster.metadata import ObjectMeta
from cluster.resource import LEASES, NODES, PODS
from lab import simulated_pods
from lab.simulated_pods import SIMULATED, Pod

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

log = logging.getLogger("lab.simulated")

_LEASE_NAMESPACE = "kube-node-lease"
_LEASE_SECONDS = 40
_RENEW_SECONDS = 10.0
_MANAGER = "tranche-lab"
# `kubectl get nodes` prints it as the node's role.
_ROLE = "node-role.kubernetes.io/simulated"
CAPACITY = {"cpu": "64", "memory": "512Gi", "ephemeral-storage": "1Ti", "pods": "250"}

# The API server requires all of these; only the version has a meaning for clients.
_NODE_INFO = dict.fromkeys(
    (
        "machineID",
        "systemUUID",
        "bootID",
        "kernelVersion",
        "osImage",
        "containerRuntimeVersion",
        "kubeProxyVersion",
    ),
    "",
) | {"kubeletVersion": "v1.34.4", "operatingSystem": "linux", "architecture": "amd64"}


class _Condition(msgspec.Struct):
    type: str
    status: str


class _NodeStatus(msgspec.Struct):
    conditions: list[_Condition] = []


class _Node(msgspec.Struct):
    metadata: ObjectMeta
    status: _NodeStatus = msgspec.field(default_factory=_NodeStatus)


class Kubelets:
    """The kubelets of several nodes in one process."""

    def __init__(self, connection: Connection, nodes: Sequence[str]) -> None:
        self._api = Api(connection)
        self._nodes = {node: Api(_as_node(connection, node)) for node in nodes}
        self._work: set[asyncio.Task[None]] = set()
        self._ends: dict[str, tuple[float, asyncio.TimerHandle]] = {}
        """When each deleted pod ends or has ended, by UID, as long as it exists."""
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """Orders the writes of each pod, by UID, as long as it exists: a pod that has ended never runs again."""

    async def run(self) -> None:
        """Keep the nodes Ready and their pods running until cancelled."""
        for node in sorted(self._nodes):
            await self._register(node)
        nodes = Informer(self._api, NODES, _Node, on_upsert=self._on_node)
        pods = Informer(self._api, PODS, Pod, on_upsert=self._on_pod, on_delete=self._on_gone)
        async with asyncio.TaskGroup() as group:
            group.create_task(nodes.run())
            group.create_task(pods.run())
            for node in self._nodes:
                group.create_task(self._stay_ready(node))

    # ---- nodes -----------------------------------------------------------------------------------------------------

    async def _register(self, node: str) -> None:
        labels = {"kubernetes.io/hostname": node, "kubernetes.io/os": "linux", "gpu": "on", _ROLE: ""}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": labels}}
        await self._api.apply(NODES, body, name=node, manager=_MANAGER)
        await self._renew(node)

    def _on_node(self, node: _Node, _old: _Node | None) -> None:
        """Report a node Ready that is not: a new one, or one whose Lease expired while the API server was down."""
        name = node.metadata.name
        if name in self._nodes and not any(
            (each.type, each.status) == ("Ready", "True") for each in node.status.conditions
        ):
            self._start(self._report(name), f"node {name}")

    async def _report(self, node: str) -> None:
        now = _now()
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": SIMULATED,
            "message": f"node {node} is simulated: no kubelet runs its pods",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        status = {
            "capacity": CAPACITY,
            "allocatable": CAPACITY,
            "conditions": [ready],
            "nodeInfo": _NODE_INFO,
        }
        path = NODES.path(name=node, subresource="status")
        await self._api.request("PATCH", path, body={"status": status}, content_type=STRATEGIC_MERGE_PATCH)
        log.info("node %s is Ready", node)

    async def _stay_ready(self, node: str) -> None:
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            try:
                await self._renew(node)
            except ClusterError as error:
                log.warning("node %s: %s", node, error)

    async def _renew(self, node: str) -> None:
        body = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": node, "namespace": _LEASE_NAMESPACE},
            "spec": {"holderIdentity": node, "leaseDurationSeconds": _LEASE_SECONDS, "renewTime": _now(micro=True)},
        }
        await self._api.apply(LEASES, body, name=node, namespace=_LEASE_NAMESPACE, manager=_MANAGER)

    # ---- pods ------------------------------------------------------------------------------------------------------

    def _on_pod(self, pod: Pod, _old: Pod | None) -> None:
        if pod.spec.node_name not in self._nodes:
            return
        if pod.metadata.deletion_timestamp:
            self._on_deleted(pod)
        elif pod.status.phase == "Pending":
            self._start(self._run(pod, self._turns[pod.metadata.uid]), str(pod))

    def _on_deleted(self, pod: Pod) -> None:
        """End a pod in time, or earlier than planned: another deletion may shorten the grace period."""
        loop, planned = asyncio.get_running_loop(), self._ends.get(pod.metadata.uid)
        due, turn = loop.time() + pod.ends_after_seconds, self._turns[pod.metadata.uid]
        if planned is not None:
            if planned[0] <= due:
                return
            planned[1].cancel()
        self._ends[pod.metadata.uid] = due, loop.call_at(due, lambda: self._start(self._end(pod, turn), str(pod)))

    def _on_gone(self, pod: Pod) -> None:
        if planned := self._ends.pop(pod.metadata.uid, None):
            planned[1].cancel()
        self._turns.pop(pod.metadata.uid, None)

    def _start(self, work: Coroutine[Any, Any, object], what: str) -> None:
        async def carry_out() -> None:
            try:
                await work
            except NotFoundError:
                return
            except ClusterError as error:
                log.warning("%s: %s", what, error)

        task = asyncio.create_task(carry_out())
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _run(self, pod: Pod, turn: asyncio.Lock) -> None:
        async with turn:
            await self._set_status(pod, simulated_pods.running(pod, now=_now()))

    async def _end(self, pod: Pod, turn: asyncio.Lock) -> None:
        """End a deleted pod; its object stays as long as it has finalizers."""
        path = PODS.path(namespace=pod.metadata.namespace, name=pod.metadata.name)
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.metadata.uid}}
        try:
            async with turn:
                if not pod.finished:
                    await self._set_status(pod, simulated_pods.ended(pod, now=_now()))
                await self._nodes[pod.spec.node_name].request("DELETE", path, body=body)
        except ClusterError:
            self._ends.pop(pod.metadata.uid, None)  # the next event tries again
            raise

    async def _set_status(self, pod: Pod, status: dict[str, Any]) -> None:
        path = PODS.path(namespace=pod.metadata.namespace, name=pod.metadata.name, subresource="status")
        body = {"metadata": {"uid": pod.metadata.uid}, "status": status}
        await self._nodes[pod.spec.node_name].request("PATCH", path, body=body, content_type=STRATEGIC_MERGE_PATCH)


def _as_node(connection: Connection, node: str) -> Connection:
    """Return `connection` with the identity of a node's kubelet."""

    async def headers() -> dict[str, str]:
        identity = {"Impersonate-User": f"system:node:{node}", "Impersonate-Group": "system:nodes"}
        return {**await connection.headers(), **identity}

    return Connection(
        session=connection.session, server=connection.server, headers=headers, namespace=connection.namespace
    )


def _now(*, micro: bool = False) -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")


async def _serve(kubeconfig: str, nodes: Sequence[str]) -> None:
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with connect(program="tranche-lab", kubeconfig=kubeconfig) as connection:
        await Kubelets(connection, nodes).run()


def main() -> int:
    """Simulate until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m lab.simulated", description=__doc__)
    parser.add_argument("--kubeconfig", required=True, help="kubeconfig with the identity of this process")
    parser.add_argument("nodes", nargs="+", metavar="NODE")
    arguments = parser.parse_args()
    logs.set_up(LogSettings())
    try:
        asyncio.run(_serve(arguments.kubeconfig, arguments.nodes))
    except asyncio.CancelledError:
        return 0
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
