"""A term is built by the settings of the process."""

import pytest

from allocation.settings import AllocationSettings
from cluster.events import Recorder
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.metrics.instruments import Metrics
from scheduler.queue.entry import Rejected
from scheduler.queue.queueing_hints import ClusterEvent
from scheduler.settings import NETWORK_LEVELS, SchedulerSettings
from scheduler.term import LeaderTerm
from scheduler.term_builder import build_term
from tests.scheduler.support.builders import pod
from tests.scheduler.support.extending import TOKEN, Bindings


def built(settings: SchedulerSettings) -> LeaderTerm:
    """Return a term without a cluster."""
    api = Bindings()
    return build_term(
        api=api,
        token=TOKEN,
        settings=settings,
        allocation=AllocationSettings(),
        recorder=Recorder(api, component="test", instance="test"),
        metrics=Metrics(),
        is_trusted=lambda: True,
    )


@pytest.mark.parametrize("settings", [SchedulerSettings(), SchedulerSettings(network_levels=("zone", "rack"))])
def test_network_blocks_are_those_of_the_configured_levels(settings: SchedulerSettings) -> None:
    """The defaults, or the labels of the settings."""
    levels = built(settings).state.node_cache.network.levels
    assert levels == settings.network_levels
    assert levels in (NETWORK_LEVELS, ("zone", "rack"))


def test_the_queue_tries_no_kind_of_which_the_cycle_knows_that_it_fits_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event that may help such pods costs no decision."""
    monkeypatch.setattr(SchedulingCycle, "may_fit", lambda _self, kind: kind != "full")
    queue = built(SchedulerSettings()).state.queue
    for kind in ("full", "free"):
        queue.add(pod(kind))
        entry = queue.pop_due()
        assert entry is not None
        queue.add_unschedulable(entry, Rejected("full", frozenset({"CardInsufficientMemory"}), kind=kind))
    queue.notify(ClusterEvent.POD_REMOVED)
    entry = queue.pop_due()
    assert entry is not None
    assert entry.pod.metadata.name == "free"
    assert queue.pop_due() is None
