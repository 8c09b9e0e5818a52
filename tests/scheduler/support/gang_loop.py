"""The loop of a scheduler that binds by a binder of a test, with everything that it needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from cluster.events import Recorder
from scheduler.binding.binding_cycle import BindingCycle
from scheduler.binding.failure_handler import FailureHandler
from scheduler.gang_scheduling.gang_scheduler import GangScheduler
from scheduler.loop import Loop
from scheduler.metrics.instruments import Metrics
from scheduler.settings import GangSettings
from tests.scheduler.support import leasing
from tests.scheduler.support.fencing import fenced

if TYPE_CHECKING:
    from cluster.api import Api
    from scheduler.binding.plugin_binder import PluginBinder
    from scheduler.binding.volume_binder import VolumeBinder
    from scheduler.cycle.cycle import SchedulingCycle
    from scheduler.state.cluster_state import ClusterState

NOTHING = cast("Api", None)


def loop_of(
    made: ClusterState,
    cycle: SchedulingCycle,
    binder: object,
    *,
    volumes: object = None,
    concurrent_binds: int = 1,
    is_trusted: Callable[[], bool] = lambda: True,
    recorder: Recorder | None = None,
) -> Loop:
    """Return a loop that schedules the pods of a state and binds them by `binder`, after `volumes`."""
    recorder = recorder or Recorder(NOTHING, component="test", instance="test")
    metrics = Metrics()
    failures = FailureHandler(fenced(NOTHING), queue=made.queue, cycle=cycle, recorder=recorder, metrics=metrics)
    binding_cycle = BindingCycle(
        binder=cast("PluginBinder", binder),
        leases=leasing.keeper(NOTHING, made),
        volumes=cast("VolumeBinder | None", volumes),
        failures=failures,
        recorder=recorder,
        metrics=metrics,
    )
    gangs = GangScheduler(
        cycle,
        binding_cycle=binding_cycle,
        failures=failures,
        recorder=recorder,
        metrics=metrics,
        settings=GangSettings(),
        concurrent_binds=concurrent_binds,
        is_trusted=is_trusted,
    )
    return Loop(
        queue=made.queue,
        cycle=cycle,
        binding_cycle=binding_cycle,
        gangs=gangs,
        failures=failures,
        metrics=metrics,
        concurrent_binds=concurrent_binds,
        is_trusted=is_trusted,
    )
