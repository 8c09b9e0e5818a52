"""The one write by which a running pod gets another size, and those by which the old size ends."""

from collections.abc import Sequence
from typing import Any, Final

from allocation import names
from allocation.wire import environment, resize_record
from allocation.wire.resize_record import Resized
from scheduler.fenced_api import with_token
from scheduler.resize.evaluation import Resize
from scheduler.resize.live_pod import LivePod

_TOLERATION: Final = {"key": names.RESIZED, "operator": "Exists", "effect": "NoExecute"}
"""A toleration of a taint that no node has. Of a toleration that a pod has the API server lets only the seconds change:
these are a counter here, because a pod's generation grows with its spec, and with nothing else."""
_SECONDS: Final = "tolerationSeconds"
_MOST: Final = 1_000_000


def resize(pod: LivePod, change: Resize, *, token: str) -> dict[str, Any]:
    """Return the merge patch that gives a pod another size."""
    generation = pod.metadata.generation + 1 if pod.metadata.generation else 0
    before = change.before
    record = Resized(resize_record.before(before), generation, limits=resize_record.limits_before(before))
    body: dict[str, Any] = {
        "metadata": {
            "annotations": {
                **environment.resize_annotations(change.after, change.request),
                names.RESIZED: resize_record.encode_resized(record),
            }
        }
    }
    if generation:
        body["spec"] = {"tolerations": _counted(pod.spec.tolerations)}
    return with_token(body, token)


def progress(resized: Resized | None, *, token: str) -> dict[str, Any]:
    """Return the merge patch that notes which containers have the old size; with None, that no container has."""
    text = resize_record.encode_resized(resized) if resized is not None else None
    return with_token({"metadata": {"annotations": {names.RESIZED: text}}}, token)


def _counted(tolerations: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return tolerations whose counter is one higher."""
    others = [each for each in tolerations if {**each, _SECONDS: 0} != {**_TOLERATION, _SECONDS: 0}]
    counts = [each.get(_SECONDS) or 0 for each in tolerations if each not in others]
    return [*others, {**_TOLERATION, _SECONDS: max(counts, default=0) % _MOST + 1}]
