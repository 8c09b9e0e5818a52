"""How far a resize is: which containers may still use what they had before.

A container has the size that its annotations had when the kubelet made it. The kubelet acts by the pod that it has
seen, which may be an old one while it is cut off from the API server; no time is long enough to be sure. So two things
have to be seen. First, the generation that the kubelet reports with the status is that of the new size: from then on
it makes containers with the new size. The containers of that status may have the old one, and are noted. Then each of
these is replaced by another one.
"""

from collections.abc import Mapping

import msgspec

from allocation.allocation import Allocation
from allocation.wire import resize_record
from allocation.wire.resize_record import Resized
from scheduler.resize.live_pod import LivePod


def progressed(resized: Resized, allocation: Allocation, pod: LivePod) -> Resized | None:
    """Return what is to be written of a resize of `pod`: the same if nothing is, None if no container has the old size.

    Without a generation, as before Kubernetes 1.34, nothing can be concluded before the pod ends.
    """
    if not resized.generation or pod.status.observed_generation < resized.generation:
        return resized
    ids = pod.container_ids()
    noted = _resized_containers(resized, allocation, ids) if resized.containers is None else resized.containers
    ended = {each.name for each in pod.status.init_container_statuses} - ids.keys()
    old = {name: id_ for name, id_ in noted.items() if name not in ended and ids.get(name, id_) == id_}
    return msgspec.structs.replace(resized, containers=old) if old else None


def _resized_containers(resized: Resized, allocation: Allocation, ids: Mapping[str, str]) -> dict[str, str]:
    """Return the ID of each container whose size has changed, if it was started."""
    now, limits = resize_record.before(allocation), resize_record.limits_before(allocation)
    none = {name: [(0, 0)] * len(sizes) for name, sizes in now.items()}
    old_limits, new_limits = resized.limits or none, limits or none
    return {
        name: ids[name]
        for name, size in resized.before.items()
        if name in ids and (size != now[name] or old_limits.get(name) != new_limits.get(name))
    }
