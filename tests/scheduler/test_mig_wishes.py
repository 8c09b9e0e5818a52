"""A pod for which an agent makes an instance: two steps, and whatever may come between them."""

import pytest

from allocation.allocation import Allocation, CardShare
from allocation.environment import hami_annotations
from allocation.inventory import Card, NodeInventory
from allocation.mig import Slices, Wish
from allocation.names import ALLOCATION, HAMI_MIG
from allocation.record import encode
from cluster.gpu_node_status import GpuNodeStatus, Spec, status_of
from cluster.metadata import ObjectMeta
from cluster.mig_status import WishStatus
from scheduler.binder import allocation_annotations
from scheduler.cycle import Chosen, Waiting, decide, undo
from scheduler.mig_wishes import Due
from scheduler.objects import Pod
from scheduler.state import State
from tests.allocation.mig_cards import divided, instance
from tests.scheduler.builders import Clock, lease, node, pod, state

CARD = "GPU-n0-0"
WISH = Wish("uid-a/0", CARD, "1g.5gb", Slices(6, 1))
MADE = instance(0, "1g.5gb", 6, wish="uid-a/0")


def report(
    *cards: Card, wishes: tuple[Wish, ...] | None = None, told: tuple[WishStatus, ...] = (), version: str = "1"
) -> GpuNodeStatus:
    """Answer node n0's object: a card that the agent divides, further cards, and what was asked of the agent."""
    status = status_of(NodeInventory("n0", (divided(0, by="agent"), *cards)))
    if told:
        status.mig_instances = told
    return GpuNodeStatus(ObjectMeta(name="n0", resource_version=version), status, Spec("n0", wishes))


