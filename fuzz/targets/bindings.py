"""GPUBindings of any form: which cards they grant a pod is the same in any order, and never an error."""

import msgspec

from allocation import quantity
from allocation.bindings import binding, grants
from allocation.bindings.binding import AppIdentity
from allocation.bindings.bound_cards import BoundCard, consume_policy
from allocation.errors import AllocationError
from allocation.names import SHARE_MODE_PREFIX
from allocation.quantity import INT32_MAX
from allocation.request import ContainerRequest, Kind
from cluster.gpu_binding import GpuBinding
from cluster.informer import SURVIVED

_CARD_MIB = 81920
_REQUEST = ContainerRequest("main", Kind.REGULAR, "spec.containers[0]", 1, None, 100, 1000)


class _Input(msgspec.Struct):
    """The bindings of a cluster, and the labels and annotations of a pod and of its node."""

    bindings: list[GpuBinding] = []
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    namespace: str = ""


_decoder = msgspec.json.Decoder(_Input)


def try_bytes(data: bytes) -> None:
    """Read `data` as bindings and a pod, and return what the pod gets of a card in each share mode."""
    try:
        read = _decoder.decode(data)
    except SURVIVED:
        return
    identity = AppIdentity.of_labels(read.labels, read.namespace)
    modes = binding.share_modes(read.annotations)
    assert all(f"{SHARE_MODE_PREFIX}{uuid}" in read.annotations for uuid in modes)
    assert consume_policy(read.labels, read.annotations) in ("all", "single")
    for each in read.bindings:
        if each.spec.memory is not None:
            _check_memory(each.spec.memory)
    if identity is None:
        return
    # Names are unique in a cluster.
    bindings = [*{each.metadata.name: each.binding for each in read.bindings}.values()]
    granted = grants.of_pod(bindings, identity, read.labels)
    assert grants.of_pod(reversed(bindings), identity, read.labels) == granted
    required = grants.of_pod(bindings, identity, read.labels, require_namespace=True)
    assert {grant.card for grant in required} <= {grant.card for grant in granted}
    by_name = {each.name: each.spec for each in bindings}
    for grant in granted:
        spec = by_name[grant.binding]
        assert identity.has(spec)
        assert spec.card == grant.card
        mode = modes.get(grant.card, "time-slicing")
        of_mode = {"exclusive": _CARD_MIB, "memory-slicing": grant.memory_mib or _CARD_MIB, "time-slicing": 0}
        assert BoundCard(grant, mode).request(_REQUEST).memory_on(_CARD_MIB) == of_mode[mode]


def _check_memory(written: quantity.Quantity) -> None:
    try:
        mib = quantity.binding_mib(written)
    except AllocationError:
        return
    assert 0 < mib <= INT32_MAX
