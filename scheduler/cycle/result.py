"""The result of scheduling a pod: the node and cards that are reserved for it, or the reasons why no node takes it."""

from collections.abc import Mapping
from typing import Self

import msgspec

from allocation.allocation import Allocation, Charge
from allocation.bindings.bound_cards import BoundCards
from allocation.claim import VisibleAs
from allocation.fabric import environment
from allocation.inventory import NodeInventory
from allocation.ledger.ledger import Ledger
from allocation.placement.mig_plan import Plan
from allocation.reasons import PodReason
from allocation.request import PodRequest
from allocation.wire import mig_record
from allocation.wire.mig_record import MigAllocation
from scheduler.cycle import messages
from scheduler.gpu_requirements import GpuRequirements
from scheduler.metrics.labels import Path
from scheduler.queue.entry import Rejected
from scheduler.volumes.bindings import NO_BINDINGS, VolumeBindings


class Scheduled(msgspec.Struct, frozen=True):
    """The pod has a node.

    Attributes:
        node: its name.
        request: the GPU request of the pod.
        allocation: the cards of each container; None for a pod that requests no GPU.
        note: the node and the runners-up with their scores, for the event.
        instances: the MIG instances among the cards.
        charges: what the allocation costs each card.
        path: how the node was found.
        volumes: what has to be written for the pod's unbound claims before it is bound.
        visible_as: how `CUDA_VISIBLE_DEVICES` names the cards.
        fabric: the environment variables by which its GPU containers use the node's adapters and storage, if its claim
            asks for them.
        bound: the cards among these that are bound to the pod's application; None if it may have others.
        charged_to: the queue that pays, as annotation `gpu.scheduling/charged-to` has it; empty without any GpuQueue.
    """

    node: str
    request: PodRequest
    allocation: Allocation | None
    note: str
    instances: tuple[MigAllocation, ...] = ()
    charges: tuple[Charge, ...] = ()
    path: Path = "full"
    volumes: VolumeBindings = NO_BINDINGS
    visible_as: VisibleAs = "UUID"
    fabric: Mapping[str, str] = {}
    bound: BoundCards | None = None
    charged_to: str = ""

    @classmethod
    def on_cards(
        cls,
        ledger: Ledger,
        requirements: GpuRequirements,
        placed: Allocation,
        charges: tuple[Charge, ...],
        *,
        note: str,
        path: Path,
    ) -> Self:
        """Return the result for the `placed` cards, with the MIG instances among them."""
        request, allocation = requirements.own, requirements.allocation(placed)
        inventory = ledger.inventory(placed.node) or NodeInventory(placed.node, ())
        demand = requirements.constraints.fabric
        return cls(
            placed.node,
            request,
            allocation,
            note,
            instances=mig_record.entries(allocation, request, inventory) if placed.node in ledger.mig_nodes else (),
            charges=charges,
            path=path,
            visible_as=requirements.claim.devices.visible_as if requirements.claim is not None else "UUID",
            fabric=environment(demand, inventory.fabric) if demand is not None else {},
            bound=requirements.bound.among(placed) if requirements.bound is not None else None,
        )


class Unschedulable(Rejected, frozen=True):
    """No node takes the pod now.

    Attributes:
        path: how the result was found.
        requested_instances: the MIG instances that an agent is asked to create for the pod.
    """

    path: Path = "full"
    requested_instances: Plan | None = None


ScheduleResult = Scheduled | Unschedulable


def held(why: str) -> Unschedulable:
    """Return the result for a pod that only a change of the pod itself can help."""
    return Unschedulable(messages.held(why), frozenset({PodReason.PodHeld.value}), is_held=True, path="cached")


def waiting(reason: PodReason, why: str) -> Unschedulable:
    """Return the result for a pod that waits for another object, whatever the nodes have."""
    return Unschedulable(messages.waiting(reason, why), frozenset({reason.value}), path="cached")
