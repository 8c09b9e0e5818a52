"""A difference ends the comparisons if it lasts, and is not that of a Binding which the informer has not shown yet."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from allocation.names import QUEUE
from allocation.steps import finish
from cluster.errors import UnreachableError
from cluster.informer import Informer
from cluster.resource import PODS
from scheduler.metrics.instruments import Metrics
from scheduler.objects import Pod
from scheduler.state.ledger_comparer import LedgerComparer
from tests.scheduler.support.builders import allocated, pod, state
from tests.scheduler.support.memory_api import MemoryApi
from tests.scheduler.support.scheduling import forget, schedule

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.state.cluster_state import ClusterState


class Compared:
    """A state whose ledger is compared all the time."""

    def __init__(self) -> None:
        self.state: ClusterState = state("n1")
        self.api = MemoryApi()
        self.pods = Informer(
            self.api, PODS, Pod, on_upsert=self.state.set_pod, on_delete=self.state.drop_pod, relist_seconds=3600
        )
        self.metrics = Metrics()
        self.comparisons = 0
        self.before: Callable[[int], object] = lambda _: None
        """Called before each comparison, with its number."""

    def _being_bound(self) -> frozenset[str]:
        self.comparisons += 1
        self.before(self.comparisons)
        return frozenset()

    async def ends(self, *, after: int) -> bool:
        """Return whether the comparisons have ended before there were more than `after`."""
        comparer = LedgerComparer(
            self.api,
            state=self.state,
            pods=self.pods,
            being_bound=self._being_bound,
            metrics=self.metrics,
            seconds=0.0,
            settle_seconds=0.0,
        )
        running = asyncio.create_task(comparer.run())
        async with asyncio.timeout(20):
            while not running.done() and self.comparisons <= after:  # noqa: ASYNC110 -- whatever it does
                await asyncio.sleep(0.001)
        has_ended = running.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return has_ended

    def counted(self, kind: str) -> float:
        """Return the metric of differences of a kind."""
        return (
            self.metrics.registry.get_sample_value("tranche_scheduler_ledger_differences_total", {"kind": kind}) or 0.0
        )


async def test_difference_that_lasts_ends_the_comparisons(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged and counted by its kind; no other kind is."""
    made = Compared()
    made.state.ledger.used[0, 0, 1] = 12_345
    assert await made.ends(after=2)
    assert (made.comparisons, made.counted("card"), made.counted("pod")) == (2, 1, 0)
    (line,) = (each.getMessage() for each in caplog.records if each.levelname == "ERROR")
    assert line.startswith(
        "the ledger differs from a recount: card: card GPU-n1-1 of node n1: its pods hold [0, 0, 0, 0]"
    )
    assert "the ledger has [12345, 0, 0, 0]" in line


async def test_difference_that_only_one_comparison_finds_ends_nothing() -> None:
    """Nor do differences of other objects each time."""
    made = Compared()

    def damage(comparison: int) -> None:
        made.state.ledger.fullness[0] = 7.0 if comparison % 3 == 1 else 0.0
        made.state.quotas.counted._uses.clear()
        if comparison % 3 == 2:
            made.state.quotas.add_pod("uid-gone", "default")
        else:
            made.state.quotas.remove_pod("uid-gone")

    made.before = damage
    assert not await made.ends(after=20)
    assert made.counted("card") == made.counted("quota") == 0


@pytest.mark.parametrize("known", ["bound", "finished", "deleted", "another", "unreadable"])
async def test_pod_that_the_api_server_has_bound_is_in_flight(known: str) -> None:
    """The informer has not shown its node or its end yet; and what cannot be read is not a difference."""
    made = Compared()
    pending = pod("p", memory=100)
    made.pods._set(pending)
    finish(schedule(made.state, pending))
    shown = {"metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": []}}
    match known:
        case "bound":
            made.api.put("pods", {**shown, "spec": {"containers": [], "nodeName": "n1"}})
        case "finished":
            made.api.put("pods", {**shown, "status": {"phase": "Failed"}})
        case "another":
            made.api.put("pods", {**shown, "metadata": {**shown["metadata"], "uid": "new"}})  # type: ignore[dict-item]
        case "unreadable":
            made.api.put("pods", shown)
            made.api.get = _unreachable  # type: ignore[method-assign, assignment]
    assert not await made.ends(after=10)


async def _unreachable(*_: object, **__: object) -> None:
    raise UnreachableError("GET of the pod: no answer")


async def test_cards_that_no_binding_takes_are_a_difference() -> None:
    """A reservation was left, and the API server says that the pod has no node. A Binding that fails returns it."""
    made = Compared()
    pending = pod("p", memory=100)
    made.pods._set(pending)
    made.api.put("pods", {"metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": []}})
    finish(schedule(made.state, pending))
    assert await made.ends(after=2)
    assert made.counted("pod") == 1
    forget(made.state, pending)
    assert not await made.ends(after=10)


@pytest.mark.parametrize("end", ["deleted", "finished"])
async def test_cards_of_a_pod_whose_end_was_not_noticed_are_free_within_the_term(
    end: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged and counted, what other pods hold stays, and the comparisons continue."""
    made = Compared()
    orphan = allocated("gone", node="n1", memory=300, labels={QUEUE: "team"})
    made.state.set_pod(orphan)
    made.pods._set(allocated("stays", node="n1", memory=200, card=1))
    if end == "finished":
        made.pods._objects["default", "gone"] = allocated("gone", node="n1", memory=300, phase="Succeeded")
    assert not await made.ends(after=6)
    assert [each.uid for each in made.state.ledger.reservations()] == ["uid-stays"]
    assert made.state.quotas.counted.owner("uid-gone") is None
    assert "uid-gone" not in made.state.fair_share.use.snapshot()
    assert "uid-gone" not in made.state.running
    assert made.counted("pod") == 1
    assert "the pod with UID uid-gone does not exist or is finished, but holds a share of node n1" in caplog.text


async def test_orphan_beside_another_difference_ends_the_comparisons() -> None:
    """What is wrong otherwise is repaired by a new term only."""
    made = Compared()
    made.state.set_pod(allocated("gone", node="n1", memory=300))
    made.state.ledger.used[0, 0, 1] = 12_345
    assert await made.ends(after=2)


async def test_assumed_pod_that_the_informer_does_not_show_ends_the_comparisons() -> None:
    """kube-scheduler may know it already, so its cards are not given to another pod."""
    made = Compared()
    finish(schedule(made.state, pod("unseen", memory=100)))
    assert await made.ends(after=2)
    assert made.state.ledger.reservation("uid-unseen") is not None
