"""HAMi's node lock: a Node annotation with the pod whose containers the device plugin serves next (docs/hami.md).

The plugin finds the pod by this lock, so it is required. In HAMi a lock has no owner: it stays for five minutes
whatever became of its pod. Here the process that takes a lock remembers the UID of its pod, and frees the lock
according to the state of that pod in the API server.
"""

from datetime import UTC, datetime
from typing import Final

import msgspec

from allocation.names import HAMI_BIND_PHASE
from scheduler.objects import Pod

EXPIRY_SECONDS: Final = 300
PLUGIN_SECONDS: Final = 2
"""How long a plugin may take to remove the lock after it has reported the pod as served."""
_SERVED: Final = ("success", "failed")


class NodeLock(msgspec.Struct, frozen=True):
    """A lock as written on a node; locks of older HAMi releases name no pod."""

    text: str
    namespace: str = ""
    name: str = ""


def write(pod: Pod, now: datetime) -> str:
    """Return the lock of `pod`, taken `now`: `<RFC 3339>,<namespace>,<pod>`."""
    return f"{now.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ},{pod.metadata.namespace},{pod.metadata.name}"


def read(text: str) -> NodeLock:
    """Read a lock; one that is not in HAMi's current format names no pod."""
    fields = text.split(",")
    return NodeLock(text, *fields[1:]) if len(fields) == len(NodeLock.__struct_fields__) else NodeLock(text)


def is_served(pod: Pod | None, *, node: str) -> bool:
    """Whether the plugin of `node` reports a pod as served, so that it is about to remove the lock itself."""
    return (
        pod is not None
        and pod.spec.node_name == node
        and not pod.finished
        and pod.metadata.annotations.get(HAMI_BIND_PHASE, "") in _SERVED
    )


def dangling(lock: NodeLock, pod: Pod | None, *, node: str, holder: str, is_ours: bool, age_seconds: float) -> str:
    """Return the reason why `lock` is not needed any more, or an empty string if it may be.

    `pod` is the pod that the lock names now. `holder` is the UID of the pod for which this process took the lock, empty
    if it did not. `is_ours` says whether only this scheduler binds the pod. HAMi's own scheduler locks before it binds,
    so the lock of a pod of another scheduler stays until that pod is bound or gone.
    """
    if age_seconds >= EXPIRY_SECONDS:
        return f"it has been there for {EXPIRY_SECONDS} s"
    if not lock.name:
        return ""
    if pod is None:
        return "its pod is gone"
    if holder and pod.uid != holder:
        return "its pod is another one of the same name"
    if pod.finished:
        return "its pod has finished"
    if pod.spec.node_name == node:
        return "its pod was served" if is_served(pod, node=node) else ""
    if pod.spec.node_name:
        return f"its pod runs on node {pod.spec.node_name}"
    return "its pod is not being bound" if is_ours and not holder else ""
