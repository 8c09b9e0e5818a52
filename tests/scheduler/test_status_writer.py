"""Statuses of GpuQueues are written within a budget, however many queues there are and whatever the API server does."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

from allocation.fairness.queue_spec import QueueKey
from allocation.names import QUEUE
from allocation.settings import AllocationSettings
from cluster.errors import ApiError, ClusterError, ConflictError, NotFoundError, UnreachableError
from cluster.gpu_queue import GpuQueue, GpuQueueStatus
from cluster.resource import GPU_QUEUES
from scheduler import status_writer
from scheduler.fairness.queue_reporter import QueueReporter
from scheduler.status_writer import PAUSE_SECONDS, WRITES_PER_SECOND, PacedStatusWriter
from tests.scheduler.support.builders import Clock, allocated, state
from tests.scheduler.support.driving import gpu_queue
from tests.scheduler.support.fencing import fenced
from tests.scheduler.support.status_api import StatusApi

if TYPE_CHECKING:
    from collections.abc import Callable


def queue(name: str, **spec: Any) -> GpuQueue:
    """Return a GpuQueue with a UID."""
    made = gpu_queue(name, **spec)
    made.metadata.uid = f"uid-{name}"
    return made


class World(StatusApi):
    """Queues of a node with two cards, and the API server to which their statuses are written."""

    def __init__(self, *queues: GpuQueue, errors: tuple[ClusterError, ...] = ()) -> None:
        self.clock = Clock()
        super().__init__(self.clock, GPU_QUEUES, errors)
        self.state = state("n1", clock=self.clock)
        for each in queues:
            self.state.limits.set_queue(each)
        self.waiting: dict[QueueKey, int] = {}
        self.is_trusted = True
        self.writer = self.term()

    def term(self) -> PacedStatusWriter[GpuQueue, GpuQueueStatus]:
        """Return the writer of a new term."""
        api = cast("Any", self)
        reporter = QueueReporter(
            self.state.fair_share, lambda: self.waiting, settings=AllocationSettings(), recorder=api
        )
        api_of_term = fenced(self, is_trusted=lambda: self.is_trusted)
        return PacedStatusWriter(api_of_term, reporter, turn=self.state.turn, clock=self.clock)

    def wait(self, pods: int, *names: str) -> None:
        """Let as many pods of each of these queues wait."""
        self.waiting.update({QueueKey(name=name): pods for name in names})

    async def run(self, seconds: int, each_second: Callable[[int], object] = lambda _: None) -> None:
        """Write once a second, after calling `each_second` with the number of the second."""
        for second in range(seconds):
            each_second(second)
            await self.writer.write_due()
            self.clock.now += 1

    @property
    def statuses(self) -> list[tuple[str, int]]:
        """The queues that were written, with the numbers of their waiting pods."""
        return [(name, body["status"]["waiting"]) for name, body in self.bodies]


async def test_a_status_has_nothing_of_pods_that_are_reserved_for_a_moment() -> None:
    """While the turn is held, nothing is worked out: neither by the sums of the queues nor for one of them."""
    world = World(queue("a"), queue("b"))
    world.wait(1, "b")
    async with world.state.turn:
        world.state.set_pod(allocated("rehearsed", node="n1", memory=500, labels={QUEUE: "a"}))
        writing = asyncio.create_task(world.writer.write_due())
        for _ in range(5):
            await asyncio.sleep(0)
        assert not world.bodies
        world.state.drop_pod(allocated("rehearsed", node="n1", memory=500))
    await writing
    found = {name: body["status"] for name, body in world.bodies}
    assert found["a"]["running"] == 0
    assert found["b"]["entitlement"] == "1.0000"


def answer(kind: type[ApiError], code: int) -> ApiError:
    """Return an error of the API server."""
    return kind(request="PATCH", status=code, reason="", message="no")


async def test_a_thousand_queues_that_change_all_the_time_cost_five_writes_a_second() -> None:
    """And each of them gets its turn: the status that was written longest ago is written next."""
    names = [f"team-{number:03}" for number in range(1000)]
    world = World(*(queue(name) for name in names))
    await world.run(600, lambda second: world.wait(second + 1, *names))
    seconds = [at for at, _ in world.tries]
    assert all(seconds.count(second) == WRITES_PER_SECOND for second in set(seconds))
    assert len(world.tries) == 600 * WRITES_PER_SECOND
    for number in range(3):
        assert sorted(name for name, _ in world.statuses[number * 1000 : (number + 1) * 1000]) == names
    # What is written is what is true then, not when it changed.
    assert [pods for _, pods in world.statuses] == [int(at - 99) for at in seconds]


async def test_the_status_of_one_queue_is_written_at_most_every_ten_seconds() -> None:
    """Whatever changed in between is in the next one."""
    world = World(queue("team"))
    await world.run(41, lambda second: world.wait(second + 1, "team"))
    assert [after - before for (before, _), (after, _) in pairwise(world.tries)] == [PAUSE_SECONDS] * 4
    assert world.statuses == [("team", 1), ("team", 11), ("team", 21), ("team", 31), ("team", 41)]


async def test_only_what_changed_is_written() -> None:
    """A new leader writes no status that is right already."""
    world = World(queue("a"), queue("b"))
    world.wait(1, "a")
    await world.run(30)
    assert [name for name, _ in world.statuses] == ["a", "b"]
    written = {name: msgspec.convert(body["status"], GpuQueueStatus) for name, body in world.bodies}
    for name, each in written.items():
        world.state.limits.set_queue(msgspec.structs.replace(queue(name), status=each))
    world.writer = world.term()
    await world.run(30)
    assert len(world.bodies) == 2
    world.wait(1, "b")
    await world.run(30)
    assert world.statuses[2:] == [("a", 1), ("b", 1)], "the entitlement of a changed with the pods of b"


async def test_the_generation_that_was_read_is_written() -> None:
    """So one sees whether the status is about the spec as it is now."""
    world = World(queue("team"))
    await world.run(1)
    changed = queue("team", weight=2)
    changed.metadata.generation = 2
    world.state.limits.set_queue(changed)
    await world.run(30)
    assert [body["status"]["observedGeneration"] for _, body in world.bodies] == [0, 2]


@pytest.mark.parametrize(
    "error",
    [
        UnreachableError("no response"),
        answer(ApiError, 503),
        answer(ApiError, 403),
        answer(ConflictError, 409),
        answer(NotFoundError, 404),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_failed_write_is_repeated_after_the_others(error: ClusterError) -> None:
    """With what is true then, after the same pause; a queue that cannot be written keeps none of the others waiting."""
    world = World(*(queue(name) for name in "abcdef"), errors=(error,) * WRITES_PER_SECOND)
    await world.run(11, lambda second: world.wait(second + 1, "a"))
    names = [name for _, name in world.tries]
    assert names[:6] == [*"abcdef"]
    assert sorted(names[6:]) == [*"abcde"]
    assert world.tries[6][0] - world.tries[0][0] == PAUSE_SECONDS
    assert dict(world.statuses)["a"] == 11


@pytest.mark.parametrize("uid", ["uid-other", "uid-team"])
async def test_a_queue_that_was_created_again_gets_a_status_of_its_own(uid: str) -> None:
    """At once, under its UID: nothing is remembered of a queue that was deleted."""
    world = World(queue("team"))
    await world.run(1)
    world.state.limits.drop_queue(queue("team"))
    await world.run(1)
    other = queue("team")
    other.metadata.uid = uid
    world.state.limits.set_queue(other)
    await world.run(1)
    assert [body["metadata"] for _, body in world.bodies] == [{"uid": "uid-team"}, {"uid": uid}]


async def test_only_the_leader_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that is not trusted any more ends its writer, and does not finish what it began."""
    world = World(*(queue(name) for name in "abc"))

    async def write(_method: str, path: str, **_: object) -> bytes:
        world.tries.append((world.clock.now, path.split("/")[-2]))
        world.is_trusted = False
        return b"{}"

    async def sleep(_seconds: float) -> None:
        world.clock.now += 1

    monkeypatch.setattr(world, "request", write)
    monkeypatch.setattr(status_writer, "sleep", sleep)
    async with asyncio.timeout(30):
        await world.writer.run()
        await world.writer.run()
    assert [name for _, name in world.tries] == ["a"]


