"""A term is built by the settings of the process."""

import pytest

from allocation.settings import AllocationSettings
from cluster.events import Recorder
from scheduler.metrics.instruments import Metrics
from scheduler.settings import NETWORK_LEVELS, SchedulerSettings
from scheduler.term_builder import build_term
from tests.scheduler.support.extending import TOKEN, Bindings


@pytest.mark.parametrize("settings", [SchedulerSettings(), SchedulerSettings(network_levels=("zone", "rack"))])
def test_network_blocks_are_those_of_the_configured_levels(settings: SchedulerSettings) -> None:
    """The defaults, or the labels of the settings."""
    api = Bindings()
    term = build_term(
        api=api,
        token=TOKEN,
        settings=settings,
        allocation=AllocationSettings(),
        recorder=Recorder(api, component="test", instance="test"),
        metrics=Metrics(),
        is_trusted=lambda: True,
    )
    levels = term.state.node_cache.network.levels
    assert levels == settings.network_levels
    assert levels in (NETWORK_LEVELS, ("zone", "rack"))
