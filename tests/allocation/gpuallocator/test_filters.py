"""Each stage leaves out the right cards, in order, with details whose differences add up, and changes nothing."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.adjustment import Amounts
from allocation.errors import AllocationError
from allocation.fairness.quota_spec import QuotaSpec, TotalQuota
from allocation.gpuallocator.filters import NoCardsError
from allocation.gpuallocator.quota_store import QuotaExceededError
from allocation.inventory import Card
from allocation.label_selector import of_labels
from allocation.mig import MODE, MigInstance, MigProfile, Slices
from tests.allocation.support.gpu_allocator import GIB, allocator, card, inventory, request

if TYPE_CHECKING:
    from allocation.gpuallocator.allocator import GpuAllocator
    from allocation.gpuallocator.requests import AllocRequest

PROFILE = MigProfile("1g.10gb", 9728, 142, 1, tuple(Slices(start, 1) for start in range(7)))


def instance(index: int, profile: str = "1g.10gb", memory: int = 9728) -> Card:
    """Return an instance of the card in MIG mode of node d."""
    own = MigInstance("d-0", profile, Slices(index, 1))
    return card(
        "d",
        0,
        uuid=f"MIG-{index}",
        memory_mib=memory,
        cores=142,
        slots=1,
        model=f"A100 MIG {profile}",
        mode=MODE,
        instance=own,
    )


def mixed() -> GpuAllocator:
    """Return an allocator with cards of every kind on four nodes."""
    made, _ = allocator(0)
    made.set_node(inventory("a", card("a", 0), card("a", 1)), {"pool": "p", "zone": "1"})
    made.set_node(inventory("b", card("b", 0, healthy=False), card("b", 1, model="H100")), {"pool": "p", "zone": "2"})
    made.set_node(inventory("c", card("c", 0, memory_mib=8 * GIB), card("c", 1)), {"pool": "p", "zone": "2"})
    parent = card("d", 0, mode=MODE, mig_profiles=(PROFILE,), instances_by="agent")
    made.set_node(inventory("d", parent, instance(0), instance(1, "2g.20gb", 19456)), {"pool": "p", "zone": "2"})
    made.bind(["a-0"], request("first", memory=75 * GIB, cores=500, isolation="hard"))
    return made


def gpus(made: GpuAllocator) -> list[str]:
    """Return all cards."""
    return [name for own in made.get_node_gpu_store().values() for name in own]


def out(made: GpuAllocator, asked: AllocRequest) -> dict[str, set[str]]:
    """Return which cards each stage leaves out."""
    _, details = made.filter(asked, gpus(made), simulate=True)
    return {each.filter_name: {*each.before} - {*each.after} for each in details if each.diff}


MIG = {"d-0", "MIG-0", "MIG-1"}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (request(), {"Phase": {"b-0"}, "IsolationMode": MIG, "Resource": {"a-0", "c-0"}}),
        (request(memory=0, cores=501), {"Phase": {"b-0"}, "IsolationMode": MIG, "Resource": {"a-0"}}),
        (
            request(indices=frozenset({1})),
            {"Phase": {"b-0"}, "Index": {"a-0", "c-0", *MIG}},
        ),
        (
            request(isolation="shared"),
            {"Phase": {"b-0"}, "IsolationMode": MIG, "SharedWholeGPU": {"a-0"}},
        ),
        (
            request(isolation="partitioned", partition_template="1g.10gb", memory=9000),
            {
                "Phase": {"b-0"},
                "IsolationMode": {"a-0", "a-1", "b-1", "c-0", "c-1", "d-0"},
                "PartitionTemplate": {"MIG-1"},
            },
        ),
        (
            request(model="H100"),
            {"Phase": {"b-0"}, "IsolationMode": MIG, "Resource": {"a-0", "c-0"}, "Model": {"a-1", "c-1"}},
        ),
        (
            request(model="h100"),
            {"Phase": {"b-0"}, "IsolationMode": MIG, "Resource": {"a-0", "c-0"}, "Model": {"a-1", "b-1", "c-1"}},
        ),
        (
            request(vendor="AMD"),
            {"Phase": {"b-0"}, "IsolationMode": MIG, "Resource": {"a-0", "c-0"}, "Vendor": {"a-1", "b-1", "c-1"}},
        ),
        (
            request(memory=GIB, count=2),
            {"Phase": {"b-0"}, "IsolationMode": MIG, "SameNode": {"b-1"}},
        ),
    ],
)
def test_each_stage_leaves_out_its_cards(asked: AllocRequest, expected: dict[str, set[str]]) -> None:
    """A card is left out by the first stage that it fails."""
    assert out(mixed(), asked) == expected


def test_affinity_and_vendor() -> None:
    """The labels of the node decide; our cards are NVIDIA's."""
    made = mixed()
    pod = request().pod
    asked = request(vendor="NVIDIA", pod=type(pod)(pod.uid, "ns", "x", affinity=of_labels({"zone": "2"})))
    assert out(made, asked)["NodeAffinity"] == {"a-1"}
    assert made.filter(asked, gpus(made))[0] == ("b-1", "c-1")


