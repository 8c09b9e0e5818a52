"""Watch events: each changes the scheduler's state or is rejected; then pods are scheduled, and the ledger is checked.

Each line is an event of any kind of object that the scheduler watches. Objects that an API server rejects are skipped
(`fuzz.validity`).
"""

import json
from contextlib import suppress
from typing import Any

import msgspec

from allocation import names
from allocation.steps import finish
from cluster import informer, resource
from cluster.api import Api
from fuzz import world
from fuzz.validity import is_valid
from scheduler.api import explanation
from scheduler.api.evictions import Evictions
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.result import Scheduled
from scheduler.informers import Informers
from scheduler.objects import Pod
from scheduler.preemption.disruption_budgets import DisruptionBudgets
from scheduler.state import comparison, kinds

_MOST_LINES = 24
_NOWHERE = Api.__new__(Api)


class _Caches:
    """The informers of a leader term, fed with lines instead of a connection."""

    def __init__(self) -> None:
        self.state = state = world.state()
        self.cycle = SchedulingCycle(self.state)
        budgets = DisruptionBudgets()
        self.chooser = world.chooser(state, budgets)
        self._owners: dict[str, tuple[str, str]] = {}
        self._given: dict[str, tuple[Any, ...]] = {}
        watched = kinds.needed(
            has_storage=True, has_bindings=True, has_foreign_drivers=True, has_pod_groups=True, with_images=True
        )
        informers = Informers(_NOWHERE, watched, preempts=True, relist_seconds=0.0)
        informers.feed_state(state)
        informers.feed_budgets(budgets)
        self.pods = informers.pods
        resources = (resource.POD_DISRUPTION_BUDGETS, *(each.resource for each in watched))
        by_plural = {each.plural: each for each in informers}
        self._by_kind = {each.kind: by_plural[each.plural] for each in resources}

    def take(self, line: bytes) -> None:
        """Feed a line to the informer of its kind; a line without an object goes to the informer of pods."""
        content = _object(line)
        if content is not None and not (is_valid(content) and self._is_itself(content)):
            return
        kind = str(content.get("kind")) if content is not None else ""
        with suppress(*informer.SURVIVED):
            self._by_kind.get(kind, self.pods)._apply(line)

    def _is_itself(self, content: dict[str, Any]) -> bool:
        """Return whether the immutable parts are unchanged: the owner of a UID, and the allocation of a bound pod."""
        metadata, spec = content["metadata"], content.get("spec")
        uid, owner = metadata["uid"], (str(metadata.get("namespace")), metadata["name"])
        given = _given(metadata, spec) if isinstance(spec, dict) else ()
        if self._owners.setdefault(uid, owner) != owner or self._given.get(uid, given) != given:
            return False
        if isinstance(spec, dict) and spec.get("nodeName"):
            self._given[uid] = given
        return True


def _given(metadata: dict[str, Any], spec: dict[str, Any]) -> tuple[Any, ...]:
    """Return the parts of a bound pod that the API server lets only HAMi's device plugin change."""
    annotations = metadata.get("annotations")
    present = annotations if isinstance(annotations, dict) else {}
    kept = {key: value for key, value in present.items() if names.is_output_key(key) and key != names.HAMI_MIG}
    return spec.get("nodeName"), spec.get("containers"), spec.get("initContainers"), kept


def _object(line: bytes) -> dict[str, Any] | None:
    """Return the object of an event, an empty one if it is not a JSON object, or None if the line has none."""
    try:
        event = json.loads(line.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or event.get("type") in ("ERROR", "BOOKMARK"):
        return None
    content = event.get("object")
    return content if isinstance(content, dict) else {}


def try_bytes(data: bytes) -> None:
    """Feed the lines of `data`, then schedule and explain pods."""
    caches = _Caches()
    for line in data.split(b"\n")[:_MOST_LINES]:
        if line:
            caches.take(line)
    state, cycle = caches.state, caches.cycle
    being_bound: set[str] = set()
    for entry in state.queue:
        _explain(caches, entry.pod)
        if state.ledger.reservation(entry.pod.uid) is None and isinstance(finish(cycle.schedule(entry.pod)), Scheduled):
            being_bound.add(entry.pod.uid)
            _explain(caches, entry.pod)
    for pod in caches.pods:
        _explain(caches, pod)
    differences = finish(comparison.differences(state, caches.pods, being_bound=frozenset(being_bound)))
    assert not differences, differences


def _explain(caches: _Caches, pod: Pod) -> None:
    msgspec.json.encode(finish(explanation.explain(caches.cycle, pod, evictions=Evictions(caches.chooser))))
