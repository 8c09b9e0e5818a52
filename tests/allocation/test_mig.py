"""MIG: instances are cards that are taken whole; profiles and slices follow HAMi's rules 2.2."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation import mig
from allocation.allocation import Allocation, CardShare, charges
from allocation.errors import MalformedRecordError
from allocation.inventory import Card, NodeInventory
from allocation.ledger.ledger import Ledger
from allocation.mig import MigInstance, Slices
from allocation.placement.placement import Placement
from allocation.pod import Container, Resources
from allocation.quota import Headroom
from allocation.reasons import CardReason
from allocation.request import Kind, PodRequest
from allocation.settings import AllocationSettings
from allocation.wire import hami, mig_record
from allocation.wire.mig_record import MigAllocation
from allocation.wire.pod_allocation import read
from tests.allocation.ledger.test_ledger import recount
from tests.allocation.support.builders import container, pod, put, reasons
from tests.allocation.support.mig_cards import A100_PROFILES, instance, mig_card, shared


def node(*cards: Card) -> Ledger:
    """Return a ledger of one node n0 with these cards."""
    ledger = Ledger()
    ledger.set_node(NodeInventory("n0", cards))
    return ledger


def uuids(outcome: Any, name: str = "main") -> list[str]:
    """Return the UUIDs of a container's cards."""
    assert isinstance(outcome, Placement)
    return [share.uuid for share in outcome.allocation.containers[name]]


# ---- instances as cards --------------------------------------------------------------------------------------------


def test_an_instance_is_charged_whole() -> None:
    """Memory and cores are those of the profile, whatever the request, and no second pod joins (HAMi's rules 2.2)."""
    ledger = node(mig_card(0), instance(0, "1g.5gb", 6))
    outcome = put(ledger, pod(container(memory=100)))
    assert isinstance(outcome, Placement)
    (charge,) = outcome.charges
    assert (charge.uuid, charge.memory_mib, charge.cores, charge.slots) == ("MIG-n0-0-6", 4864, 142, 1)
    assert (
        reasons(put(ledger, pod(container(memory=100))))
        == "1/2 CardMigTopologyInfeasible, 1/2 CardTimeSlicingExhausted"
    )


def test_a_card_is_charged_for_its_instances() -> None:
    """The use of an instance counts once on its card, and is released with it."""
    ledger = node(mig_card(0), instance(0, "1g.5gb", 6), instance(0, "2g.10gb", 0))
    outcome = put(ledger, pod(container(memory=100), container("two", memory=9000)))
    assert isinstance(outcome, Placement)
    assert ledger.used[:, 0, 0].tolist() == [4864 + 9856, 142 + 285, 2, 0]
    ledger.release(next(ledger.reservations()).uid)
    assert not ledger.used.any()


def test_a_card_put_into_mig_mode_under_a_pod_offers_no_instances() -> None:
    """The pod has the card itself, so it may see any instance; they become free when the pod ends."""
    ledger = node(shared(0))
    put(ledger, pod(container(memory=100)))
    (reservation,) = ledger.reservations()
    ledger.set_node(NodeInventory("n0", (mig_card(0), instance(0, "1g.5gb", 6), instance(0, "1g.5gb", 5))))
    assert "CardMigTopologyInfeasible" in reasons(put(ledger, pod(container(memory=100))))
    assert np.array_equal(ledger.used, recount(ledger).used)
    ledger.release(reservation.uid)
    assert not ledger.used.any()
    assert uuids(put(ledger, pod(container(memory=100)))) == ["MIG-n0-0-6"]


def test_a_container_can_have_several_instances_of_one_card() -> None:
    """Each instance is a card of its own (HAMi's rules 2.2: never the same card twice, except MIG)."""
    ledger = node(mig_card(0), instance(0, "1g.5gb", 6), instance(0, "1g.5gb", 5))
    assert uuids(put(ledger, pod(container(count=2, memory=100)))) == ["MIG-n0-0-6", "MIG-n0-0-5"]


def test_the_smallest_instance_that_fits_is_selected() -> None:
    """Large instances stay free, whatever the card policy."""
    for policy in ("binpack", "spread"):
        ledger = node(mig_card(0), instance(0, "3g.20gb", 4), instance(0, "2g.10gb", 0), instance(0, "1g.5gb", 2))
        assert uuids(put(ledger, pod(container(memory=4000)), card_policy=policy)) == ["MIG-n0-0-2"]
        assert uuids(put(ledger, pod(container(memory=4000)), card_policy=policy)) == ["MIG-n0-0-0"]
        assert uuids(put(ledger, pod(container(memory=9857)), card_policy=policy)) == ["MIG-n0-0-4"]