async def test_an_event_says_when_a_queue_becomes_overused_or_underused() -> None:
    """Once per change, about the queue, with the numbers; a new leader does not repeat it."""
    world = World(queue("hog"), queue("poor"))
    pods = [allocated(name, node="n1", card=card, memory=1000, labels={QUEUE: "hog"}) for card, name in enumerate("ab")]
    for pod in pods:
        world.state.set_pod(pod)
    await world.run(1)
    assert world.reasons == []

    def change(second: int) -> None:
        world.wait(1 + second // 10, "hog")
        world.wait(3 + second // 10, "poor")

    await world.run(40, change)
    assert len(world.bodies) == 2 + 2 * 4
    assert world.reasons == [("Overused", "hog"), ("Underused", "poor")]
    _, regarding, note = world.events[1]
    assert (regarding.kind, regarding.uid, regarding.namespace) == ("GpuQueue", "uid-poor", "")
    assert note == "it has a share of 0.0000, and is entitled to 0.5000; pods that wait: 3"
    for name, body in world.bodies[-2:]:
        status = msgspec.convert(body["status"], GpuQueueStatus)
        world.state.limits.set_queue(msgspec.structs.replace(queue(name), status=status))
    world.writer = world.term()
    await world.run(40)
    assert len(world.events) == 2
    for pod in pods:
        world.state.drop_pod(pod)
    world.waiting.clear()
    await world.run(20)
    world.wait(1, "poor")
    await world.run(20)
    assert world.reasons[2:] == [("Underused", "poor")]


async def test_an_event_comes_with_the_status_that_says_the_same() -> None:
    """If the status is not written, there is no event either."""
    world = World(queue("team"), errors=(UnreachableError("no response"),))
    world.wait(1, "team")
    await world.run(10)
    assert (len(world.tries), world.events) == (1, [])
    await world.run(10)
    assert world.reasons == [("Underused", "team")]
