"""MIG instances that an agent creates for a pod, with every failure between request and Binding."""

import pytest

from allocation.allocation import Allocation, CardShare
from allocation.inventory import Card, NodeInventory
from allocation.mig import InstanceRequest, Slices
from allocation.names import ALLOCATION, HAMI_MIG
from allocation.placement.mig_plan import NewInstance, Plan
from allocation.steps import finish
from allocation.wire.environment import hami_annotations
from allocation.wire.record import encode
from cluster.gpu_node_status import GpuNodeStatus, Spec, status_of
from cluster.metadata import ObjectMeta
from cluster.mig_status import InstanceRequestStatus
from scheduler.binding.binder import allocation_annotations
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.mig.requests import Due
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from tests.allocation.support.mig_cards import instance, mig_card
from tests.scheduler.support.builders import Clock, lease, node, pod, state
from tests.scheduler.support.scheduling import forget, schedule

CARD = "GPU-n0-0"
REQUEST = InstanceRequest("uid-a/0", CARD, "1g.5gb", Slices(6, 1))
CREATED = instance(0, "1g.5gb", 6, request_id="uid-a/0")


def report(
    *cards: Card,
    requests: tuple[InstanceRequest, ...] | None = None,
    results: tuple[InstanceRequestStatus, ...] = (),
    version: str = "1",
) -> GpuNodeStatus:
    """Return the GpuNodeStatus of node n0: a card that the agent partitions, `cards`, requests and their results."""
    status = status_of(NodeInventory("n0", (mig_card(0, by="agent"), *cards)))
    if results:
        status.mig_instances = results
    return GpuNodeStatus(ObjectMeta(name="n0", resource_version=version), status, Spec("n0", requests))


class Scheduler:
    """A scheduler's state with one node, and the writes that are due."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.state: ClusterState = state(clock=self.clock)
        self.state.set_node(node("n0"))
        self.state.agent_reports.set(report())

    def create(self, name: str, memory: int = 100) -> Pod:
        """Create a pod."""
        made = pod(name, memory=memory)
        self.state.set_pod(made)
        return made

    def pass_time(self, seconds: float) -> None:
        """Let time pass while the agent renews its Lease."""
        self.clock.now += seconds
        self.state.set_lease(lease("n0", renewed=f"2026-01-01T00:{int(self.clock.now) % 60:02}:00.000000Z"))

    def write(self) -> list[Due]:
        """Write all due lists, and return them."""
        due = self.state.instance_requests.due()
        for each in due:
            self.state.instance_requests.mark_written(each)
        return due

    def used(self, uuid: str) -> int:
        """Return how many slots of a card are in use."""
        position = self.state.ledger.position(uuid)
        assert position is not None
        return int(self.state.ledger.used[2, *position])


@pytest.fixture
def scheduler() -> Scheduler:
    """A scheduler with one node whose agent creates instances."""
    return Scheduler()


def bound(name: str, decision: object) -> Pod:
    """Return the pod as the watch shows it after its Binding."""
    assert isinstance(decision, Scheduled)
    annotations = allocation_annotations(decision, unix_seconds=0)
    return pod(name, memory=100, node="n0", phase="Running", annotations=annotations)


def test_an_instance_is_requested_and_then_bound(scheduler: Scheduler) -> None:
    """Requested, reserved, created, bound: the request stays in the list as long as the pod has its instance."""
    a = scheduler.create("a")
    decision = finish(schedule(scheduler.state, a))
    assert isinstance(decision, Unschedulable)
    assert decision.note == f"MigInstanceAsked: no free MIG instance fits; asked node(n0) to make 1g.5gb on card {CARD}"
    assert scheduler.write() == [Due("n0", "1", (REQUEST,))]
    again = finish(schedule(scheduler.state, a))
    assert isinstance(again, Unschedulable)
    assert (again.note, again.requested_instances) == (decision.note, None)
    assert scheduler.write() == []
    scheduler.state.agent_reports.set(report(CREATED, requests=(REQUEST,)))
    chosen = finish(schedule(scheduler.state, a))
    assert isinstance(chosen, Scheduled)
    assert chosen.allocation is not None
    assert chosen.allocation.containers["main"] == (CardShare("MIG-n0-0-6", 0, 4864, 142, CARD),)
    assert scheduler.used("MIG-n0-0-6") == 1
    scheduler.state.set_pod(bound("a", chosen), a)
    assert scheduler.used("MIG-n0-0-6") == 1
    assert scheduler.write() == []
    scheduler.state.drop_pod(bound("a", chosen))
    assert scheduler.write() == [Due("n0", "1", ())]


def test_the_binding_has_the_annotations_of_hamis_tools(scheduler: Scheduler) -> None:
    """The Binding carries HAMi's MIG annotation and the environment."""
    a = scheduler.create("a")
    finish(schedule(scheduler.state, a))
    scheduler.state.agent_reports.set(report(CREATED, requests=(REQUEST,)))
    chosen = finish(schedule(scheduler.state, a))
    assert isinstance(chosen, Scheduled)
    annotations = allocation_annotations(chosen, unix_seconds=0)
    assert annotations["nvidia-visible-devices.gpu.scheduling/main"] == "runtime.nvidia.com/gpu=MIG-n0-0-6"
    assert annotations["cuda-visible-devices.gpu.scheduling/main"] == "MIG-n0-0-6"
    assert '"gpuUUID":"GPU-n0-0","profile":"1g.5gb","placement":{"start":6,"size":1}' in annotations[HAMI_MIG]
    assert chosen.allocation is not None
    plain = hami_annotations(chosen.allocation, chosen.request, unix_seconds=0)
    assert HAMI_MIG not in plain


