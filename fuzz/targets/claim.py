"""A GpuClaim: a pod with what it gives is accepted, and what a restart reads of the placed pod is what was reserved."""

import json
from types import SimpleNamespace

import msgspec

from allocation import claim, names
from allocation.allocation import charges
from allocation.ledger.ledger_view import LedgerView
from allocation.placement.placement import Placement, place
from allocation.placement.query import PlacementQuery
from allocation.pod import Container, Resources
from allocation.quantity import Quantity
from allocation.steps import finish
from allocation.wire import environment, pod_allocation
from cluster.gpu_claim import GpuClaim
from cluster.informer import SURVIVED
from fuzz import world
from fuzz.validity import is_valid
from scheduler import gpu_requirements

_decoder = msgspec.json.Decoder(GpuClaim)
_LEDGER = world.state().ledger


def try_bytes(data: bytes) -> None:
    """Read `data` as a GpuClaim, and place a pod with two containers that names it."""
    try:
        decoded = _decoder.decode(data)
        if not is_valid({**json.loads(data), "kind": "GpuClaim"}):
            return
    except (*SURVIVED, ValueError):
        return
    limits: dict[str, Quantity] = {
        name: str(amount) for name, amount in claim.resources(decoded.spec.devices, world.ALLOCATION).items()
    }
    containers = [Container(name=name, resources=Resources(limits=limits)) for name in ("main", "side")]
    selector = dict(decoded.spec.node_labels)  # which admission writes into the pod
    spec = SimpleNamespace(containers=containers, init_containers=[], node_selector=selector)
    requirements = gpu_requirements.read(spec, {names.CLAIM: "c"}, world.ALLOCATION, find_claim=lambda _: decoded.spec)
    query = PlacementQuery(requirements.request, requirements.constraints)
    outcome = finish(place(LedgerView(_LEDGER), query, _LEDGER.nodes))
    if isinstance(outcome, Placement):
        _LEDGER.check(outcome.allocation.node, outcome.charges)
        allocation = requirements.allocation(outcome.allocation)
        assert charges(allocation, requirements.own) == outcome.charges
        annotations = environment.annotations(allocation)
        read = pod_allocation.read(spec, annotations, node=allocation.node, settings=world.ALLOCATION)
        assert read == (allocation, outcome.charges)
