"""The state of a scheduler in a small cluster: two nodes with cards, and a namespace that opted in."""

import time
from functools import partial
from typing import Any, Final

import msgspec

from allocation.claim import ClaimDevices, ClaimSpec
from allocation.inventory import Card, NodeInventory
from allocation.settings import AllocationSettings
from cluster.gpu_node_status import GpuNodeStatus, status_of
from cluster.lease import Lease, LeaseMeta, LeaseSpec
from cluster.metadata import ObjectMeta
from scheduler.objects import LabelledMeta, Namespace, Node, Pod
from scheduler.preemption.choice import Chooser
from scheduler.preemption.disruption_budgets import DisruptionBudgets
from scheduler.preemption.eligibility import Eligibility
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.settings import PreemptionSettings
from scheduler.state.cluster_state import ClusterState
from webhook import dry_run
from webhook.claims import ReadClaim
from webhook.settings import WebhookSettings

ALLOCATION = AllocationSettings()
WEBHOOK = WebhookSettings(runtime_class_name="nvidia", takeover=("batch",), trusted=("root",))
ADMIT = partial(dry_run.dry_run, allocation=ALLOCATION, settings=WEBHOOK)
NODES = ("n1", "n2")
FOREIGN_DRIVER = "gpu.nvidia.com"


class _Claims:
    """One GpuClaim of each kind, in every namespace; all others do not exist."""

    _SPECS: Final = {
        "whole": ClaimSpec(ClaimDevices(2)),
        "shared": ClaimSpec(ClaimDevices(1, "Shared", memory_mib=3000, cores=30)),
        "slot": ClaimSpec(ClaimDevices(1, "Shared")),
        "mig": ClaimSpec(ClaimDevices(1, "MIG", profile="1g.10gb")),
    }

    def cached(self, _namespace: str, name: str) -> ClaimSpec | None:
        return self._SPECS.get(name)

    async def read(self, _namespace: str, name: str) -> ReadClaim:
        return ReadClaim(self._SPECS.get(name))


CLAIMS = _Claims()
NAMESPACE = "team"


def state() -> ClusterState:
    """Return the state of a scheduler that has just listed all objects."""
    make_queue = partial(SchedulingQueue, clock=_clock, first_backoff=1.0, longest_backoff=8.0)
    made = ClusterState(settings=ALLOCATION, make_queue=make_queue, clock=_clock, foreign_drivers=(FOREIGN_DRIVER,))
    made.limits.set_namespace(Namespace(LabelledMeta(name=NAMESPACE, labels={"gpu.scheduling/injection": "enabled"})))
    for name in NODES:
        made.set_node(_node(name))
        made.agent_reports.set(GpuNodeStatus(ObjectMeta(name=name, uid=name), status_of(_inventory(name))))
        made.set_lease(Lease(LeaseMeta(name=f"agent-{name}"), LeaseSpec("agent", 60, "2026-01-01T00:00:00.000000Z")))
    return made


def _clock() -> float:
    return 100.0


def _node(name: str) -> Node:
    body: dict[str, Any] = {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "size": "7"}},
        "status": {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110"}},
    }
    return msgspec.convert(body, Node)


def _inventory(name: str) -> NodeInventory:
    return NodeInventory(name, tuple(Card(f"GPU-{name}-{n}", n, 1000, slots=4, model="NVIDIA A100") for n in range(2)))


def pod() -> Pod:
    """Return a pending pod, `0/0`: names that a fuzzer tries first."""
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "600"}
    body: dict[str, Any] = {
        "metadata": {"name": "0", "namespace": "0", "uid": "uid-0"},
        "spec": {"schedulerName": "tranche", "containers": [{"name": "main", "resources": {"limits": limits}}]},
    }
    return msgspec.convert(body, Pod)


def chooser(made: ClusterState, budgets: DisruptionBudgets) -> Chooser:
    """Return what chooses the pods that a pod preempts."""
    return Chooser(made, Eligibility(made, budgets=budgets, settings=PreemptionSettings(), unix=time.time))