def test_an_instance_is_for_its_pod_only(scheduler: Scheduler) -> None:
    """No other pod gets it before its pod is bound, or after its pod was deleted and before it is destroyed."""
    a, b = scheduler.create("a"), scheduler.create("b")
    finish(schedule(scheduler.state, a))
    finish(schedule(scheduler.state, b))
    assert [request.slices.start for request in scheduler.write()[0].requests] == [6, 5]
    scheduler.state.agent_reports.set(report(CREATED, requests=(REQUEST,)))
    assert isinstance(finish(schedule(scheduler.state, b)), Unschedulable)
    chosen = finish(schedule(scheduler.state, a))
    scheduler.state.set_pod(bound("a", chosen), a)
    scheduler.state.drop_pod(bound("a", chosen))
    assert scheduler.used("MIG-n0-0-6") == 1
    assert isinstance(finish(schedule(scheduler.state, b)), Unschedulable)
    scheduler.write()
    scheduler.state.agent_reports.set(report(CREATED, requests=()))
    assert scheduler.used("MIG-n0-0-6") == 1
    scheduler.state.agent_reports.set(report(requests=()))
    assert not any(True for _ in scheduler.state.ledger.reservations())


def test_an_existing_instance_is_preferred(scheduler: Scheduler) -> None:
    """Nothing is requested while an instance of an administrator is free."""
    scheduler.state.agent_reports.set(report(instance(0, "3g.20gb", 0)))
    chosen = finish(schedule(scheduler.state, scheduler.create("a")))
    assert isinstance(chosen, Scheduled)
    assert scheduler.write() == []


def test_the_request_of_a_deleted_pod_is_removed(scheduler: Scheduler) -> None:
    """Whether the pod is being deleted or was deleted before the instance exists."""
    for deleted in (None, "2026-01-01T00:00:00Z"):
        a = scheduler.create("a")
        finish(schedule(scheduler.state, a))
        scheduler.write()
        if deleted:
            scheduler.state.set_pod(pod("a", memory=100, deleted=deleted), a)
        else:
            scheduler.state.drop_pod(a)
        assert scheduler.write() == [Due("n0", "1", ())]
        scheduler.state.drop_pod(a)


