"""kube-scheduler's pods that fit now: who is looked at, how many at once, and what is written."""

import asyncio
from typing import Any

from allocation.steps import finish
from cluster.errors import ApiError
from cluster.informer import Informer
from cluster.resource import PODS
from scheduler.extender.rejected_pods import RejectedPods
from scheduler.extender.retries import Retries
from scheduler.extender.turns import Turns
from scheduler.extender.wire import Args
from scheduler.objects import Pod
from scheduler.preemption.waiting_pod import WaitingPod
from tests.scheduler.support.builders import Clock, allocated, pod, state
from tests.scheduler.support.extending import Bindings, cache, extending
from tests.scheduler.support.fencing import fenced


class Statuses(Bindings):
    """An API server that records whose status is written, unless it refuses with `error`."""

    async def request(self, method: str, path: str, **how: Any) -> bytes:
        """Take a status."""
        assert (method, path.rpartition("/")[2]) == ("PATCH", "status"), path
        if self.error is not None:
            raise self.error
        self.written.append(how["body"])
        return b"{}"


class Scene:
    """Pods that kube-scheduler waits with, of which those in `fitting` fit; looking at one takes `seconds`."""

    def __init__(self, *, seconds: float = 0.0) -> None:
        self.api = Statuses()
        self.pods = Informer(self.api, PODS, Pod)
        self.rejected = RejectedPods(self.pods, clock=Clock())
        self.fitting: set[str] = set()
        self.looked_at: list[str] = []
        self.seconds = seconds
        self.retries = Retries(fenced(self.api), rejected=self.rejected, fits=self._fits, renewed=self._renewed)
        self.renewed: list[str] = []

    def _renewed(self) -> list[str]:
        ended, self.renewed = self.renewed, []
        return ended

    async def _fits(self, waiting: WaitingPod) -> tuple[bool, float]:
        self.looked_at.append(waiting.pod.metadata.name)
        return waiting.pod.metadata.name in self.fitting, self.seconds

    def reject(self, *names: str, namespace: str = "default") -> None:
        """Let kube-scheduler offer pods that fit nowhere."""
        for name in names:
            made = pod(name, memory=100, namespace=namespace)
            self.pods.add_if_new(made)
            self.rejected.note(made, ("n0",), since=self.rejected.changes)

    @property
    def written(self) -> list[str]:
        """The UIDs of the pods whose status was written, in order."""
        return [each["metadata"]["uid"] for each in self.api.written]


async def test_nothing_is_looked_at_unless_something_changed() -> None:
    """Each change has each pod looked at once."""
    scene = Scene()
    scene.reject("a", "b")
    await scene.retries.look()
    assert scene.looked_at == []
    scene.rejected.note_change()
    await scene.retries.look()
    await scene.retries.look()
    assert scene.looked_at == ["a", "b"]


async def test_pod_is_looked_at_once_time_has_passed_that_had_to() -> None:
    """A node that refused it may take it again, although nothing changed."""
    scene = Scene()
    scene.reject("a", "b")
    scene.renewed.append("uid-b")
    await scene.retries.look()
    await scene.retries.look()
    assert scene.looked_at == ["b"]


async def test_pod_that_fits_is_written_once() -> None:
    """kube-scheduler may reject it before it asks: it is not written again after every change."""
    scene = Scene()
    scene.reject("a", "b")
    scene.fitting = {"b"}
    for _ in range(3):
        scene.rejected.note_change()
        await scene.retries.look()
    assert scene.written == ["uid-b"]
    assert [each.pod.uid for each in finish(scene.rejected.waiting(lambda _: True, lambda _: True, 8))] == ["uid-a"]


async def test_refused_write_is_repeated() -> None:
    """At the next look, although nothing changed."""
    scene = Scene()
    scene.reject("a")
    scene.fitting = {"a"}
    scene.api.error = ApiError(request="PATCH", status=500, reason="InternalError", message="no")
    scene.rejected.note_change()
    await scene.retries.look()
    assert scene.written == []
    scene.api.error = None
    await scene.retries.look()
    assert scene.written == ["uid-a"]