def test_dynamic_policy_locks_a_card_to_the_mode_of_its_pods() -> None:
    """Until it is empty again; partitions are not permitted at all."""
    made = mixed()
    small = request(memory=GIB)
    assert "IsolationPolicy" not in out(made, small)
    made.set_isolation_policy("dynamic")
    assert made.isolation_policy == "dynamic"
    assert out(made, small)["IsolationPolicy"] == {"a-0"}
    assert not made.is_gpu_isolation_compatible(small, "a-0")
    with pytest.raises(AllocationError, match="card a-0 on node a is locked to isolation hard, not soft"):
        made.assume(["a-0"], small)
    with pytest.raises(AllocationError, match="excludes partitions"):
        made.filter(request(isolation="partitioned"), [])
    with pytest.raises(AllocationError, match="excludes partitions"):
        made.filter_with_preempt(request(isolation="partitioned"), ["uid-first"])
    with pytest.raises(AllocationError, match="excludes partitions"):
        made.check_quota_and_filter_single_node_preempt("d", request(isolation="partitioned"), ["uid-first"])
    assert "IsolationPolicy" not in out(made, request(memory=GIB, isolation="hard"))
    made.dealloc("uid-first")
    assert "IsolationPolicy" not in out(made, small)


def test_details_survive_that_no_node_has_enough_cards() -> None:
    """TensorFusion loses them."""
    made = mixed()
    with pytest.raises(NoCardsError, match="fewer than 3 GPUs that fit on any node") as caught:
        made.check_quota_and_filter(request(count=3), simulate=True)
    assert [each.filter_name for each in caught.value.details][-1] == "SameNode"
    assert sum(each.diff for each in caught.value.details) == len(gpus(made))
    with pytest.raises(NoCardsError) as caught:
        made.check_quota_and_filter(request(memory=90 * GIB, model="A100"), simulate=True)
    assert str(caught.value) == "no card of pool p fits pod uid-x"
    assert [each.filter_name for each in caught.value.details][-1] == "Resource"
    assert made.filter(request(), gpus(made))[1] == ()


@given(
    memory=st.integers(0, 90) | st.just(0),
    count=st.integers(1, 3),
    isolation=st.sampled_from(["soft", "hard", "shared", "partitioned"]),
    model=st.sampled_from(["", "A100", "H100"]),
    indices=st.frozensets(st.integers(0, 2)),
)
def test_differences_add_up_and_nothing_changes(**fields: object) -> None:
    """Whatever is requested, also with preemption."""
    made = mixed()
    asked = request(**{**fields, "memory": fields["memory"] * GIB})  # type: ignore[operator, arg-type]
    before = (made.get_allocation_info(), made.ledger.used.tolist())
    try:
        left, details = made.filter(asked, gpus(made), simulate=True)
    except NoCardsError as error:
        left, details = (), error.details
    assert sum(each.diff for each in details) + len(left) == len(gpus(made))
    for one, two in itertools.pairwise(details):
        assert one.after == two.before
    try:
        assert {*made.filter_with_preempt(asked, ["uid-first"])} >= {name for name in left if name[0] == "a"}
    except NoCardsError:
        assert not [name for name in left if name[0] == "a"]
    assert (made.get_allocation_info(), made.ledger.used.tolist()) == before


