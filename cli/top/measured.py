"""`kubectl gpu top --usage`: what each container has reserved of a card, and what it really uses of it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from allocation.allocation import CardShare
from allocation.errors import AllocationError
from allocation.request import MILLI_PER_PERCENT
from allocation.settings import AllocationSettings
from cli.errors import MissingRightError
from cli.kube.objects import LIVE, Pod
from cli.kube.scheduler_api import SchedulerApi
from cli.kube.session import Session
from cli.tables import Table, note
from cli.top.usage import short_uuid
from cluster.resource import PODS
from scheduler.api.json_names import json_name
from scheduler.api.usage_types import ContainerUse, PodUse, UsageView
from scheduler.state.running_allocation import running_allocation

UNKNOWN: Final = "unknown"
_NOTES: Final = 5
_MIB: Final = 2**20
_MINUTE: Final = 60
_HOUR: Final = 3600
_HEADERS: Final = ("NAMESPACE", "POD", "CONTAINER", "NODE", "CARD", "MEMORY(MiB)", "UTILIZATION(%)", "USE", "INACTIVE")


class ShareUsage(msgspec.Struct, frozen=True, rename=json_name):
    """One container with its share of a card; None is unknown.

    Attributes:
        memory_mib: the reserved memory, and `cores` the reserved compute in percent of the card.
        memory_used_mib: the memory that its processes use.
        utilization: percent of the card's time in which its kernels ran.
        use: `active`, `idle` or `unknown`, of the pod on this card.
        inactive_seconds: for how long no kernel of the pod has run on this card.
        problem: why what it uses is unknown, or empty.
    """

    namespace: str
    pod: str
    container: str
    node: str
    card: str
    memory_mib: int
    cores: float
    memory_used_mib: int | None
    utilization: int | None
    use: str
    inactive_seconds: float | None
    problem: str = ""

    def row(self, *, wide: bool) -> tuple[str, ...]:
        """Return the row of the table; the wide one has the whole UUID of the card."""
        used = UNKNOWN if self.memory_used_mib is None else str(self.memory_used_mib)
        busy = UNKNOWN if self.utilization is None else str(self.utilization)
        return (
            *(self.namespace, self.pod, self.container, self.node),
            self.card if wide else short_uuid(self.card),
            *(f"{used}/{self.memory_mib}", f"{busy}/{self.cores:g}" if self.cores else busy),
            *(self.use, _duration(self.inactive_seconds)),
        )


class UsageOfShares(msgspec.Struct, frozen=True):
    """The output of `kubectl gpu top --usage -o json`: shares by namespace, pod, container and card."""

    shares: tuple[ShareUsage, ...]

    def table(self, *, wide: bool = False) -> Table:
        """Return a table with a row for each container and card."""
        return Table(_HEADERS, [share.row(wide=wide) for share in self.shares])


def read(session: Session, settings: AllocationSettings, *, url: str, namespace: str) -> UsageOfShares:
    """Return the use of the shares of a namespace's pods; if it is empty, of all that the user may list."""
    try:
        pods = session.client.list(PODS, Pod, namespace=namespace, field_selector=LIVE)
    except MissingRightError:
        if namespace:
            raise
        namespace = session.namespace
        pods = session.client.list(PODS, Pod, namespace=namespace, field_selector=LIVE)
        note(f"you may not list the pods of all namespaces; these are those of namespace {namespace}")
    view = SchedulerApi(session.access, url=url).usage(namespace)
    if view.problem:
        note(view.problem)
    found = tuple(join(pods, view, settings))
    problems = [*dict.fromkeys(share.problem for share in found if share.problem)]
    for problem in problems[:_NOTES]:
        note(f"unknown: {problem}")
    if len(problems) > _NOTES:
        note(f"and {len(problems) - _NOTES} more reasons; -o json has all of them")
    return UsageOfShares(found)


def join(pods: Iterable[Pod], view: UsageView, settings: AllocationSettings) -> Iterator[ShareUsage]:
    """Yield each share of `pods` with what the scheduler says of its use."""
    by_share = {(each.uid, each.device): each for each in view.pods}
    for pod in sorted(pods, key=str):
        try:
            held = running_allocation(pod, settings)
        except AllocationError:
            continue  # `top` without --usage names such pods
        if held is None:
            continue
        names = {status.id: status.name for status in pod.status.containers}
        for container, shares in sorted(held[0].containers.items()):
            for share in shares:
                yield _share(pod, container, share, by_share.get((pod.metadata.uid, share.uuid)), names)


def _share(pod: Pod, container: str, share: CardShare, use: PodUse | None, names: Mapping[str, str]) -> ShareUsage:
    own = _of_container(container, use, names)
    return ShareUsage(
        namespace=pod.metadata.namespace,
        pod=pod.metadata.name,
        container=container,
        node=pod.spec.node_name,
        card=share.uuid,
        memory_mib=share.memory_mib,
        cores=share.cores / MILLI_PER_PERCENT,
        memory_used_mib=None if own is None or own.memory_bytes is None else -(-own.memory_bytes // _MIB),
        utilization=None if own is None else own.utilization_percent,
        use=use.use if use is not None else UNKNOWN,
        inactive_seconds=use.inactive_seconds if use is not None else None,
        problem=use.problem if use is not None else "the scheduler does not know the share yet",
    )


def _of_container(container: str, use: PodUse | None, names: Mapping[str, str]) -> ContainerUse | None:
    """Return what a container uses: nothing if the agent sees no process of it, None if that is unknown.

    A container that was restarted has another ID than the pod's status shows for a moment: then it is unknown whose
    processes the agent sees.
    """
    if use is None or use.problem:
        return None
    if any(each.id not in names for each in use.containers):
        return None
    return next((each for each in use.containers if names[each.id] == container), ContainerUse("", 0, 0))


def _duration(seconds: float | None) -> str:
    """Return a duration as kubectl shows ages: `45s`, `12m`, `3h`."""
    if seconds is None:
        return UNKNOWN
    if seconds < _MINUTE:
        return f"{seconds:.0f}s"
    return f"{seconds // _MINUTE:.0f}m" if seconds < _HOUR else f"{seconds // _HOUR:.0f}h"
