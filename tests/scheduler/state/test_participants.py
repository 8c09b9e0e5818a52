"""What counts pods with a node: each participant forgets exactly what it counted, in the reverse order."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.allocation import Allocation, ClaimMark
from allocation.errors import AllocationError, OverCapacityError
from allocation.steps import finish
from scheduler.cycle.result import Scheduled
from scheduler.fairness.use import UseByOwner
from scheduler.objects import Pod
from scheduler.state.allocated_time import AllocatedTime
from scheduler.state.cluster_state import ClusterState
from scheduler.state.participants import (
    CardLeases,
    Cards,
    NamespaceQuotas,
    NodeResources,
    Participants,
    Placed,
    QueueShares,
    Volumes,
)
from scheduler.state.workload import Workload
from scheduler.volumes.bindings import ClaimKey, VolumeBindings
from tests.scheduler.support.builders import node, pod, state, status
from tests.scheduler.support.scheduling import cycle_of
from tests.scheduler.support.storage import claim, mounts, storage_class
from tests.scheduler.support.worlds import World

PENDING = 4


def cards(made: ClusterState) -> object:
    """Return who holds which cards, what columns have of it, and what Leases and MIG requests keep."""
    held = {each.uid: (each.node, each.charges) for each in made.ledger.reservations()}
    unwanted = {lease.name for lease in made.device_leases.unwanted()}
    return held, made.ledger.used.tolist(), made.ledger.fullness.tolist(), unwanted, len(made.instance_requests)


def sums(use: UseByOwner[Any]) -> object:
    """Return the pods of each owner, and their sums."""
    return use.snapshot(), {owner: (use.of(owner).amounts, use.of(owner).pods) for owner in use}


def node_resources(made: ClusterState) -> object:
    """Return the pods of each node, what they use of it, and who their neighbours are."""
    cache, names = made.node_cache, sorted(made.node_cache.names)
    used = {name: {key: amount for key, amount in cache.used.get(name, {}).items() if amount} for name in names}
    spaces = ("default", *cache.namespaces)
    groups = {(space, str(each.labels), str(each.nodes)) for space in spaces for each in cache.pod_index.of(space)}
    scored = cache.scored_requests
    return (
        {name: sorted(cache.pods_of(name)) for name in names},
        used,
        groups,
        {name: scored.on(name) for name in names} if scored is not None else {},
    )


def volumes(made: ClusterState) -> object:
    """Return the volumes in use of each pod, by node and by claim, and what is assumed for claims."""
    in_use, assumptions = made.volumes._in_use, made.volumes._assumptions
    return {name: str(value) for of in (in_use, assumptions) for name, value in vars(of).items()}


def workload(counted: Workload) -> object:
    """Return what the pods with cards request, in sum, by models and of each pod."""
    by_models = dict(counted._by_accepted), dict(counted._used)
    return counted._cpu, counted._memory, counted._size, by_models, dict(counted._pods)


def shares(made: ClusterState) -> object:
    """Return what each queue pays, and the pods that pay by their labels."""
    return sums(made.fair_share.use), sorted(made.fair_share._by_labels)


VIEWS: dict[type, Callable[[ClusterState], object]] = {
    Cards: cards,
    NamespaceQuotas: lambda made: sums(made.quotas.counted),
    NodeResources: node_resources,
    Workload: lambda made: workload(made.workload),
    Volumes: volumes,
    QueueShares: shares,
    AllocatedTime: lambda made: (made.allocated_time.held, dict(made.allocated_time._pods)),
    CardLeases: lambda made: made.device_leases.pods(),
}
"""What a participant counts."""


def placed(made: ClusterState, pending: Pod, *, is_assumed: bool) -> Placed | None:
    """Return where a pod would be placed now; None if no node takes it."""
    found = finish(cycle_of(made).dry_run(pending)).result
    if not isinstance(found, Scheduled):
        return None
    return Placed(pending, found.node, found.allocation, found.charges, found.volumes, is_assumed)


def test_each_participant_has_a_view() -> None:
    """The next test does not leave one out."""
    assert [type(each) for each in state().participants] == list(VIEWS)


@pytest.mark.parametrize("position", range(len(VIEWS)), ids=[each.__name__ for each in VIEWS])
@given(seed=st.integers(0, 1 << 32))
def test_a_participant_forgets_exactly_what_it_counted(position: int, seed: int) -> None:
    """After it forgets a pod, it has what it had before, whatever other pods there are; twice is once."""
    world = World(seed)
    made = world.state
    participants = tuple(made.participants)
    view, participant = VIEWS[type(participants[position])], participants[position]
    for _ in range(PENDING):
        pending = world.pod()
        found = placed(made, pending, is_assumed=bool(seed % 2))
        if found is None:
            continue
        for each in participants[:position]:
            each.reserve(found)
        before = view(made)
        participant.reserve(found)
        for _ in range(2):
            participant.unreserve(pending.uid)
            assert view(made) == before
        participant.reserve(found)  # the next pods meet it
        for each in participants[position + 1 :]:
            each.reserve(found)


def test_the_volumes_of_a_pod_are_given_back_on_its_node() -> None:
    """What its claims are about to get and the disks that its node attaches; a pod without volumes changes nothing."""
    made = state("n1")
    made.storage.set_class(storage_class("fast", provisioner="csi.example.com"))
    made.storage.set_claim(claim("data", storage_class="fast"))
    waiting, bindings = pod("p", volumes=mounts("data")), VolumeBindings(provisioned=(ClaimKey("default", "data"),))
    changed: list[str] = []
    made.volumes._on_change = changed.append
    before = volumes(made)
    made.participants.reserve(Placed(waiting, "n1", volumes=bindings, is_assumed=True))
    assert volumes(made) != before
    made.participants.reserve(Placed(pod("q"), "n1"))
    made.participants.unreserve("uid-q")
    made.participants.unreserve(waiting.uid)
    assert volumes(made) == before
    assert changed == ["n1", "n1"]


@given(st.integers(0, 1 << 32))
def test_a_forgotten_decision_leaves_nothing(seed: int) -> None:
    """A decision counts for every participant that counts decisions, and forgetting it is its opposite."""
    world = World(seed)
    made, cycle = world.state, cycle_of(world.state)
    for _ in range(PENDING):
        pending = world.pod()
        before = {name: view(made) for name, view in VIEWS.items()}
        result = finish(cycle.schedule(pending))
        if not isinstance(result, Scheduled):
            continue
        counted = {name for name, view in VIEWS.items() if view(made) != before[name]}
        assert counted >= {NodeResources, QueueShares}
        assert (counted >= {Cards, NamespaceQuotas}) is (result.allocation is not None)
        cycle.forget(pending)
        assert {name: view(made) for name, view in VIEWS.items()} == before


class Recorder:
    """A participant that records its calls."""

    def __init__(self, name: str, calls: list[str], *, refuses: bool = False) -> None:
        self.name = name
        self.calls = calls
        self.refuses = refuses

    def reserve(self, _placed: Placed) -> None:
        """Record the call, or refuse it."""
        if self.refuses:
            raise AllocationError(self.name)
        self.calls.append(f"+{self.name}")

    def unreserve(self, _uid: str) -> None:
        """Record the call."""
        self.calls.append(f"-{self.name}")


def test_pods_are_forgotten_in_the_reverse_order() -> None:
    """A participant that needs another one forgets first."""
    calls: list[str] = []
    all_ = Participants(*(Recorder(name, calls) for name in "abc"))
    all_.reserve(Placed(pod("p"), "n"))
    all_.unreserve("uid-p")
    assert calls == ["+a", "+b", "+c", "-c", "-b", "-a"]


def test_what_one_participant_refuses_none_counts() -> None:
    """Those before it forget the pod again; those after it never hear of it."""
    calls: list[str] = []
    all_ = Participants(
        Recorder("a", calls), Recorder("b", calls), Recorder("c", calls, refuses=True), Recorder("d", calls)
    )
    with pytest.raises(AllocationError):
        all_.reserve(Placed(pod("p"), "n"))
    assert calls == ["+a", "+b", "-b", "-a"]


def test_cards_that_are_taken_are_not_assumed() -> None:
    """Not even by a decision that was made for another state: nothing of the pod is counted then."""
    made = state("n1", cards=1)
    first, second = pod("a", memory=600), pod("b", memory=600)
    found = [placed(made, each, is_assumed=True) for each in (first, second)]
    made.assume(found[0])  # type: ignore[arg-type]
    with pytest.raises(OverCapacityError):
        made.assume(found[1])  # type: ignore[arg-type]
    assert (made.node_cache.node_of(first.uid), made.node_cache.node_of(second.uid)) == ("n1", "")


@pytest.mark.parametrize("elsewhere", ["n1", "n2"])
def test_a_pod_that_another_binds_holds_what_a_recount_counts(elsewhere: str) -> None:
    """Its own Binding will be refused, so the cards that a decision gave it are free, and its quota is not used up."""
    made = state("n1")
    made.set_node(node("n2"))
    made.agent_reports.set(status("n2", healthy=False))
    waiting, bound = pod("p", memory=600), pod("p", memory=600, node=elsewhere, phase="Running")
    made.set_pod(waiting)
    assert isinstance(finish(cycle_of(made).schedule(waiting)), Scheduled)
    made.set_pod(bound, waiting)
    cycle_of(made).forget(waiting)  # its Binding was refused
    assert made.ledger.reservation("uid-p") is None
    assert made.node_cache.node_of("uid-p") == elsewhere
    assert made.quotas.use("default").pods == 0
    assert list(made.fair_share.use) == []


def test_the_cards_of_an_exclusive_claim_need_leases_while_the_pod_is_shown() -> None:
    """Not as long as it is assumed, because its Binding acquires them, and not after its end."""
    made, running = state("n1"), pod("p")
    allocation = Allocation("n1", {"main": ()}, claim=ClaimMark("c", "Exclusive"))
    for is_assumed in (True, False):
        made.participants.reserve(Placed(running, "n1", allocation, is_assumed=is_assumed))
        assert [each.uid for each in made.device_leases.pods()] == ([] if is_assumed else [running.uid])
        made.participants.unreserve(running.uid)
        assert made.device_leases.pods() == []