def test_the_request_of_a_pod_that_fits_elsewhere_is_removed(scheduler: Scheduler) -> None:
    """Another instance became free meanwhile."""
    a = scheduler.create("a")
    finish(schedule(scheduler.state, a))
    scheduler.write()
    scheduler.state.agent_reports.set(report(instance(0, "2g.10gb", 0), requests=(REQUEST,)))
    assert isinstance(finish(schedule(scheduler.state, a)), Scheduled)
    assert scheduler.write() == [Due("n0", "1", ())]


def test_a_request_is_given_up_after_its_timeout(scheduler: Scheduler) -> None:
    """The pod gets its reasons again; after the card has cooled down, a request with another ID is made."""
    a = scheduler.create("a")
    finish(schedule(scheduler.state, a))
    scheduler.write()
    scheduler.pass_time(121)
    assert scheduler.write() == [Due("n0", "1", ())]
    scheduler.state.agent_reports.set(report(requests=(REQUEST,)))
    assert scheduler.write() == [Due("n0", "1", ())]
    decision = finish(schedule(scheduler.state, a))
    assert isinstance(decision, Unschedulable)
    assert "1/1 CardMigTopologyInfeasible" in decision.note
    scheduler.pass_time(121)
    assert isinstance(finish(schedule(scheduler.state, a)), Unschedulable)
    (due,) = scheduler.write()
    assert [request.id for request in due.requests] == ["uid-a/1"]


@pytest.mark.parametrize("refused", [True, False])
def test_a_request_that_the_agent_rejects_is_given_up(scheduler: Scheduler, refused: bool) -> None:  # noqa: FBT001
    """At once, without waiting for the timeout."""
    a = scheduler.create("a")
    finish(schedule(scheduler.state, a))
    scheduler.write()
    result = InstanceRequestStatus(REQUEST.id, REQUEST.card, REQUEST.profile, REQUEST.slices, "no", refused=refused)
    scheduler.state.agent_reports.set(report(requests=(REQUEST,), results=(result,)))
    assert scheduler.write() == [Due("n0", "1", ())]
    assert scheduler.state.instance_requests.cooling_down() == {CARD}


def test_an_instance_stays_reserved_after_a_failed_binding(scheduler: Scheduler) -> None:
    """The pod is bound with the same instance later; no other pod gets it meanwhile."""
    a = scheduler.create("a")
    finish(schedule(scheduler.state, a))
    scheduler.write()
    scheduler.state.agent_reports.set(report(CREATED, requests=(REQUEST,)))
    finish(schedule(scheduler.state, a))
    forget(scheduler.state, a)
    assert scheduler.used("MIG-n0-0-6") == 1
    assert scheduler.write() == []
    assert isinstance(finish(schedule(scheduler.state, a)), Scheduled)


@pytest.mark.parametrize("order", ["pod first", "report first"])
@pytest.mark.parametrize("when", ["requested", "created", "bound", "deleted", "never requested"])
def test_the_next_leader_restores_requests_and_instances(order: str, when: str) -> None:
    """After a crash at any step, the objects are enough, in whatever order they are read."""
    share = CardShare("MIG-n0-0-6", 0, 4864, 142, CARD)
    annotations = {ALLOCATION: encode(Allocation("n0", {"main": (share,)}))}
    waits = pod("a", memory=100)
    runs = pod("a", memory=100, node="n0", phase="Running", annotations=annotations)
    pods = {"requested": [waits], "created": [waits], "bound": [runs], "deleted": [], "never requested": [waits]}[when]
    status = {
        "requested": report(requests=(REQUEST,)),
        "created": report(CREATED, requests=(REQUEST,)),
        "bound": report(CREATED, requests=None),  # even if the object was deleted meanwhile
        "deleted": report(CREATED, requests=(REQUEST,)),
        "never requested": report(),
    }[when]
    after = state()
    after.set_node(node("n0"))
    steps = [lambda: after.agent_reports.set(status), lambda: [after.set_pod(each) for each in pods]]
    for step in steps if order == "report first" else reversed(steps):
        step()
    due = [each.requests for each in after.instance_requests.due()]
    assert due == {"requested": [], "created": [], "bound": [(REQUEST,)], "deleted": [()], "never requested": []}[when]
    if when == "requested":
        decision = finish(schedule(after, waits))
        assert isinstance(decision, Unschedulable)
        assert "asked node(n0)" in decision.note
        assert after.instance_requests.due() == []
    if when == "created":
        assert isinstance(finish(schedule(after, waits)), Scheduled)
    if when in ("bound", "deleted"):
        position = after.ledger.position("MIG-n0-0-6")
        assert position is not None
        assert after.ledger.used[2, *position] == 1


