"""An API server in memory that shows each change to a scheduler's state at once, as its informers would."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.state import kinds
from tests.scheduler.support.memory_api import MemoryApi

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.state.cluster_state import ClusterState

Object = dict[str, Any]


class LiveApi(MemoryApi):
    """The API server.

    Attributes:
        state: the state of the scheduler, which knows every object.
    """

    def __init__(self, make_state: Callable[[], ClusterState]) -> None:
        super().__init__()
        self._make_state = make_state
        self._uids = itertools.count(1)
        self._shown: dict[tuple[str, str, str], Any] = {}
        self._kinds = {
            each.resource.plural: each
            for each in kinds.needed(
                has_storage=True, has_bindings=True, has_foreign_drivers=False, has_pod_groups=False, with_images=False
            )
        }
        self.state = make_state()

    def put(self, plural: str, content: Object) -> Object:
        """See MemoryApi; an object that is created again has another UID."""
        metadata = content["metadata"]
        old = self._objects.get((plural, metadata.get("namespace", ""), metadata["name"]))
        uid = old["metadata"]["uid"] if old is not None else f"uid-{metadata['name']}-{next(self._uids)}"
        return super().put(plural, {**content, "metadata": {"uid": uid, **metadata}})

    def shown(self, plural: str, name: str, namespace: str = "") -> Any:
        """Return an object as the scheduler was shown it."""
        return self._shown[plural, namespace, name]

    def restarted(self) -> ClusterState:
        """Return the state of a new term, which reads the same objects and holds what this one holds."""
        fresh = self._make_state()
        for plural, kind in self._kinds.items():
            on_upsert, _ = kind.handlers(fresh)
            for each in self.all(plural):
                on_upsert(_decoded(each, kind.decoded), None)
        for hold in self.state.holds:
            waiting = self.state.queue.pod(hold.uid)
            assert waiting is not None, f"{hold} is for no pod that waits"
            fresh.holds.add(hold, waiting)
        return fresh

    def _show(self, plural: str, event: str, content: Object) -> None:
        super()._show(plural, event, content)
        kind = self._kinds.get(plural)
        if kind is None:
            return
        on_upsert, on_delete = kind.handlers(self.state)
        metadata, shown = content["metadata"], _decoded(content, kind.decoded)
        key = (plural, metadata.get("namespace", ""), metadata["name"])
        old = self._shown.pop(key, None)
        if event == "DELETED":
            on_delete(shown)
        else:
            self._shown[key] = shown
            on_upsert(shown, old)


def _decoded(content: Object, kind: type[Any]) -> Any:
    return msgspec.json.decode(msgspec.json.encode(content), type=kind)
