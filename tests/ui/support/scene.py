"""A cluster that looks like one in use: three teams, two models of cards, pods that wait for different reasons."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from allocation.inventory import Card
from tests.scheduler.support.terms import Cluster

A100, L4 = "NVIDIA-A100-SXM4-80GB", "NVIDIA-L4"
TEAMS = ("research", "speech", "vision")
LARGE, SMALL = 24, 12
"""The numbers of nodes with eight A100 and with four L4 cards."""
SERVED = ((8000, 10), (16000, 20), (38000, 45), (79000, 100), (20000, 30))
"""The MiB and percent of the cards of the pods that serve."""
TRAINED = 9
"""The nodes of which a pod has all cards."""
CORDONED = "a100-14"
UNHEALTHY = "a100-17"


def scene() -> Cluster:
    """Return the cluster, before a term runs on it."""
    cluster = Cluster()
    for number in range(LARGE):
        name = f"a100-{number:02}"
        cluster.node(name, *_cards(name, 8, 81920, A100, unhealthy=3 if name == UNHEALTHY else None))
    for number in range(SMALL):
        name = f"l4-{number:02}"
        cluster.node(name, *_cards(name, 4, 24576, L4))
    node = cluster.api.get_object("nodes", CORDONED)
    cluster.api.put("nodes", {**node, "spec": {"unschedulable": True}})
    for number in range(TRAINED):
        team = TEAMS[number % len(TEAMS)]
        node_name = f"a100-{2 * number:02}" if number else "a100-23"
        _pod(cluster, team, f"train-{number}", cards=8, node=node_name)
    for number in range(96):
        memory, cores = SERVED[number % len(SERVED)]
        _pod(cluster, TEAMS[number % len(TEAMS)], f"serve-{number:02}", memory=memory, cores=cores)
    _pod(cluster, "research", "train-large", cards=8, node=UNHEALTHY, priority=100, minutes=42)
    _pod(cluster, "speech", "tune-oversized", memory=90000, cores=100, minutes=11)
    _pod(cluster, "vision", "embed-on-h100", memory=16000, selector={"gpu-type": "h100"}, minutes=4)
    return cluster


def _cards(node: str, count: int, memory: int, model: str, *, unhealthy: int | None = None) -> list[Card]:
    return [
        Card(f"GPU-{node}-{index}", index, memory, slots=10, model=model, healthy=index != unhealthy)
        for index in range(count)
    ]


def _pod(
    cluster: Cluster,
    namespace: str,
    name: str,
    *,
    cards: int = 1,
    memory: int = 0,
    cores: int = 0,
    node: str = "",
    selector: dict[str, str] | None = None,
    priority: int = 0,
    minutes: int = 180,
) -> None:
    """Create a pod that was admitted some minutes ago, with whole cards if it says no `memory`."""
    created = datetime.now(UTC) - timedelta(minutes=minutes)
    metadata = {"namespace": namespace, "name": name, "creationTimestamp": created.strftime("%Y-%m-%dT%H:%M:%SZ")}
    limits = {"nvidia.com/gpu": str(cards)}
    limits |= {"nvidia.com/gpumem": str(memory)} if memory else {"nvidia.com/gpumem-percentage": "100"}
    limits |= {"nvidia.com/gpucores": str(cores)} if cores else {}
    spec = {
        "schedulerName": "tranche",
        "priority": priority,
        "nodeSelector": selector or ({"kubernetes.io/hostname": node} if node else {}),
        "containers": [{"name": "main", "resources": {"limits": limits, "requests": limits}}],
    }
    cluster.api.put("pods", {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})
