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
        phase = pod.metadata.annotations.get(HAMI_BIND_PHASE, "")
        return f"its pod was served: {phase}" if phase in _SERVED else ""
    if pod.spec.node_name:
        return f"its pod runs on node {pod.spec.node_name}"
    return "nobody is binding its pod" if is_ours and not holder else ""
