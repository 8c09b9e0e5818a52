"""Statuses of GpuQuotas are written within the budget, and say what is true whenever the quota was created."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

from allocation.settings import AllocationSettings
from cluster.errors import ClusterError, ConflictError, NotFoundError, UnreachableError
from cluster.gpu_quota import GpuQuotaStatus
from cluster.resource import GPU_QUOTAS
from scheduler.state.quota_reporter import QuotaReporter
from scheduler.status_writer import PAUSE_SECONDS, WRITES_PER_SECOND, PacedStatusWriter
from tests.scheduler.support.builders import Clock, allocated, state
from tests.scheduler.support.fencing import fenced
from tests.scheduler.support.quotas import gpu_quota
from tests.scheduler.support.status_api import StatusApi

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.gpu_quota import GpuQuota

MEMORY = "nvidia.com/gpumem"


def quota(namespace: str, name: str = "q", *, memory: int = 1000, **total: Any) -> GpuQuota:
    """Return a GpuQuota that limits memory."""
    return gpu_quota(name, namespace=namespace, total={"limits": {MEMORY: memory}, **total})


class World(StatusApi):
    """Quotas and the pods of their namespaces, and the API server to which statuses are written."""

    def __init__(self, *quotas: GpuQuota, errors: tuple[ClusterError, ...] = ()) -> None:
        self.clock = Clock()
        super().__init__(self.clock, GPU_QUOTAS, errors)
        self.state = state("n1", clock=self.clock)
        for each in quotas:
            self.state.limits.set_gpu_quota(each)
        self.writer = self.term()

    def term(self) -> PacedStatusWriter[GpuQuota, GpuQuotaStatus]:
        """Return the writer of a new term."""
        api = cast("Any", self)
        reporter = QuotaReporter(self.state.quotas, settings=AllocationSettings(), recorder=api)
        return PacedStatusWriter(fenced(self), reporter, turn=self.state.turn, clock=self.clock)

    def hold(self, memory: int, namespace: str = "team") -> None:
        """Let a pod of a namespace hold this much memory, and no more than before."""
        self.state.set_pod(allocated(f"pod-{namespace}", node="n1", memory=memory, namespace=namespace))

    async def run(self, seconds: int, each_second: Callable[[int], object] = lambda _: None) -> None:
        """Write once a second, after calling `each_second` with the number of the second."""
        for second in range(seconds):
            each_second(second)
            await self.writer.write_due()
            self.clock.now += 1

    @property
    def used(self) -> list[tuple[str, int]]:
        """The memory in use that was written, each with its quota."""
        return [(name, body["status"]["used"][MEMORY]) for name, body in self.bodies]


class Rehearsing(World):
    """While the first status is written, pods are reserved for a moment."""

    async def request(self, method: str, path: str, *, body: dict[str, Any], **how: object) -> bytes:
        """Store a status; with the first one, hold the turn until others had time to run."""
        stored = await super().request(method, path, body=body, **how)
        if len(self.bodies) == 1:
            await self.state.turn.acquire()
            self.hold(900, "b")
            self.end = asyncio.create_task(self.end_of_rehearsal())
        return stored

    async def end_of_rehearsal(self) -> None:
        """Forget the pods."""
        for _ in range(5):
            await asyncio.sleep(0)
        self.state.drop_pod(allocated("pod-b", node="n1", memory=900, namespace="b"))
        self.state.turn.release()


async def test_a_status_has_nothing_of_pods_that_are_reserved_for_a_moment() -> None:
    """The use of each quota is read while the turn is free."""
    world = Rehearsing(quota("a"), quota("b"))
    await world.run(1)
    assert world.used == [("a/q", 0), ("b/q", 0)]
    assert world.reasons == []


async def test_a_thousand_quotas_that_change_all_the_time_cost_five_writes_a_second() -> None:
    """And each of them gets its turn: the status that was written longest ago is written next."""
    namespaces = [f"team-{number:03}" for number in range(1000)]
    world = World(*(quota(name) for name in namespaces))

    def change(second: int) -> None:
        if second % 100 == 0:
            for name in namespaces:
                world.hold(1 + second // 100, name)

    await world.run(400, change)
    seconds = [at for at, _ in world.tries]
    assert all(seconds.count(second) == WRITES_PER_SECOND for second in set(seconds))
    assert len(world.tries) == 400 * WRITES_PER_SECOND
    names = [f"{name}/q" for name in namespaces]
    assert [sorted(name for name, _ in world.used[:1000]), sorted(name for name, _ in world.used[1000:])] == [names] * 2
    # What is written is what is true then.
    assert [used for _, used in world.used] == [1 + int(at - seconds[0]) // 100 for at in seconds]


async def test_the_status_of_one_quota_is_written_at_most_every_ten_seconds() -> None:
    """Only if a printed digit changed, and with what is true then."""
    world = World(quota("team"))
    await world.run(31, lambda second: world.hold(second + 1))
    assert [after - before for (before, _), (after, _) in pairwise(world.tries)] == [PAUSE_SECONDS] * 3
    assert world.used == [("team/q", 1), ("team/q", 11), ("team/q", 21), ("team/q", 31)]
    await world.run(60)
    assert len(world.tries) == 4


async def test_a_quota_that_is_created_under_running_pods_is_right_at_once() -> None:
    """What pods hold is counted whether there is a quota or not."""
    world = World()
    world.hold(960)
    await world.run(1)
    assert world.bodies == []
    world.state.limits.set_gpu_quota(quota("team"))
    await world.run(1)
    status = msgspec.convert(world.bodies[0][1]["status"], GpuQuotaStatus)
    assert (status.used, status.pods, status.available_percent) == ({MEMORY: 960}, 1, {MEMORY: "4.00"})
    assert world.reasons == [("AlertThresholdReached", "q")]


async def test_each_quota_of_a_namespace_has_its_own_condition() -> None:
    """The same use is much of one, and little of the other."""
    world = World(quota("team", "small", memory=100), quota("team", "large", memory=1000), quota("other"))
    world.hold(96)
    await world.run(1)
    conditions = {name: body["status"]["conditions"][0] for name, body in world.bodies}
    assert {name: each["status"] for name, each in conditions.items()} == {
        "team/small": "False",
        "team/large": "True",
        "other/q": "True",
    }
    assert conditions["team/small"]["message"] == f"less than 5% is left of {MEMORY} (4.00%: 96 of 100 used)"


async def test_an_event_is_recorded_at_each_change_of_state() -> None:
    """On the quota, with the numbers, once: neither repeated while it lasts, nor by a new leader."""
    world = World(quota("team"))
    world.hold(950)
    await world.run(20)
    assert world.reasons == []
    await world.run(40, lambda second: world.hold(951 + second))
    ((reason, regarding, note),) = world.events
    assert (regarding.kind, regarding.namespace, regarding.uid) == ("GpuQuota", "team", "uid-team-q")
    assert reason == "AlertThresholdReached"
    assert note == f"less than 5% is left of {MEMORY} (4.90%: 951 of 1000 used)"
    shown = msgspec.convert(world.bodies[-1][1]["status"], GpuQuotaStatus)
    world.state.limits.set_gpu_quota(msgspec.structs.replace(quota("team"), status=shown))
    world.writer = world.term()
    await world.run(20)
    assert len(world.events) == 1
    world.hold(10)
    await world.run(20)
    assert world.reasons == [("AlertThresholdReached", "q"), ("CapacitySufficient", "q")]


async def test_a_limit_that_was_removed_disappears_from_the_status() -> None:
    """A merge patch keeps the entries of a map that it does not name."""
    cores = "nvidia.com/gpucores"
    world = World(gpu_quota("q", namespace="team", total={"limits": {MEMORY: 1000, cores: 100}}))
    await world.run(1)
    world.state.limits.set_gpu_quota(gpu_quota("q", namespace="team", total={"limits": {cores: 100}}))
    await world.run(20)
    (_, first), (_, second) = world.bodies
    assert first["status"]["availablePercent"] == {MEMORY: "100.00", cores: "100.00"}
    assert second["status"]["used"] == {MEMORY: None, cores: 0}
    assert second["status"]["availablePercent"] == {MEMORY: None, cores: "100.00"}


@pytest.mark.parametrize(
    "error",
    [
        UnreachableError("no response"),
        ConflictError(request="PATCH", status=409, reason="", message="no"),
        NotFoundError(request="PATCH", status=404, reason="", message="no"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_failed_write_is_repeated_with_what_is_true_then(error: ClusterError) -> None:
    """After the pause; a quota that is deleted meanwhile is not written again."""
    world = World(quota("team"), quota("gone"), errors=(error, error))
    await world.run(5, lambda second: world.hold(second + 1))
    world.state.limits.drop_gpu_quota(quota("gone"))
    await world.run(10)
    assert [name for _, name in world.tries] == ["gone/q", "team/q", "team/q"]
    assert world.used == [("team/q", 5)]