def test_shared_cards_are_preferred_to_instances() -> None:
    """A share takes no more than requested of a shared card; a constraint on the mode can exclude it (rules 1.3)."""
    cards = (mig_card(0), instance(0, "1g.5gb", 6), shared(1))
    assert uuids(put(node(*cards), pod(container(memory=100)))) == ["GPU-n0-1"]
    assert uuids(put(node(*cards), pod(container(memory=100)), mode="mig")) == ["MIG-n0-0-6"]
    assert uuids(put(node(*cards), pod(container(memory=100)), mode="hami-core")) == ["GPU-n0-1"]
    ledger = node(*cards)
    ledger.set_cordon("n0", frozenset({"GPU-n0-1"}))
    assert uuids(put(ledger, pod(container(memory=100)))) == ["MIG-n0-0-6"]


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({"use_uuids": "GPU-n0-1"}, "MIG-n0-1-6"),
        ({"use_uuids": "MIG-n0-1-6"}, "MIG-n0-1-6"),
        ({"avoid_uuids": "GPU-n0-0"}, "MIG-n0-1-6"),
        ({"avoid_uuids": "MIG-n0-0-6"}, "MIG-n0-1-6"),
        ({"use_uuids": "GPU-n0-0", "avoid_uuids": "MIG-n0-0-6"}, None),
    ],
)
def test_uuids_select_an_instance_or_all_instances_of_a_card(annotations: dict[str, str], expected: str | None) -> None:
    """The UUID of a card includes all its instances."""
    ledger = node(mig_card(0), instance(0, "1g.5gb", 6), mig_card(1), instance(1, "1g.5gb", 6))
    outcome = put(ledger, pod(container(memory=100)), **annotations)
    if expected is None:
        assert reasons(outcome) == "1/4 CardMigTopologyInfeasible, 3/4 CardUuidMismatch"
    else:
        assert uuids(outcome) == [expected]


def test_instances_of_a_cordoned_or_unhealthy_card_take_no_pods() -> None:
    """An instance of a card that is not reported is unhealthy as well."""
    ledger = node(mig_card(0), instance(0, "1g.5gb", 6))
    ledger.set_cordon("n0", frozenset({"GPU-n0-0"}))
    assert reasons(put(ledger, pod(container(memory=100)))) == "2/2 CardCordoned"
    assert reasons(put(node(mig_card(0, healthy=False), instance(0, "1g.5gb", 6)), pod(container(memory=100)))) == (
        "2/2 CardNotHealth"
    )
    assert reasons(put(node(instance(0, "1g.5gb", 6)), pod(container(memory=100)))) == "1/1 CardNotHealth"


def test_a_percentage_refers_to_the_whole_card() -> None:
    """50 % of a card is more than 50 % of an instance; a whole card needs its largest instance."""
    ledger = node(mig_card(0), instance(0, "1g.5gb", 6), instance(0, "3g.20gb", 0))
    assert uuids(put(ledger, pod(container(percent=50)))) == ["MIG-n0-0-0"]
    ledger = node(mig_card(0), instance(0, "7g.40gb", 0))
    assert uuids(put(ledger, pod(container(percent=100, cores=1000)))) == ["MIG-n0-0-0"]


def test_an_instance_with_too_little_compute_is_rejected() -> None:
    """30 % of a card is more compute than 1g has."""
    ledger = node(mig_card(0), instance(0, "1g.5gb", 6))
    assert reasons(put(ledger, pod(container(memory=100, cores=300)))) == (
        "1/2 CardInsufficientCore, 1/2 CardMigTopologyInfeasible"
    )


def test_a_quota_counts_whole_instances() -> None:
    """100 MiB on an instance of 4864 MiB take 4864 MiB of the headroom, and all its cores."""
    for headroom in (Headroom(memory_mib=4863), Headroom(cores=141), Headroom(cards=0)):
        ledger = node(mig_card(0), instance(0, "1g.5gb", 6))
        assert "ResourceQuotaNotFit" in reasons(put(ledger, pod(container(memory=100)), headroom=headroom))
    ledger = node(mig_card(0), instance(0, "1g.5gb", 6))
    assert uuids(put(ledger, pod(container(memory=100)), headroom=Headroom(4864, 142, 1)))


