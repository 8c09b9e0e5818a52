"""Lines of a watch: each changes what the scheduler knows, or is refused; what waits is decided, and the books agree.

A line is a watch event of any kind that the scheduler follows; which, its object says. An object that no API server
lets through is left out (`fuzz.validity`).
"""

import json
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from allocation import names
from cluster import reflector, resource
from cluster.api import Api
from cluster.gpu_node_status import GpuNodeStatus
from cluster.reflector import Reflector
from cluster.resource import Resource
from cluster.resource_quota import ResourceQuota
from fuzz import world
from fuzz.validity import is_valid
from scheduler import cycle, explanation, recount
from scheduler.cycle import Chosen
from scheduler.heartbeats import Lease
from scheduler.objects import Namespace, Node, Pod

_MOST_LINES = 24
_NOWHERE = Api.__new__(Api)

T = TypeVar("T")


class _Caches:
    """The caches of a term, filled by lines instead of a connection."""

    def __init__(self) -> None:
        self.state = state = world.state()
        self.pods = Reflector(_NOWHERE, resource.PODS, Pod, on_set=state.set_pod, on_delete=state.drop_pod)
        self._owners: dict[str, tuple[str, str]] = {}
        self._given: dict[str, tuple[Any, ...]] = {}

        def cache(what: Resource, kind: type[Any], on_set: Any, on_delete: Any) -> Reflector[Any]:
            return Reflector(_NOWHERE, what, kind, on_set=on_set, on_delete=on_delete)

        self._by_kind = {
            "Pod": self.pods,
            "Node": cache(resource.NODES, Node, state.set_node, state.drop_node),
            "GpuNodeStatus": cache(resource.GPU_NODE_STATUSES, GpuNodeStatus, state.set_status, state.drop_status),
            "Lease": cache(resource.LEASES, Lease, state.set_lease, state.drop_lease),
            "Namespace": cache(resource.NAMESPACES, Namespace, state.set_namespace, state.drop_namespace),
            "ResourceQuota": cache(resource.RESOURCE_QUOTAS, ResourceQuota, state.set_quota, state.drop_quota),
        }

    def take(self, line: bytes) -> None:
        """Take a line as the watch of its kind would; what is no object is everybody's."""
        content = _object(line)
        if content is not None and not (is_valid(content) and self._is_itself(content)):
            return
        kind = str(content.get("kind")) if content is not None else ""
        with suppress(*reflector.SURVIVED):
            self._by_kind.get(kind, self.pods)._take(line)

    def _is_itself(self, content: dict[str, Any]) -> bool:
        """Whether nothing changed that never does: who has a UID, and, once a pod has a node, what it was given."""
        metadata, spec = content["metadata"], content.get("spec")
        uid, owner = metadata["uid"], (str(metadata.get("namespace")), metadata["name"])
        given = _given(metadata, spec) if isinstance(spec, dict) else ()
        if self._owners.setdefault(uid, owner) != owner or self._given.get(uid, given) != given:
            return False
        if isinstance(spec, dict) and spec.get("nodeName"):
            self._given[uid] = given
        return True


def _given(metadata: dict[str, Any], spec: dict[str, Any]) -> tuple[Any, ...]:
    """Answer what of a pod with a node the API server lets nobody change, HAMi's plugin apart."""
    annotations = metadata.get("annotations")
    ours = annotations if isinstance(annotations, dict) else {}
    kept = {key: value for key, value in ours.items() if names.is_output_key(key) and key != names.HAMI_MIG}
    return spec.get("nodeName"), spec.get("containers"), spec.get("initContainers"), kept


def _object(line: bytes) -> dict[str, Any] | None:
    """Answer the object of an event that brings one, None of anything else; of what is no object, an empty one."""
    try:
        event = json.loads(line.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or event.get("type") in ("ERROR", "BOOKMARK"):
        return None
    content = event.get("object")
    return content if isinstance(content, dict) else {}


def try_bytes(data: bytes) -> None:
    """Take `data` as lines, then decide and explain."""
    caches = _Caches()
    for line in data.split(b"\n")[:_MOST_LINES]:
        if line:
            caches.take(line)
    state = caches.state
    for entry in state.queue:
        _explain(caches, entry.pod)
        if state.ledger.holding(entry.pod.uid) is None and isinstance(cycle.decide(state, entry.pod), Chosen):
            _explain(caches, entry.pod)
    for pod in caches.pods:
        _explain(caches, pod)
    found = _run(_divergences(caches))
    assert not found, found


def _explain(caches: _Caches, pod: Pod) -> None:
    msgspec.json.encode(explanation.explain(caches.state, pod))


async def _divergences(caches: _Caches) -> list[str]:
    return [text async for text in recount.divergences(caches.state, caches.pods)]


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end what only ever yields to others."""
    while True:
        try:
            work.send(None)
        except StopIteration as done:
            answer: T = done.value
            return answer