def test_a_request_stays_while_the_instance_is_not_reported(scheduler: Scheduler) -> None:
    """An agent that restarts must not destroy an instance that a pod uses."""
    a = scheduler.create("a")
    finish(schedule(scheduler.state, a))
    scheduler.write()
    scheduler.state.agent_reports.set(report(CREATED, requests=(REQUEST,)))
    chosen = finish(schedule(scheduler.state, a))
    scheduler.state.set_pod(bound("a", chosen), a)
    scheduler.state.agent_reports.set(report(requests=(REQUEST,)))
    assert scheduler.write() == []
    scheduler.state.agent_reports.drop(report())
    assert scheduler.write() == []


def test_the_claim_of_an_agent_affects_no_waiting_pod(scheduler: Scheduler) -> None:
    """An instance that was not requested, but names a waiting pod, is ignored: the pod makes its own request."""
    a = scheduler.create("a")
    scheduler.state.agent_reports.set(report(instance(0, "3g.20gb", 0, request_id="uid-a/7")))
    decision = finish(schedule(scheduler.state, a))
    assert isinstance(decision, Unschedulable)
    (due,) = scheduler.write()
    assert [(request.id, request.profile) for request in due.requests] == [("uid-a/8", "1g.5gb")]


def test_an_instance_without_pod_is_destroyed_even_if_there_is_no_list(scheduler: Scheduler) -> None:
    """The object and the pod were deleted: an empty list is written, so that the agent destroys the instance."""
    scheduler.state.agent_reports.set(report(CREATED))
    assert scheduler.write() == [Due("n0", "1", ())]
    assert scheduler.write() == []
    scheduler.state.agent_reports.set(report(requests=()))
    assert scheduler.write() == []


def test_a_write_does_not_overwrite_a_newer_version(scheduler: Scheduler) -> None:
    """The watch shows newer versions before the response to the write arrives; the next write uses the newest."""
    pod_a = scheduler.create("a")
    assert isinstance(finish(schedule(scheduler.state, pod_a)), Unschedulable)
    (due,) = scheduler.state.instance_requests.due()
    assert due.version == "1"
    scheduler.state.agent_reports.set(report(requests=due.requests, version="2"))
    scheduler.state.agent_reports.set(report(CREATED, requests=due.requests, version="3"))
    scheduler.state.instance_requests.mark_written(due)
    pod_b = scheduler.create("b")
    assert isinstance(finish(schedule(scheduler.state, pod_b)), Unschedulable)
    (again,) = scheduler.state.instance_requests.due()
    assert again.version == "3"
    assert {request.pod_uid for request in again.requests} == {"uid-a", "uid-b"}


def test_slices_that_are_requested_between_the_steps_are_not_requested_again() -> None:
    """The plan of a pod is made again in the step that requests its instances."""
    made = Scheduler()
    count = sum(1 for _ in schedule(made.state, made.create("a")))
    made = Scheduler()
    steps = schedule(made.state, made.create("a"))
    for _ in range(count):
        next(steps)
    made.create("b")
    made.state.instance_requests.add("uid-b", Plan("n0", (NewInstance(CARD, "1g.5gb", Slices(6, 1)),)))
    decision = finish(steps)
    assert isinstance(decision, Unschedulable)
    assert decision.note.endswith(f"asked node(n0) to make 1g.5gb on card {CARD}")
    slices = [each.slices for due in made.write() for each in due.requests]
    assert len(slices) == len(set(slices)) == 2