def test_cards_whose_instances_hamis_plugin_creates_take_no_pods() -> None:
    """The plugin creates instances only for HAMi's pods, which are charged to the card all the same."""
    ledger = Ledger()
    ledger.set_node(hami.decode_register("n0", hami.encode_register(NodeInventory("n0", (mig_card(0), shared(1))))))
    ledger.record("hami", "n0", charges(Allocation("n0", {"c": (CardShare("GPU-n0-0", -1, 4864, 140),)}), pod()))
    assert ledger.used[:, 0, 0].tolist() == [4864, 140, 1, 0]
    assert reasons(put(ledger, pod(container(memory=100)), mode="mig")) == "1/2 CardTypeMismatch, 1/2 ModeNotFit"
    assert uuids(put(ledger, pod(container(memory=100)))) == ["GPU-n0-1"]


@given(
    st.lists(st.sampled_from(["1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"]), max_size=7),
    st.lists(st.tuples(st.integers(1, 45000), st.sampled_from([0, 100, 300, 1000])), max_size=8),
    st.integers(0, 2),
)
def test_charges_are_profiles_and_reasons_sum_to_the_cards(
    profiles: list[str], requests: list[tuple[int, int]], plain: int
) -> None:
    """For any instances and pods, no card is over capacity, and each card has exactly one reason."""
    cards: list[Card] = [mig_card(0)]
    taken: list[Slices] = []
    for name in profiles:
        choice = mig.suitable(
            [profile for profile in A100_PROFILES if profile.name == name], memory_on=lambda _: 0, cores=0, taken=taken
        )
        if choice is not None:
            taken.append(choice[1])
            cards.append(instance(0, name, choice[1].start))
    cards += [shared(index + 1) for index in range(plain)]
    ledger, by_uuid = node(*cards), {card.uuid: card for card in cards}
    for memory, cores in requests:
        outcome = put(ledger, pod(container(memory=memory, cores=cores)))
        if isinstance(outcome, Placement):
            (charge,) = outcome.charges
            card = by_uuid[charge.uuid]
            assert not card.is_mig_enabled
            if card.instance is not None:
                assert (charge.memory_mib, charge.cores, charge.slots) == (card.memory_mib, card.cores, 1)
        else:
            rejection = outcome.rejections["n0"]
            assert sum(rejection.counts.values()) == len(cards)
        assert (ledger.used <= ledger.total).all()
    assert np.array_equal(recount(ledger).used[:, 0, : len(cards)], ledger.used[:, 0, : len(cards)])
    for reservation in tuple(ledger.reservations()):
        ledger.release(reservation.uid)
    assert not ledger.used.any()


# ---- profiles and slices -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("memory", "taken", "expected"),
    [
        (100, [], ("1g.5gb", Slices(6, 1))),
        (100, [Slices(6, 1)], ("1g.5gb", Slices(5, 1))),
        (4865, [], ("2g.10gb", Slices(0, 2))),
        (4865, [Slices(0, 2)], ("2g.10gb", Slices(2, 2))),
        (10000, [], ("3g.20gb", Slices(4, 4))),
        (10000, [Slices(4, 4)], ("3g.20gb", Slices(0, 4))),
        (10000, [Slices(4, 4), Slices(0, 1)], None),
        (10000, [Slices(6, 1)], ("3g.20gb", Slices(0, 4))),
        (20000, [], ("7g.40gb", Slices(0, 8))),
        (20000, [Slices(6, 1)], None),
        (99999, [], None),
    ],
)
def test_hamis_rule_selects_profile_and_slices(
    memory: int, taken: list[Slices], expected: tuple[str, Slices] | None
) -> None:
    """The smallest profile that is large enough; 1g and 3g from the end, others from the start (HAMi's rules 2.2)."""
    choice = mig.suitable(A100_PROFILES, memory_on=lambda _: memory, cores=0, taken=taken)
    assert (choice and (choice[0].name, choice[1])) == expected


