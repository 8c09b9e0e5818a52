"""All quotas, as `GET /api/quotas` returns them: what is used of each limit, and what is left."""

from typing import Any, cast

import msgspec

from cluster.resource_quota import ResourceQuota
from scheduler.api.queries import Queries
from scheduler.api.quota_types import LimitView, QuotasView, QuotaView, SingleView
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.builders import allocated, state
from tests.scheduler.support.preempting import evictions_of
from tests.scheduler.support.quotas import gpu_quota

MEMORY, CARDS = "nvidia.com/gpumem", "nvidia.com/gpu"


def resource_quota(name: str, namespace: str, **hard: str) -> ResourceQuota:
    """Return a ResourceQuota; `gpu` and `gpumem` stand for their `limits.` keys."""
    keys = {f"limits.nvidia.com/{key}" if key.startswith("gpu") else key: value for key, value in hard.items()}
    return msgspec.convert({"metadata": {"name": name, "namespace": namespace}, "spec": {"hard": keys}}, ResourceQuota)


def view(made: ClusterState) -> QuotasView:
    """Return the quotas of a state."""
    return Queries(SchedulingCycle(made), evictions_of(made), pods=cast("Any", None)).quotas()


def site() -> ClusterState:
    """Return two namespaces with quotas, in one of which a pod holds 960 MiB of a card."""
    made = state("n1")
    total = {"limits": {MEMORY: 1000, CARDS: 4}, "maxPods": 5}
    single = {"limits": {MEMORY: 970}, "maxCards": 2, "defaults": {MEMORY: 100}}
    made.limits.set_gpu_quota(gpu_quota("team", namespace="b", total=total, single=single))
    made.limits.set_gpu_quota(gpu_quota("own", namespace="a"))
    made.limits.set_quota(resource_quota("compute", "b", gpumem="1920", cpu="5"))
    made.limits.set_quota(resource_quota("objects", "b", pods="5"))
    made.set_pod(allocated("p", node="n1", memory=960, namespace="b"))
    return made


def test_a_quota_has_what_is_used_and_left_of_each_limit() -> None:
    """And what one pod may have."""
    assert view(site()).quotas[1] == QuotaView(
        kind="GpuQuota",
        namespace="b",
        name="team",
        pods=1,
        limits=(
            LimitView(CARDS, 1, 4, "75.00"),
            LimitView(MEMORY, 960, 1000, "4.00", nearly_full=True),
            LimitView("pods", 1, 5, "80.00"),
        ),
        fullest=MEMORY,
        alert_threshold_percent=95,
        single=SingleView({MEMORY: 970}, 2, {MEMORY: 100}),
    )


def test_resource_quotas_that_limit_gpus_are_shown_too() -> None:
    """They hold as well; those that do not are none of this."""
    shown = view(site()).quotas
    assert [(each.namespace, each.kind, each.name) for each in shown] == [
        ("a", "GpuQuota", "own"),
        ("b", "GpuQuota", "team"),
        ("b", "ResourceQuota", "compute"),
    ]
    assert shown[2].limits == (LimitView(MEMORY, 960, 1920, "50.00"),)
    assert (shown[2].alert_threshold_percent, shown[2].single) == (None, None)


def test_a_quota_without_limits_is_shown() -> None:
    """It is there, and limits nothing."""
    assert (view(site()).quotas[0].limits, view(site()).quotas[0].fullest) == ((), "")
