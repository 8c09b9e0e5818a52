"""The scheduler's state, put together by one look at what the API server shows: no scheduler is asked."""

import time
from typing import TYPE_CHECKING

import msgspec

from allocation.names import SCHEDULER_NAME, SYSTEM_NAMESPACE
from allocation.settings import AllocationSettings
from cli.agents import unix
from cli.errors import CommandError
from cli.objects import LIVE
from cli.session import Session
from cluster.errors import NotFoundError
from cluster.gpu_node_status import GpuNodeStatus
from cluster.resource import GPU_NODE_STATUSES, LEASES, NAMESPACES, NODES, PODS, RESOURCE_QUOTAS
from cluster.resource_quota import ResourceQuota
from scheduler.heartbeats import GRACE_SECONDS, Lease
from scheduler.objects import Namespace, Node, Pod
from scheduler.queue import Queue
from scheduler.state import State
from webhook.settings import WebhookSettings

if TYPE_CHECKING:
    from cluster.configuration import Configuration


class Rules(msgspec.Struct, frozen=True):
    """What the processes go by: their configuration file, else its defaults."""

    allocation: AllocationSettings = AllocationSettings()
    webhook: WebhookSettings = WebhookSettings()
    names: tuple[str, ...] = (SCHEDULER_NAME,)
    extender: bool = False


def rules(path: str, *, prog: str) -> Rules:
    """Read the configuration file at `path`, if there is one; ends the process where it is wrong (2)."""
    if not path:
        return Rules()
    from cluster import configuration  # noqa: PLC0415 -- most people have no such file at hand, and it takes its time
    from scheduler.settings import SchedulerSettings  # noqa: PLC0415 -- the same

    told: Configuration[SchedulerSettings] = configuration.load(
        ["--config", path],
        section="scheduler",
        settings=SchedulerSettings,
        others={"webhook": WebhookSettings},
        prog=prog,
        description="",
    )
    return Rules(told.allocation, told.others["webhook"], (SCHEDULER_NAME, *told.own.aliases), told.own.extender)


class _Clock:
    """Shows the moments at which a scheduler that has always been there would have seen things."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def look(session: Session, rules: Rules) -> State:
    """Read what there is and answer the state of a scheduler that had always been there.

    Raises:
        CommandError: something may not be read, or Tranche is not installed.
    """
    client, clock = session.client, _Clock()
    try:
        statuses = client.list(GPU_NODE_STATUSES, GpuNodeStatus)
    except NotFoundError:
        raise CommandError(
            f"this cluster knows no {GPU_NODE_STATUSES.plural}: Tranche is not installed here; apply manifests/base, "
            "or choose another --context"
        ) from None
    state = State(
        settings=rules.allocation,
        queue=Queue(clock=clock, first_backoff=1.0, longest_backoff=1.0),
        clock=clock,
        names=rules.names,
        has_queue=not rules.extender,
    )
    now = time.time() + client.clock_ahead
    # Who looks once compares clocks: the agents', which wrote when they renewed, with the API server's.
    for lease in client.list(LEASES, Lease, namespace=SYSTEM_NAMESPACE):
        clock.now = min(unix(lease.spec.renew_time), now)
        state.set_lease(lease)
    clock.now = now - GRACE_SECONDS - 1  # whoever should have given a sign of life by now has had the time for it
    for namespace in client.list(NAMESPACES, Namespace):
        state.set_namespace(namespace)
    for quota in client.list(RESOURCE_QUOTAS, ResourceQuota):
        state.set_quota(quota)
    for node in client.list(NODES, Node):
        state.set_node(node)
    for status in statuses:
        state.set_status(status)
    clock.now = now
    for pod in client.list(PODS, Pod, field_selector=LIVE):
        state.set_pod(pod)
    return state