@given(st.lists(st.tuples(st.integers(0, 45000), st.integers(0, 1000)), max_size=20))
def test_instances_never_overlap(requests: list[tuple[int, int]]) -> None:
    """Each instance has its own slices, valid for its profile, and is large enough, for any number of requests."""
    taken: list[Slices] = []
    for memory, cores in requests:
        choice = mig.suitable(A100_PROFILES, memory_on=lambda _, memory=memory: memory, cores=cores, taken=taken)  # type: ignore[misc]
        if choice is None:
            continue
        profile, slices = choice
        assert profile.memory_mib >= memory
        assert profile.cores >= cores
        assert slices in profile.placements
        numbers = [number for each in (*taken, slices) for number in range(each.start, each.start + each.size)]
        assert len(set(numbers)) == len(numbers)
        taken.append(slices)


@pytest.mark.parametrize(
    ("steps", "starts"),
    [
        (["1g"] * 8, [6, 5, 4, 3, 2, 1, 0, None]),
        (["2g"] * 4, [0, 2, 4, None]),
        (["3g", "4g", "1g"], [4, 0, None]),
        (["2g", "2g", "2g", "free 2", "2g"], [0, 2, 4, 2]),
    ],
)
def test_an_a100_holds_as_many_instances_as_its_geometry_allows(steps: list[str], starts: list[int | None]) -> None:
    """Freed slices are used again."""
    taken: list[Slices] = []
    results: list[int | None] = []
    for step in steps:
        if step.startswith("free"):
            taken = [slices for slices in taken if slices.start != int(step.split()[1])]
            continue
        profiles = [profile for profile in A100_PROFILES if profile.name.startswith(step)]
        choice = mig.suitable(profiles, memory_on=lambda _: 0, cores=0, taken=taken)
        results.append(choice[1].start if choice is not None else None)
        taken += [choice[1]] if choice is not None else []
    assert results == starts


# ---- HAMi's formats ------------------------------------------------------------------------------------------------

REGISTER = (
    '[{"id":"GPU-n0-0","count":7,"devmem":40960,"devcore":100,"type":"NVIDIA A100-SXM4-40GB","mode":"mig",'
    '"health":true,"migProfiles":[{"name":"1g.5gb","memoryMB":4864,"core":14,"sliceCount":1,"placements":[{"start":0,"size":1},'
    '{"start":1,"size":1}]},{"name":"7g.40gb","memoryMB":40192,"core":100,"sliceCount":7,"placements":'
    '[{"start":0,"size":8}]}]}]'
)


def test_profiles_survive_the_register_annotation() -> None:
    """`migProfiles` are read and written in HAMi's form (HAMi's rules 1.1)."""
    inventory = hami.decode_register("n0", REGISTER)
    (card,) = inventory.cards
    assert card.is_mig_enabled
    assert [
        (profile.name, profile.memory_mib, profile.cores, profile.slice_count) for profile in card.mig_profiles
    ] == [
        ("1g.5gb", 4864, 140, 1),
        ("7g.40gb", 40192, 1000, 7),
    ]
    assert card.mig_profiles[0].placements == (Slices(0, 1), Slices(1, 1))
    assert hami.encode_register(inventory) == REGISTER


def test_instances_are_not_registered() -> None:
    """HAMi's register annotation has one entry for each physical card (HAMi's rules 1.1)."""
    registered = hami.decode_register(
        "n0", hami.encode_register(NodeInventory("n0", (mig_card(0), instance(0, "1g.5gb", 6), shared(1))))
    )
    assert [card.uuid for card in registered.cards] == ["GPU-n0-0", "GPU-n0-1"]


def _request() -> PodRequest:
    return PodRequest((container("init", Kind.INIT, count=0), container("main", count=2, memory=100)))