def test_victims_give_back_their_cards_and_their_quota() -> None:
    """Those of other namespaces give back no quota; the limit of a single pod is never relieved."""
    made, _ = allocator(1)
    made.bind(["a-0", "a-1"], request("big", memory=80 * GIB, cores=1000, count=2))
    asked = request(count=2)
    assert made.filter(asked, ["a-0", "a-1"])[0] == ()
    assert made.filter_with_preempt(asked, ["uid-big"]) == ("a-0", "a-1")
    quotas = made.get_quota_store()
    quotas.set_quota("ns", "q", QuotaSpec(TotalQuota({"nvidia.com/gpu": 2}, max_pods=1)))
    with pytest.raises(QuotaExceededError, match="GpuQuota q limits nvidia.com/gpu to 2: 2 used, 2 requested"):
        made.check_quota_and_filter_single_node_preempt("a", asked, [])
    assert made.check_quota_and_filter_single_node_preempt("a", asked, ["uid-big"]) == ("a-0", "a-1")
    made.set_max_worker_per_node(1)
    assert made.check_quota_and_filter_single_node_preempt("a", asked, ["uid-big"]) == ("a-0", "a-1")
    quotas.set_quota("other", "q", QuotaSpec(TotalQuota({"nvidia.com/gpu": 1})))
    with pytest.raises(QuotaExceededError, match="limits nvidia.com/gpu to 1"):
        made.check_quota_and_filter_single_node_preempt("a", request(count=2, namespace="other"), ["uid-big"])
    with pytest.raises(AllocationError, match="no node is affected"):
        made.filter_with_preempt(asked, [])
    with pytest.raises(AllocationError, match="pod uid-unknown, which would be preempted, has no cards"):
        made.filter_with_preempt(asked, ["uid-unknown"])
    made.set_node(inventory("a", card("a", 1)), {"pool": "p"})
    with pytest.raises(AllocationError, match="card a-0 of pod uid-big, which would be preempted, is gone"):
        made.filter_with_preempt(asked, ["uid-big"])


def test_partition_for_a_new_instance_is_the_schedulers_choice() -> None:
    """1g.10gb fits seven times; the instances that are there keep their places."""
    made = mixed()
    asked = request(isolation="partitioned", memory=9000)
    found = made.get_matched_partition(asked, "d-0")
    assert found is not None
    assert (found[0].name, found[1].start) == ("1g.10gb", 6)
    full = [instance(index) for index in range(7)]
    made.set_node(inventory("d", card("d", 0, mode=MODE, mig_profiles=(PROFILE,), instances_by="agent"), *full), {})
    assert made.get_matched_partition(asked, "d-0") is None
    assert made.get_matched_partition(asked, "a-1") is None


A100 = (
    PROFILE,
    MigProfile("2g.20gb", 19968, 285, 2, tuple(Slices(start, 2) for start in (0, 2, 4))),
    MigProfile("3g.40gb", 40192, 428, 3, (Slices(0, 4), Slices(4, 4))),
    MigProfile("4g.40gb", 40192, 571, 4, (Slices(0, 4),)),
)


@pytest.mark.parametrize(
    ("taken", "profile", "start"),
    [
        ([Slices(0, 2), Slices(2, 2)], "2g.20gb", 4),
        ([Slices(0, 2), Slices(2, 2), Slices(4, 2)], "2g.20gb", None),
        ([Slices(0, 2), Slices(4, 2)], "2g.20gb", 2),
        ([Slices(4, 4)], "4g.40gb", 0),
        ([Slices(0, 4), Slices(4, 4)], "1g.10gb", None),
    ],
)
def test_instances_never_overlap(taken: list[Slices], profile: str, start: int | None) -> None:
    """A place that is free again is used again; 3g and 4g leave nothing."""
    made, _ = allocator(0)
    own = [
        card("a", 0, uuid=f"MIG-{each.start}", slots=1, mode=MODE, instance=MigInstance("a-0", "any", each))
        for each in taken
    ]
    parent = card("a", 0, mode=MODE, mig_profiles=A100, instances_by="agent")
    made.set_node(inventory("a", parent, *own), {"pool": "p"})
    asked = request(isolation="partitioned", partition_template=profile, memory=1)
    found = made.get_matched_partition(asked, "a-0")
    assert (found[1].start if found is not None else None) == start


def test_instance_is_charged_whole_and_free_again_after_its_pod() -> None:
    """Also after a restart; no second pod has it meanwhile."""
    made = mixed()
    asked = request(isolation="partitioned", memory=1, cores=1)
    assert made.alloc(asked)[0].name == "MIG-0"
    assert made.get_allocation_info()[0]["MIG-0"].available == Amounts()
    assert made.get_quota_store().used("ns").memory_mib == 75 * GIB + 9728
    again = mixed()
    nodes = {"a-0": "a", "MIG-0": "d"}
    again.reconcile_allocation_state([(each, nodes[each.gpu_names[0]]) for each in made.lifecycle.allocated.values()])
    for each in (made, again):
        with pytest.raises(AllocationError):
            each.bind(["MIG-0"], request("y", isolation="partitioned", memory=1))
    assert made.dealloc("uid-x")
    made.bind(["MIG-0"], request("y", isolation="partitioned", memory=1))


def test_limits_are_not_placed_by() -> None:
    """Only requests count against a card."""
    made, _ = allocator(1, cards=1)
    made.bind(["a-0"], request("one", memory=GIB, limit=Amounts(80 * GIB, 1000)))
    assert made.filter(request(memory=79 * GIB), ["a-0"])[0] == ("a-0",)
