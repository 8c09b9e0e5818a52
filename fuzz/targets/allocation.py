"""The allocation annotation: what is read is written and read again as it was, and leads to an environment."""

from allocation import environment, names, record
from allocation.errors import MalformedRecordError
from allocation.inventory import WHOLE_CORES
from allocation.quantity import INT32_MAX


def try_bytes(data: bytes) -> None:
    """Read `data` as a pod's annotation."""
    try:
        found = record.of_annotations({names.ALLOCATION: data.decode(errors="replace")})
    except MalformedRecordError as error:
        assert names.ALLOCATION in str(error)
        return
    assert found is not None
    assert record.decode(record.encode(found)) == found
    for shares in found.containers.values():
        assert all(0 <= share.memory_mib <= INT32_MAX and 0 <= share.cores <= WHOLE_CORES for share in shares)
    if all(found.containers.values()):
        environment.annotations(found)
