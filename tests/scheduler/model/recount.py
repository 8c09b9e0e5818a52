"""Everything that a scheduler counts of its objects: a new term must count the same of the same objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from allocation.steps import finish

if TYPE_CHECKING:
    from scheduler.fairness.use import UseByOwner
    from scheduler.state.cluster_state import ClusterState


def counted(state: ClusterState) -> dict[str, Any]:
    """Return what a state counts, by the part that counts it."""
    ledger, nodes, leases, workload = state.ledger, state.node_cache, state.device_leases, state.workload
    finish(workload.prepare())
    rows = {node: ledger.row(node) for node in sorted(ledger.nodes)}
    return {
        "cards": {each.uid: (each.node, each.charges) for each in ledger.reservations()},
        "columns": {node: ledger.used[:, row].tolist() for node, row in rows.items()},
        "places": {node: ledger.pods.item(row) for node, row in rows.items()},
        "difference": [text for node in rows if (text := ledger.difference(node))],
        "quotas": _use(state.quotas.counted),
        "queues": _use(state.fair_share.use),
        "holds": _use(state.fair_share.held),
        "capacity": state.fair_share.capacity.total(),
        "leases": {each.name: (each, leases.is_wanted(each), leases.matches(each.name)) for each in leases},
        "unwanted": {each.name for each in leases.unwanted()},
        "leased": {each.uid: (each, leases.missing(each)) for each in leases.pods()},
        "nodes": {node: _nonzero(nodes.used.get(node, {})) for node in nodes.names},
        "on nodes": {node: set(nodes.pods_of(node)) for node in nodes.names},
        "requested": dict(workload._pods),
        "mix": (workload._cpu, workload._memory, workload._size, workload.mix),
        "models": (dict(workload._by_accepted), dict(workload._used)),
        "claims": (state.claims.phases(), {name: set(users) for name, users in state.claims._users.items()}),
        "applications": {key: dict(pods) for key, pods in state.bindings._pods._pods.items()},
        "waiting": {each.pod.uid: each.key for each in state.queue},
        "waiting by queue": dict(state.queue.waiting),
        "running": set(state.running),
        "closed": state.closed_nodes.now(),
    }


def _use(use: UseByOwner[Any]) -> tuple[dict[str, Any], dict[Any, Any], list[Any]]:
    return use.snapshot(), {owner: use.of(owner) for owner in use}, finish(use.differences())


def _nonzero(amounts: dict[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if amount}
