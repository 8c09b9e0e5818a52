"""HAMi's node lock: an annotation of a Node that says whose containers its plugin serves next (hami.md 2.4).

The plugin finds the pod by it, so HAMi cannot do without. What made it HAMi's greatest nuisance is that nobody owns it:
a lock stays for five minutes whatever became of its pod. Here it is owned by a pod's UID in the memory of who took it,
and is judged by what the API server shows of that pod.
"""

from datetime import UTC, datetime
from typing import Final

import msgspec

from allocation.names import HAMI_BIND_PHASE
from scheduler.objects import Pod

EXPIRY_SECONDS: Final = 300
PLUGIN_SECONDS: Final = 2
"""How long a plugin that has said that it served a pod may take to remove the lock."""
_SERVED: Final = ("success", "failed")


class NodeLock(msgspec.Struct, frozen=True):
    """A lock as it stands on a node; an old one of HAMi's names no pod."""

    text: str
    namespace: str = ""
    name: str = ""


def write(pod: Pod, now: datetime) -> str:
    """Answer the lock of `pod`, taken `now`: `<RFC 3339>,<namespace>,<pod>`."""
    return f"{now.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ},{pod.metadata.namespace},{pod.metadata.name}"


def read(text: str) -> NodeLock:
    """Read a lock; what is not of HAMi's present form names no pod."""
    fields = text.split(",")
    return NodeLock(text, *fields[1:]) if len(fields) == len(NodeLock.__struct_fields__) else NodeLock(text)


def is_served(pod: Pod | None, *, node: str) -> bool:
    """Whether the plugin of `node` says that it is done with a pod, and so is about to remove the lock itself."""
    return (
        pod is not None
        and pod.spec.node_name == node
        and not pod.finished
        and pod.metadata.annotations.get(HAMI_BIND_PHASE, "") in _SERVED
    )


def dangling(lock: NodeLock, pod: Pod | None, *, node: str, holder: str, is_ours: bool, age_seconds: float) -> str:
    """Answer why nobody needs `lock` any more, empty where somebody may.

    `pod` is the one that the lock names now, `holder` the UID of the one for which this process took it, empty where it
    did not; `is_ours` says whether only a scheduler of ours binds the pod. HAMi's own scheduler locks before it binds,
    so a lock of another's pod waits for that, or for its end.
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
    return "nobody is binding its pod" if is_ours and not holder else ""