def test_annotations_of_a_pod_name_the_card_and_the_instance() -> None:
    """The allocation string has the card, the MIG annotation the instance (HAMi's rules 1.2)."""
    inventory = NodeInventory("n0", (mig_card(0), instance(0, "1g.5gb", 6), instance(0, "2g.10gb", 0)))
    shares = (CardShare("MIG-n0-0-6", 0, 4864, 142, "GPU-n0-0"), CardShare("MIG-n0-0-0", 0, 9856, 285, "GPU-n0-0"))
    allocation = Allocation("n0", {"main": shares})
    assert hami.allocation_string(allocation, _request()) == ";GPU-n0-0,NVIDIA,4864,15:GPU-n0-0,NVIDIA,9856,29:;"
    entries = mig_record.entries(allocation, _request(), inventory)
    text = mig_record.encode(entries)
    assert text == (
        '[{"containerIndex":1,"deviceIndex":0,"gpuUUID":"GPU-n0-0","profile":"1g.5gb","placement":{"start":6,"size":1},'
        '"migUUID":"MIG-n0-0-6","gpuInstanceID":7,"computeInstanceID":0},'
        '{"containerIndex":1,"deviceIndex":1,"gpuUUID":"GPU-n0-0","profile":"2g.10gb","placement":{"start":0,"size":2},'
        '"migUUID":"MIG-n0-0-0","gpuInstanceID":1,"computeInstanceID":0}]'
    )
    assert mig_record.decode(text) == entries


ENTRY = '{"containerIndex":0,"deviceIndex":0,"gpuUUID":"GPU-a","profile":"2g.10gb","placement":{"start":2,"size":2}%s}'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[" + ENTRY % "" + "," + ENTRY % "" + "]", "containerIndex 0, deviceIndex 0 appears twice"),
        ("[" + ENTRY % ',"migUUID":"MIG-a"' + "]", "or none of them"),
        ("[" + ENTRY % ',"gpuInstanceID":0,"computeInstanceID":0' + "]", "or none of them"),
        ("[" + (ENTRY % "").replace(":0,", ":-1,", 1) + "]", "Expected `int` >= 0"),
        ("[{", "vgpu-mig-allocations"),
        ("[{}]", "containerIndex"),
    ],
)
def test_malformed_mig_allocations_are_errors(text: str, expected: str) -> None:
    """The last three fields are set together, and a device appears once (HAMi's rules 1.2)."""
    with pytest.raises(MalformedRecordError, match=expected):
        mig_record.decode(text)


def test_an_entry_without_ids_is_read() -> None:
    """HAMi's plugin adds the IDs when it has created the instance (HAMi's rules 1.2)."""
    assert mig_record.decode("[" + ENTRY % "" + "]") == (
        MigAllocation(0, 0, "GPU-a", "2g.10gb", Slices(2, 2), None, None, None),
    )


def test_a_pod_that_hami_placed_on_an_instance_is_charged_to_instance_and_card() -> None:
    """On a node that migrates, the instance and its card are in use (HAMi's rules 1.2).

    As long as HAMi's plugin has not named the instance, it can be any.
    """
    identity = ',"migUUID":"MIG-n0-0-6","gpuInstanceID":7,"computeInstanceID":0'
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "100"}

    class Spec:
        containers = (Container("main", Resources(limits)),)
        init_containers = ()

    for annotation in (ENTRY % identity, ENTRY % ""):
        ledger = node(mig_card(0), instance(0, "1g.5gb", 6))
        annotations = {
            "hami.io/vgpu-devices-allocated": "GPU-n0-0,NVIDIA,4864,14:;",
            "hami.io/vgpu-mig-allocations": f"[{annotation.replace('GPU-a', 'GPU-n0-0')}]",
        }
        result = read(Spec, annotations, node="n0", settings=AllocationSettings())
        assert result is not None
        ledger.record("hami", "n0", result[1])
        assert ledger.used[2, 0, :2].tolist() == [1, 1]


def test_mig_topology_is_the_last_reason() -> None:
    """CardMigTopologyInfeasible is the last test of a card (HAMi's rule 2.2.14)."""
    assert CardReason.CardComputeUnitsExhausted < CardReason.CardMigTopologyInfeasible
    ledger = node(mig_card(0))
    assert reasons(put(ledger, pod(container(memory=50000)))) == "1/1 CardInsufficientMemory"
    assert reasons(put(ledger, pod(container(memory=5000)))) == "1/1 CardMigTopologyInfeasible"


def test_an_instance_with_unknown_slices_is_placed_but_not_written_for_hami() -> None:
    """HAMi's annotation cannot express an instance with unknown slices."""
    bare = instance(0, "1g.5gb", 6, placed=False)
    assert bare.instance == MigInstance("GPU-n0-0", "1g.5gb")
    outcome = put(node(mig_card(0), bare), pod(container(memory=100)))
    assert isinstance(outcome, Placement)
    assert mig_record.entries(outcome.allocation, pod(container()), NodeInventory("n0", (bare,))) == ()
