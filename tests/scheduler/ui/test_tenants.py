"""No section of the page shows a tenant what belongs to another."""

from __future__ import annotations

from collections import deque
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from scheduler.ui.sections.kinds import kinds
from tests.scheduler.ui.exposing import Exposed, exposing

if TYPE_CHECKING:
    from tests.scheduler.ui.pages import Reader

ARGUMENTS = {
    "node": ("n1",),
    "pod": ("blue/blue-first-runs", "blue/blue-first-waits", "blue/blue-second-runs", "red/red-first-runs"),
}
"""The sections that take a name, and the names with which they are asked."""
OF_TENANTS = frozenset(
    {"waiting", "ranks", "decisions", "gangs", "claims", "quotas", "node:n1", "pod:blue/blue-first-waits"}
)
"""The sections in which an administrator sees the other tenant, so that it means something that no tenant does."""
GANG = "pod-group.scheduling.sigs.k8s.io"
AT_ONCE = 8


def sections() -> list[str]:
    """Return all sections of the page."""
    return [
        f"{name}:{argument}" if argument else name for name in kinds(deque()) for argument in ARGUMENTS.get(name, ("",))
    ]


def put(site: Exposed, namespace: str, generation: str) -> None:
    """Create what a tenant has, with names that begin with the namespace: a quota, a claim, pods and a gang."""
    api, cluster, name = site.api, site.cluster, f"{namespace}-{generation}"
    for plural, suffix, spec in (
        ("gpuquotas", "quota", {"total": {"maxPods": 9}}),
        ("gpuclaims", "claim", {"devices": {"count": 1}}),
    ):
        api.put(plural, {"metadata": {"namespace": namespace, "name": f"{name}-{suffix}"}, "spec": spec})
    cluster.pod(f"{name}-runs", namespace=namespace, nodeSelector={"kubernetes.io/hostname": "n1"})
    cluster.pod(f"{name}-waits", namespace=namespace, memory=5000)
    labels = {f"{GANG}/name": f"{name}-gang", f"{GANG}/min-available": "2"}
    cluster.pod(f"{name}-member", namespace=namespace, labels=labels)


async def reading_all(site: Exposed, stack: AsyncExitStack, user: str) -> list[Reader]:
    """Follow all sections as a user."""
    names = sections()
    parts = [names[begin : begin + AT_ONCE] for begin in range(0, len(names), AT_ONCE)]
    return [await stack.enter_async_context(site.reading(user, *part)) for part in parts]


def heard(readers: list[Reader]) -> dict[str, list[str]]:
    """Return the rows, and the keys of removed ones, that readers were ever sent, by section and event."""
    sent: dict[str, list[str]] = {name: [] for name in sections()}
    for reader in readers:
        for name, content in reader.events:
            if name == "rows":
                sent[content["section"]].append(f"{content['rows']} {content['removed']}")
    return sent


async def test_sections_show_a_tenant_nothing_of_another() -> None:
    """Not in the snapshot, and not in what changes while the objects of both come and go."""
    async with exposing() as site, AsyncExitStack() as stack:
        for namespace in ("red", "blue"):
            put(site, namespace, "first")
            await site.cluster.placed(f"{namespace}-first-runs", namespace)
            await site.cluster.waits(f"{namespace}-first-waits", "CardInsufficientMemory", namespace)
        everyone, red = await reading_all(site, stack, "administrator"), await reading_all(site, stack, "red")
        for readers in (everyone, red):
            for reader in readers:
                await reader.until(lambda: all(heard(readers).values()), "snapshot")  # noqa: B023 -- called at once
        for namespace in ("blue", "red"):
            put(site, namespace, "second")
            await site.cluster.placed(f"{namespace}-second-runs", namespace)
            site.cluster.end(f"{namespace}-first-runs", namespace)
        for readers, last in ((everyone, "blue-second-waits"), (red, "red-second-waits")):
            for section in ("waiting", "decisions"):
                await readers[0].until(
                    lambda: any(last in each for each in heard(readers)[section]),  # noqa: B023 -- called at once
                    f"{last} in {section}",
                )
        assert {name for name, sent in heard(everyone).items() if "blue" in str(sent)} >= OF_TENANTS
        assert {name: sent for name, sent in heard(red).items() if "blue" in str(sent)} == {}
        # Nor does a reader who guesses a name learn that there is such a pod.
        assert {name: sent for name, sent in heard(red).items() if "blue" in name and sent != ["{} []"]} == {}
