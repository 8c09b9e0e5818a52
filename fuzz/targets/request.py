"""A pod's containers and annotations: reading them yields a valid request, or an error that names the field."""

import msgspec

from allocation.allocation import Allocation, CardShare, charges
from allocation.constraints import read_constraints
from allocation.errors import InvalidFieldError
from allocation.quantity import INT32_MAX
from allocation.request import MAX_CARDS, MILLI_PER_TFLOP, WHOLE_CARD, PodRequest, read_request
from allocation.settings import MOST_TFLOPS
from fuzz.world import ALLOCATION
from webhook.review import Pod, UnreadablePodError, decode_pod


def try_bytes(data: bytes) -> None:
    """Read `data` as a new pod."""
    try:
        pod = decode_pod(msgspec.Raw(data))
    except UnreadablePodError as error:
        assert "pod cannot be read" in str(error)
        return
    try:
        read_constraints(pod.metadata.annotations or {}, ALLOCATION)
    except InvalidFieldError as error:
        assert str(error).startswith(error.field)
        assert "metadata.annotations[" in error.field
    try:
        request = read_request(pod.spec, ALLOCATION)
    except InvalidFieldError as error:
        assert str(error).startswith(error.field)
        assert error.field.startswith("spec.")
        return
    _check(request, pod)


def _check(request: PodRequest, pod: Pod) -> None:
    assert len(request.containers) == len(pod.spec.init_containers) + len(pod.spec.containers)
    for container in request.gpu_containers:
        assert 0 < container.count <= MAX_CARDS
        assert 0 <= container.cores <= WHOLE_CARD
        assert 0 <= container.tflops <= MOST_TFLOPS * MILLI_PER_TFLOP
        assert not (container.cores and container.tflops)
        assert 0 <= container.memory_on(80_000) <= INT32_MAX
    names = [container.name for container in request.containers]
    if len(set(names)) < len(names):
        return
    share = {each.name: (CardShare("GPU-a", 0, each.memory_on(80_000), each.cores),) for each in request.gpu_containers}
    for charge in charges(Allocation("n1", share), request):
        assert charge.slots <= len(share)
