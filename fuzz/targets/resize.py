"""The annotations of a resize: what users write is refused or read, and a new size never charges less than an old one.

The first line is the wish, the second the allocation, and the third the record of an earlier resize.
"""

from allocation import names
from allocation.allocation import charges
from allocation.errors import AllocationError
from allocation.request import PodRequest
from allocation.wire import environment, record, resize_record
from allocation.wire.resize_record import Resized


def try_bytes(data: bytes) -> None:
    """Read the lines of `data` as a pod's annotations, and carry out the wish."""
    wished, allocated, resized, *_ = [*data.decode(errors="replace").split("\n"), "", "", ""]
    try:
        wish = resize_record.decode_wish(wished)
        assert resize_record.decode_wish(resize_record.encode_wish(wish)) == wish
        before = record.decode(allocated)
        after = resize_record.wished(before, wish, memory_factor=1)
        found = resize_record.resized_of({names.RESIZED: resized}) if resized else None
        usable = before if found is None else resize_record.usable(before, found)
    except AllocationError as error:
        assert str(error)
        return
    assert record.decode(record.encode(after)) == after
    written = Resized(resize_record.before(usable), 1, {"main": "id"})
    assert resize_record.resized_of({names.RESIZED: resize_record.encode_resized(written)}) == written
    most = {each.uuid: each for each in charges(resize_record.usable(after, written), PodRequest(()))}
    for size in (after, before, usable):
        for charge in charges(size, PodRequest(())):
            assert charge.memory_mib <= most[charge.uuid].memory_mib
            assert charge.cores <= most[charge.uuid].cores
    environment.resize_annotations(after, PodRequest(()))
