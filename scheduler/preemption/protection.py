"""Until when a pod may not be preempted: by its own annotation, and by the minimal run time of its GpuQueue."""

from datetime import datetime
from functools import lru_cache

from allocation import duration
from allocation.errors import AllocationError
from allocation.names import PREEMPTION_PROTECTION
from scheduler.objects import Pod


def protected_until(pod: Pod, *, min_runtime_seconds: int, longest_protection_seconds: float) -> float | None:
    """Return until when, in Unix seconds, a pod is protected from preemption, or None if nothing protects it.

    Its annotation counts from its creation and for no longer than `longest_protection_seconds`; an unreadable one does
    not protect it. The `min_runtime_seconds` of its queue count from its start, or from its creation until its node has
    started it. At the returned time the pod is not protected any more.
    """
    text = pod.metadata.annotations.get(PREEMPTION_PROTECTION)
    if text is None and not min_runtime_seconds:
        return None
    created = pod.metadata.creation_timestamp
    ends = []
    if text is not None and created and (protected := _seconds(text)):
        ends.append(unix_seconds(created) + min(protected, longest_protection_seconds))
    if min_runtime_seconds and (started := pod.status.start_time or created):
        ends.append(unix_seconds(started) + min_runtime_seconds)
    return max(ends, default=None)


@lru_cache(maxsize=1024)
def _seconds(text: str) -> float:
    try:
        return duration.seconds(text)
    except AllocationError:
        return 0.0


def unix_seconds(timestamp: str) -> float:
    """Return the Unix seconds of a timestamp of Kubernetes."""
    return datetime.fromisoformat(timestamp).timestamp()