class Scheduler:
    """A scheduler's state with one node, and the writes that are due."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.state: State = state(clock=self.clock)
        self.state.set_node(node("n0"))
        self.state.set_status(report())

    def create(self, name: str, memory: int = 100) -> Pod:
        """Let a pod wait."""
        made = pod(name, memory=memory)
        self.state.set_pod(made)
        return made

    def pass_time(self, seconds: float) -> None:
        """Let time pass in which the agent lives."""
        self.clock.now += seconds
        self.state.set_lease(lease("n0", renewed=f"2026-01-01T00:{int(self.clock.now) % 60:02}:00.000000Z"))

    def write(self) -> list[Due]:
        """Write what is due, and answer it."""
        due = self.state.wishes.due()
        for each in due:
            self.state.wishes.written(each)
        return due

    def used(self, uuid: str) -> int:
        """Answer how many slots of a card are in use."""
        position = self.state.ledger.position(uuid)
        assert position is not None
        return int(self.state.ledger.used[2, *position])


@pytest.fixture
def scheduler() -> Scheduler:
    """A scheduler with one node whose agent makes instances."""
    return Scheduler()


def bound(name: str, decision: object) -> Pod:
    """Answer the pod as the watch shows it after its Binding."""
    assert isinstance(decision, Chosen)
    annotations = allocation_annotations(decision, unix_seconds=0)
    return pod(name, memory=100, node="n0", phase="Running", annotations=annotations)


def test_the_two_steps(scheduler: Scheduler) -> None:
    """Asked for, promised, made, bound: the pod has its instance, and the wish stands for as long as it has."""
    a = scheduler.create("a")
    decision = decide(scheduler.state, a)
    assert isinstance(decision, Waiting)
    assert decision.note == f"no free MIG instance fits; asked node(n0) to make 1g.5gb on card {CARD}"
    assert scheduler.write() == [Due("n0", "1", (WISH,))]
    assert decide(scheduler.state, a) == decision
    assert scheduler.write() == []
    scheduler.state.set_status(report(MADE, wishes=(WISH,)))
    chosen = decide(scheduler.state, a)
    assert isinstance(chosen, Chosen)
    assert chosen.allocation is not None
    assert chosen.allocation.containers["main"] == (CardShare("MIG-n0-0-6", 0, 4864, 142, CARD),)
    assert scheduler.used("MIG-n0-0-6") == 1
    scheduler.state.set_pod(bound("a", chosen), a)
    assert scheduler.used("MIG-n0-0-6") == 1
    assert scheduler.write() == []
    scheduler.state.drop_pod(bound("a", chosen))
    assert scheduler.write() == [Due("n0", "1", ())]


def test_the_binding_tells_hamis_tools(scheduler: Scheduler) -> None:
    """The annotation of MIG instances and the environment ride on the same Binding."""
    a = scheduler.create("a")
    decide(scheduler.state, a)
    scheduler.state.set_status(report(MADE, wishes=(WISH,)))
    chosen = decide(scheduler.state, a)
    assert isinstance(chosen, Chosen)
    annotations = allocation_annotations(chosen, unix_seconds=0)
    assert annotations["nvidia-visible-devices.gpu.scheduling/main"] == "MIG-n0-0-6"
    assert annotations["cuda-visible-devices.gpu.scheduling/main"] == "MIG-n0-0-6"
    assert '"gpuUUID":"GPU-n0-0","profile":"1g.5gb","placement":{"start":6,"size":1}' in annotations[HAMI_MIG]
    assert chosen.allocation is not None
    plain = hami_annotations(chosen.allocation, chosen.request, unix_seconds=0)
    assert HAMI_MIG not in plain


def test_an_instance_is_its_pods_alone(scheduler: Scheduler) -> None:
    """Made but not bound yet, and left behind but not destroyed yet: nobody else gets it."""
    a, b = scheduler.create("a"), scheduler.create("b")
    decide(scheduler.state, a)
    decide(scheduler.state, b)
    assert [wish.slices.start for wish in scheduler.write()[0].wishes] == [6, 5]
    scheduler.state.set_status(report(MADE, wishes=(WISH,)))
    assert isinstance(decide(scheduler.state, b), Waiting)
    chosen = decide(scheduler.state, a)
    scheduler.state.set_pod(bound("a", chosen), a)
    scheduler.state.drop_pod(bound("a", chosen))
    assert scheduler.used("MIG-n0-0-6") == 1
    assert isinstance(decide(scheduler.state, b), Waiting)
    scheduler.write()
    scheduler.state.set_status(report(MADE, wishes=()))
    assert scheduler.used("MIG-n0-0-6") == 1
    scheduler.state.set_status(report(wishes=()))
    assert not any(True for _ in scheduler.state.ledger.holdings())


def test_an_instance_that_is_there_is_preferred(scheduler: Scheduler) -> None:
    """Nothing is asked for while one that an administrator made is free."""
    scheduler.state.set_status(report(instance(0, "3g.20gb", 0)))
    chosen = decide(scheduler.state, scheduler.create("a"))
    assert isinstance(chosen, Chosen)
    assert scheduler.write() == []


def test_a_pod_that_goes_takes_its_wish_along(scheduler: Scheduler) -> None:
    """Deleted, or being deleted, before the instance is there."""
    for deleted in (None, "2026-01-01T00:00:00Z"):
        a = scheduler.create("a")
        decide(scheduler.state, a)
        scheduler.write()
        if deleted:
            scheduler.state.set_pod(pod("a", memory=100, deleted=deleted), a)
        else:
            scheduler.state.drop_pod(a)
        assert scheduler.write() == [Due("n0", "1", ())]
        scheduler.state.drop_pod(a)


def test_a_pod_that_finds_another_place_takes_its_wish_back(scheduler: Scheduler) -> None:
    """An instance became free meanwhile."""
    a = scheduler.create("a")
    decide(scheduler.state, a)
    scheduler.write()
    scheduler.state.set_status(report(instance(0, "2g.10gb", 0), wishes=(WISH,)))
    assert isinstance(decide(scheduler.state, a), Chosen)
    assert scheduler.write() == [Due("n0", "1", ())]


def test_a_wish_that_is_not_fulfilled_in_time_is_given_up(scheduler: Scheduler) -> None:
    """The pod says again why it waits; after as long again the card is asked anew, under another name."""
    a = scheduler.create("a")
    decide(scheduler.state, a)
    scheduler.write()
    scheduler.pass_time(121)
    assert scheduler.write() == [Due("n0", "1", ())]
    scheduler.state.set_status(report(wishes=(WISH,)))
    assert scheduler.write() == [Due("n0", "1", ())]
    decision = decide(scheduler.state, a)
    assert isinstance(decision, Waiting)
    assert "1/1 CardMigTopologyInfeasible" in decision.note
    scheduler.pass_time(121)
    assert isinstance(decide(scheduler.state, a), Waiting)
    (due,) = scheduler.write()
    assert [wish.id for wish in due.wishes] == ["uid-a/1"]


@pytest.mark.parametrize("refused", [True, False])
def test_a_wish_that_the_agent_cannot_fulfil_is_given_up(scheduler: Scheduler, refused: bool) -> None:  # noqa: FBT001
    """At once, without waiting for the deadline."""
    a = scheduler.create("a")
    decide(scheduler.state, a)
    scheduler.write()
    told = WishStatus(WISH.id, WISH.card, WISH.profile, WISH.slices, "no", refused=refused)
    scheduler.state.set_status(report(wishes=(WISH,), told=(told,)))
    assert scheduler.write() == [Due("n0", "1", ())]
    assert scheduler.state.wishes.barred() == {CARD}


def test_a_binding_that_fails_leaves_the_instance_promised(scheduler: Scheduler) -> None:
    """It is tried again with the same instance, which nobody else gets meanwhile."""
    a = scheduler.create("a")
    decide(scheduler.state, a)
    scheduler.write()
    scheduler.state.set_status(report(MADE, wishes=(WISH,)))
    decide(scheduler.state, a)
    undo(scheduler.state, a)
    assert scheduler.used("MIG-n0-0-6") == 1
    assert scheduler.write() == []
    assert isinstance(decide(scheduler.state, a), Chosen)


@pytest.mark.parametrize("order", ["pod first", "report first"])
@pytest.mark.parametrize("when", ["asked", "made", "bound", "gone", "never asked"])
def test_the_next_leader_reads_the_same_truth(order: str, when: str) -> None:
    """Killed at any step: what the API server has tells the next one what is wanted, in whatever order it is read."""
    share = CardShare("MIG-n0-0-6", 0, 4864, 142, CARD)
    annotations = {ALLOCATION: encode(Allocation("n0", {"main": (share,)}))}
    waits = pod("a", memory=100)
    runs = pod("a", memory=100, node="n0", phase="Running", annotations=annotations)
    pods = {"asked": [waits], "made": [waits], "bound": [runs], "gone": [], "never asked": [waits]}[when]
    status = {
        "asked": report(wishes=(WISH,)),
        "made": report(MADE, wishes=(WISH,)),
        "bound": report(MADE, wishes=None),  # even if the object was deleted meanwhile
        "gone": report(MADE, wishes=(WISH,)),
        "never asked": report(),
    }[when]
    after = state()
    after.set_node(node("n0"))
    steps = [lambda: after.set_status(status), lambda: [after.set_pod(each) for each in pods]]
    for step in steps if order == "report first" else reversed(steps):
        step()
    due = [each.wishes for each in after.wishes.due()]
    assert due == {"asked": [], "made": [], "bound": [(WISH,)], "gone": [()], "never asked": []}[when]
    if when == "asked":
        decision = decide(after, waits)
        assert isinstance(decision, Waiting)
        assert "asked node(n0)" in decision.note
        assert after.wishes.due() == []
    if when == "made":
        assert isinstance(decide(after, waits), Chosen)
    if when in ("bound", "gone"):
        position = after.ledger.position("MIG-n0-0-6")
        assert position is not None
        assert after.ledger.used[2, *position] == 1


def test_an_instance_that_is_not_reported_for_a_while_stays_wanted(scheduler: Scheduler) -> None:
    """An agent that starts anew must not be told to destroy what a pod runs on."""
    a = scheduler.create("a")
    decide(scheduler.state, a)
    scheduler.write()
    scheduler.state.set_status(report(MADE, wishes=(WISH,)))
    chosen = decide(scheduler.state, a)
    scheduler.state.set_pod(bound("a", chosen), a)
    scheduler.state.set_status(report(wishes=(WISH,)))
    assert scheduler.write() == []
    scheduler.state.drop_status(report())
    assert scheduler.write() == []


def test_what_an_agent_claims_concerns_no_waiting_pod(scheduler: Scheduler) -> None:
    """An instance that says that it was made for a pod, when nobody asked: the pod goes elsewhere, or asks itself."""
    a = scheduler.create("a")
    scheduler.state.set_status(report(instance(0, "3g.20gb", 0, wish="uid-a/7")))
    decision = decide(scheduler.state, a)
    assert isinstance(decision, Waiting)
    (due,) = scheduler.write()
    assert [(wish.id, wish.profile) for wish in due.wishes] == [("uid-a/8", "1g.5gb")]


def test_an_instance_of_nobody_is_given_back_though_no_list_names_it(scheduler: Scheduler) -> None:
    """Its object was deleted, and its pod as well: an empty list is written, by which the agent destroys it."""
    scheduler.state.set_status(report(MADE))
    assert scheduler.write() == [Due("n0", "1", ())]
    assert scheduler.write() == []
    scheduler.state.set_status(report(wishes=()))
    assert scheduler.write() == []


def test_a_watch_that_is_faster_than_the_answer_is_believed(scheduler: Scheduler) -> None:
    """What the object says was seen before the write's own answer came: the next write must build on that version."""
    pod_a = scheduler.create("a")
    assert isinstance(decide(scheduler.state, pod_a), Waiting)
    (due,) = scheduler.state.wishes.due()
    assert due.version == "1"
    scheduler.state.set_status(report(wishes=due.wishes, version="2"))
    scheduler.state.set_status(report(MADE, wishes=due.wishes, version="3"))
    scheduler.state.wishes.written(due)
    pod_b = scheduler.create("b")
    assert isinstance(decide(scheduler.state, pod_b), Waiting)
    (again,) = scheduler.state.wishes.due()
    assert again.version == "3"
    assert {wish.pod_uid for wish in again.wishes} == {"uid-a", "uid-b"}
