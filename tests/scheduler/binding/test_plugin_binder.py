"""A Binding to a node that HAMi's plugin serves: one pod at a time, under the node's lock."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, cast

import pytest

from allocation.allocation import Allocation, CardShare
from allocation.names import HAMI_BIND_PHASE, HAMI_BIND_TIME
from allocation.request import ContainerRequest, Kind, PodRequest
from cluster.errors import ApiError
from scheduler.binding import plugin_binder
from scheduler.binding.binder import Result
from scheduler.binding.plugin_binder import PluginBinder
from scheduler.cycle.result import Scheduled
from scheduler.metrics.instruments import Metrics
from scheduler.metrics.labels import Outcome
from tests.scheduler.support.builders import pod

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.binding.binder import Binder
    from scheduler.binding.node_locks import NodeLocks
    from scheduler.objects import Pod
    from scheduler.state.plugin_nodes import PluginNodes

REQUEST = PodRequest((ContainerRequest("main", Kind.REGULAR, "spec.containers[0]", 1, memory_mib=100),))
WAITS = pod("waits", memory=100)


class Parts:
    """The parts of a binder, whose calls are kept in order.

    Attributes:
        calls: the calls.
        outcome: of a Binding.
        lock: whether a lock is taken, or what the attempt raises.
        reopened: set when a node may be tried again.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.outcome = Outcome.BOUND
        self.lock: bool | ApiError = True
        self.reopened = asyncio.Event()

    def made(self) -> PluginBinder:
        """Return the binder; its plugin serves the node `hami` only."""
        return PluginBinder(
            cast("Binder", self),
            locks=cast("NodeLocks", self),
            nodes=cast("PluginNodes", self),
            metrics=Metrics(),
            on_reopened=self.reopened.set,
        )

    async def bind(self, bound: Pod, chosen: Scheduled, *, more: Mapping[str, str] | None = None) -> Result:
        """See Binder."""
        self.calls.append(("bind", bound, chosen.node, (more or {}).get(HAMI_BIND_PHASE)))
        assert abs(int((more or {HAMI_BIND_TIME: time.time()})[HAMI_BIND_TIME]) - time.time()) < 60
        return Result(self.outcome, "note")

    async def take(self, node: str, of: Pod) -> bool:
        """See NodeLocks."""
        self.calls.append(("take", node, of))
        if isinstance(self.lock, ApiError):
            raise self.lock
        return self.lock

    def release(self, node: str, of: Pod) -> None:
        """See NodeLocks."""
        self.calls.append(("release", node, of))

    def is_hami(self, node: str) -> bool:
        """See PluginNodes."""
        return node == "hami"

    def close(self, node: str, reason: str) -> None:
        """See PluginNodes."""
        self.calls.append(("close", node, reason))

    def reopen(self, node: str) -> None:
        """See PluginNodes."""
        self.calls.append(("reopen", node))


def chosen(node: str = "hami", *, has_cards: bool = True) -> Scheduled:
    """Return the scheduling result for a pod with one container."""
    allocation = Allocation(node, {"main": (CardShare(f"GPU-{node}-0", 0, 100, 0),)})
    return Scheduled(node, REQUEST, allocation if has_cards else None, "")


@pytest.mark.parametrize("other", [chosen("n1"), chosen(has_cards=False)])
async def test_only_pods_with_cards_of_the_plugins_nodes_need_the_lock(other: Scheduled) -> None:
    """Others are bound at once, without the handshake."""
    parts = Parts()
    assert await parts.made().bind(WAITS, other) == Result(Outcome.BOUND, "note")
    assert parts.calls == [("bind", WAITS, other.node, None)]


@pytest.mark.parametrize("outcome", [*Outcome])
async def test_the_lock_of_a_pod_that_was_not_bound_is_released(outcome: Outcome) -> None:
    """The plugin frees that of a bound pod once it has served it."""
    parts = Parts()
    parts.outcome = outcome
    assert (await parts.made().bind(WAITS, chosen())).outcome is outcome
    released = [] if outcome is Outcome.BOUND else [("release", "hami", WAITS)]
    assert parts.calls == [("take", "hami", WAITS), ("bind", WAITS, "hami", "allocating"), *released]


async def test_a_pod_is_not_bound_to_a_node_whose_plugin_is_gone() -> None:
    """It was given up while the pod waited for the lock."""
    parts = Parts()
    parts.lock = False
    result = await parts.made().bind(WAITS, chosen())
    assert result == Result(Outcome.REFUSED, "HAMi's device plugin of node hami is gone")
    assert parts.calls == [("take", "hami", WAITS)]


async def test_a_node_that_cannot_be_locked_is_closed_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason names the remedy; others may fit the pod, and afterwards this one again."""
    monkeypatch.setattr(plugin_binder, "_CLOSED_SECONDS", 0.01)
    parts = Parts()
    parts.lock = ApiError(request="PATCH", status=403, reason="Forbidden", message="not today")
    result = await parts.made().bind(WAITS, chosen())
    assert result.outcome is Outcome.REFUSED
    assert "node hami cannot be locked" in result.note
    assert "not today" in result.note
    assert "manifests/hami-nodes" in result.note
    assert parts.calls == [("take", "hami", WAITS), ("close", "hami", result.note)]
    await asyncio.wait_for(parts.reopened.wait(), 5)
    assert parts.calls[2:] == [("reopen", "hami")]
