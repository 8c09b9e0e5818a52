"""The annotations of a resize: what users write is refused or read, and a new size never charges less than an old one.

The first line is the wish, or the limits of a pod. The second is the allocation, the third the record of an earlier
resize.
"""

from typing import Final

from allocation import burst, names
from allocation.allocation import charges
from allocation.errors import AllocationError
from allocation.request import ContainerRequest, Kind, PodRequest
from allocation.settings import AllocationSettings
from allocation.wire import environment, record, resize_record
from allocation.wire.resize_record import Resized

_SETTINGS: Final = AllocationSettings(memory_bursting=True)
_MAIN: Final = ContainerRequest("main", Kind.REGULAR, "", 2, memory_mib=3000, cores=300)


def try_bytes(data: bytes) -> None:
    """Read the lines of `data` as a pod's annotations, and carry out the wish."""
    wished, allocated, resized, *_ = [*data.decode(errors="replace").split("\n"), "", "", ""]
    try:
        limited = burst.limited(PodRequest((_MAIN,)), {names.LIMITS: wished}, _SETTINGS)
        assert burst.of_request(limited).memory_mib >= 0
        assert burst.of_request(limited).cores >= 0
    except AllocationError as error:
        assert str(error)
    try:
        wish = resize_record.decode_wish(wished)
        assert resize_record.decode_wish(resize_record.encode_wish(wish)) == wish
        before = record.decode(allocated)
        after = resize_record.wished(before, wish, _SETTINGS)
        found = resize_record.resized_of({names.RESIZED: resized}) if resized else None
        usable = before if found is None else resize_record.usable(before, found)
    except AllocationError as error:
        assert str(error)
        return
    assert record.decode(record.encode(after)) == after
    written = Resized(resize_record.before(usable), 1, {"main": "id"}, resize_record.limits_before(usable))
    assert resize_record.resized_of({names.RESIZED: resize_record.encode_resized(written)}) == written
    most = {each.uuid: each for each in charges(resize_record.usable(after, written), PodRequest(()))}
    for size in (after, before, usable):
        for charge in charges(size, PodRequest(())):
            assert charge.memory_mib <= most[charge.uuid].memory_mib
            assert charge.cores <= most[charge.uuid].cores
            assert charge.cores + charge.burst_cores <= most[charge.uuid].cores + most[charge.uuid].burst_cores
    environment.resize_annotations(after, PodRequest(()))