async def test_namespaces_take_turns_within_the_budget_of_time() -> None:
    """Ten thousand pods of one namespace, and what changes for them, delay another namespace by one look at most."""
    scene = Scene(seconds=0.02)  # three pods a look
    scene.reject(*(f"many-{number}" for number in range(10_000)), namespace="greedy")
    scene.reject("lone", namespace="modest")
    scene.rejected.note_change(f"uid-many-{number}" for number in range(10_000))
    await scene.retries.look()
    assert len(scene.looked_at) == 3
    assert "lone" in scene.looked_at


async def test_pods_that_the_budget_did_not_reach_come_first() -> None:
    """Also if something changes between all looks."""
    scene = Scene(seconds=0.03)  # two pods a look
    scene.reject(*"abcde")
    for _ in range(3):
        scene.rejected.note_change()
        await scene.retries.look()
    assert scene.looked_at == list("abcdea")


async def test_writes_have_a_bound() -> None:
    """The others are written in the next second."""
    scene = Scene()
    names = [f"p-{number:02}" for number in range(30)]
    scene.reject(*names)
    scene.fitting = {*names}
    scene.rejected.note_change()
    await scene.retries.look()
    assert len(scene.written) == 20
    await scene.retries.look()
    assert sorted(scene.written) == [f"uid-{name}" for name in names]


async def test_pods_of_the_change_come_first() -> None:
    """The claim of one pod was created: the others of its namespace are looked at after it."""
    scene = Scene()
    scene.reject(*"abc")
    scene.rejected.note_change(("uid-c",))
    await scene.retries.look()
    assert scene.looked_at == ["c", "a", "b"]


async def test_pod_that_is_gone_is_forgotten() -> None:
    """Nothing is kept of it, also if no pod preempts."""
    scene = Scene()
    scene.reject("a")
    scene.pods._objects.clear()
    scene.rejected.note_change()
    await scene.retries.look()
    assert scene.looked_at == []
    assert not scene.rejected._rejected
    assert not scene.rejected._turns._namespaces


async def test_change_during_an_evaluation_is_not_missed() -> None:
    """The pod was rejected as the cluster was before: it is looked at again."""
    made = state("n1", cards=1, has_queue=False)
    leaving = allocated("leaving", node="n1", memory=900)
    made.set_pod(leaving)
    extender, waits = extending(made), pod("a", memory=600)
    cache(extender, waits)

    def change() -> None:
        made.drop_pod(leaving)
        extender._rejected.note_change()

    original = extender._filter

    def interrupted(*how: Any) -> Any:
        result = yield from original(*how)
        change()
        return result

    extender._filter = interrupted  # type: ignore[method-assign]
    assert not (await extender.filter(Args.of_pod(waits, ("n1",)))).has_node
    (changed,) = extender._rejected.changed()
    extender._filter = original  # type: ignore[method-assign]
    assert changed.pod.uid == "uid-a"
    has_fit, _ = await extender.fits(changed)
    assert has_fit


async def test_retries_end_with_the_trust_in_the_leader() -> None:
    """A deposed leader writes nothing more."""
    scene = Scene()
    deposed = fenced(scene.api, is_trusted=lambda: False)
    retries = Retries(deposed, rejected=scene.rejected, fits=scene._fits, renewed=tuple)
    async with asyncio.timeout(20):
        await retries.run()


def test_pods_change_while_they_have_their_turns() -> None:
    """A pod that is forgotten has no turn; one that is added afterwards is due after the next change."""
    turns = Turns()
    for uid in "abc":
        turns.set("one", uid, since=turns.changes)
    turns.change()
    due = turns.due()
    assert next(due) == "a"
    turns.drop("one", "b")
    turns.set("two", "d", since=turns.changes)
    assert list(due) == ["c"]
    turns.drop("two", "d")
    turns.change()
    assert list(turns.due()) == ["a", "c"]
