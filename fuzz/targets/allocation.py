"""The allocation annotation: decoding and encoding round-trip, and each allocation yields an environment."""

from allocation import names
from allocation.errors import MalformedRecordError
from allocation.inventory import WHOLE_CORES
from allocation.quantity import INT32_MAX
from allocation.wire import environment, record


def try_bytes(data: bytes) -> None:
    """Read `data` as a pod's annotation."""
    try:
        allocation = record.of_annotations({names.ALLOCATION: data.decode(errors="replace")})
    except MalformedRecordError as error:
        assert names.ALLOCATION in str(error)
        return
    assert allocation is not None
    assert record.decode(record.encode(allocation)) == allocation
    for shares in allocation.containers.values():
        assert all(0 <= share.memory_mib <= INT32_MAX and 0 <= share.cores <= WHOLE_CORES for share in shares)
        assert all(0 <= share.tflops <= INT32_MAX for share in shares)
    if all(allocation.containers.values()):
        environment.annotations(allocation)
