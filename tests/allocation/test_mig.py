"""MIG: instances are units of their own, taken whole; profiles and places by HAMi's rule (hami.md 2.2)."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation import hami, mig, mig_record
from allocation.allocation import Allocation, CardShare, charges
from allocation.errors import MalformedRecordError
from allocation.holding import of_pod
from allocation.inventory import Card, NodeInventory
from allocation.ledger import Ledger
from allocation.mig import MigInstance, Slices
from allocation.mig_record import MigAllocation
from allocation.placement import Placement
from allocation.pod import Container, Resources
from allocation.quota import Room
from allocation.reasons import CardReason
from allocation.request import Kind, PodRequest
from allocation.settings import AllocationSettings
from tests.allocation.builders import container, pod, put, reasons
from tests.allocation.mig_cards import A100_PROFILES, divided, instance, shared
from tests.allocation.test_ledger import recount


def node(*cards: Card) -> Ledger:
    """Answer a ledger of one node n0 with just these cards."""
    ledger = Ledger()
    ledger.set_node(NodeInventory("n0", cards))
    return ledger


def uuids(outcome: Any, name: str = "main") -> list[str]:
    """Answer the UUIDs of a container's cards."""
    assert isinstance(outcome, Placement)
    return [share.uuid for share in outcome.allocation.containers[name]]


# ---- instances as units --------------------------------------------------------------------------------------------


def test_an_instance_is_taken_whole_and_charged_its_profile() -> None:
    """Whatever the pod asked: memory and cores are the profile's, and no second pod joins it (hami.md 2.2)."""
    ledger = node(divided(0), instance(0, "1g.5gb", 6))
    outcome = put(ledger, pod(container(memory=100)))
    assert isinstance(outcome, Placement)
    (charge,) = outcome.charges
    assert (charge.uuid, charge.memory_mib, charge.cores, charge.slots) == ("MIG-n0-0-6", 4864, 142, 1)
    assert (
        reasons(put(ledger, pod(container(memory=100))))
        == "1/2 CardMigTopologyInfeasible, 1/2 CardTimeSlicingExhausted"
    )


def test_the_card_shows_the_use_of_its_instances() -> None:
    """What is given of an instance is given of its card, once, and given back with it."""
    ledger = node(divided(0), instance(0, "1g.5gb", 6), instance(0, "2g.10gb", 0))
    outcome = put(ledger, pod(container(memory=100), container("two", memory=9000)))
    assert isinstance(outcome, Placement)
    assert ledger.used[:, 0, 0].tolist() == [4864 + 9856, 142 + 285, 2]
    ledger.release(next(ledger.holdings()).uid)
    assert not ledger.used.any()


def test_several_instances_of_one_card_may_serve_one_container() -> None:
    """Each is a unit of its own (hami.md 2.2: never the same card twice, except MIG)."""
    ledger = node(divided(0), instance(0, "1g.5gb", 6), instance(0, "1g.5gb", 5))
    assert uuids(put(ledger, pod(container(count=2, memory=100)))) == ["MIG-n0-0-6", "MIG-n0-0-5"]


def test_the_smallest_instance_that_fits_comes_first() -> None:
    """Large ones stay free, whatever the card policy prefers."""
    for policy in ("binpack", "spread"):
        ledger = node(divided(0), instance(0, "3g.20gb", 4), instance(0, "2g.10gb", 0), instance(0, "1g.5gb", 2))
        assert uuids(put(ledger, pod(container(memory=4000)), card_policy=policy)) == ["MIG-n0-0-2"]
        assert uuids(put(ledger, pod(container(memory=4000)), card_policy=policy)) == ["MIG-n0-0-0"]
        assert uuids(put(ledger, pod(container(memory=9857)), card_policy=policy)) == ["MIG-n0-0-4"]


def test_shared_cards_and_cards_in_mig_mode_stand_in_one_node() -> None:
    """A share goes to a shared card, where it takes no more than it asks; a mode chooses (hami.md 1.3)."""
    cards = (divided(0), instance(0, "1g.5gb", 6), shared(1))
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
def test_a_choice_names_an_instance_or_its_card(annotations: dict[str, str], expected: str | None) -> None:
    """A card stands for all of its instances."""
    ledger = node(divided(0), instance(0, "1g.5gb", 6), divided(1), instance(1, "1g.5gb", 6))
    outcome = put(ledger, pod(container(memory=100)), **annotations)
    if expected is None:
        assert reasons(outcome) == "1/4 CardMigTopologyInfeasible, 3/4 CardUuidMismatch"
    else:
        assert uuids(outcome) == [expected]


def test_a_cordoned_or_ill_card_takes_its_instances_along() -> None:
    """An instance is no better than its card; one of a card that nobody reports is unusable too."""
    ledger = node(divided(0), instance(0, "1g.5gb", 6))
    ledger.set_cordon("n0", frozenset({"GPU-n0-0"}))
    assert reasons(put(ledger, pod(container(memory=100)))) == "2/2 CardCordoned"
    assert reasons(put(node(divided(0, healthy=False), instance(0, "1g.5gb", 6)), pod(container(memory=100)))) == (
        "2/2 CardNotHealth"
    )
    assert reasons(put(node(instance(0, "1g.5gb", 6)), pod(container(memory=100)))) == "1/1 CardNotHealth"


def test_a_percentage_is_of_the_card() -> None:
    """Half of a card is not half of an instance; a card asked whole needs its largest instance."""
    ledger = node(divided(0), instance(0, "1g.5gb", 6), instance(0, "3g.20gb", 0))
    assert uuids(put(ledger, pod(container(percent=50)))) == ["MIG-n0-0-0"]
    ledger = node(divided(0), instance(0, "7g.40gb", 0))
    assert uuids(put(ledger, pod(container(percent=100, cores=1000)))) == ["MIG-n0-0-0"]


def test_an_instance_with_too_little_compute_is_refused() -> None:
    """30 % of a card is more than 1g has."""
    ledger = node(divided(0), instance(0, "1g.5gb", 6))
    assert reasons(put(ledger, pod(container(memory=100, cores=300)))) == (
        "1/2 CardInsufficientCore, 1/2 CardMigTopologyInfeasible"
    )


def test_a_quota_counts_what_is_charged() -> None:
    """100 MiB on an instance of 4864 take 4864 of the namespace's room; so do its cores."""
    for room in (Room(memory_mib=4863), Room(cores=141), Room(cards=0)):
        ledger = node(divided(0), instance(0, "1g.5gb", 6))
        assert "ResourceQuotaNotFit" in reasons(put(ledger, pod(container(memory=100)), room=room))
    ledger = node(divided(0), instance(0, "1g.5gb", 6))
    assert uuids(put(ledger, pod(container(memory=100)), room=Room(4864, 142, 1)))


def test_cards_that_hamis_plugin_divides_are_left_out() -> None:
    """It makes instances for HAMi's pods alone; what it placed there is counted on the card all the same."""
    ledger = Ledger()
    ledger.set_node(hami.decode_register("n0", hami.encode_register(NodeInventory("n0", (divided(0), shared(1))))))
    ledger.record("hami", "n0", charges(Allocation("n0", {"c": (CardShare("GPU-n0-0", -1, 4864, 140),)}), pod()))
    assert ledger.used[:, 0, 0].tolist() == [4864, 140, 1]
    assert reasons(put(ledger, pod(container(memory=100)), mode="mig")) == "1/2 CardTypeMismatch, 1/2 ModeNotFit"
    assert uuids(put(ledger, pod(container(memory=100)))) == ["GPU-n0-1"]


@given(
    st.lists(st.sampled_from(["1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"]), max_size=7),
    st.lists(st.tuples(st.integers(1, 45000), st.sampled_from([0, 100, 300, 1000])), max_size=8),
    st.integers(0, 2),
)
def test_charges_are_profiles_and_reasons_sum_to_units(
    wanted: list[str], asks: list[tuple[int, int]], plain: int
) -> None:
    """For any division and any pods: nothing twice, no card over capacity, one reason for each unit."""
    cards: list[Card] = [divided(0)]
    taken: list[Slices] = []
    for name in wanted:
        found = mig.suitable(
            [profile for profile in A100_PROFILES if profile.name == name], memory_on=lambda _: 0, cores=0, taken=taken
        )
        if found is not None:
            taken.append(found[1])
            cards.append(instance(0, name, found[1].start))
    cards += [shared(index + 1) for index in range(plain)]
    ledger, units = node(*cards), {card.uuid: card for card in cards}
    for memory, cores in asks:
        outcome = put(ledger, pod(container(memory=memory, cores=cores)))
        if isinstance(outcome, Placement):
            (charge,) = outcome.charges
            card = units[charge.uuid]
            assert not card.is_divided
            if card.instance is not None:
                assert (charge.memory_mib, charge.cores, charge.slots) == (card.memory_mib, card.cores, 1)
        else:
            rejection = outcome.rejections["n0"]
            assert sum(rejection.counts.values()) == len(cards)
        assert (ledger.used <= ledger.total).all()
    assert np.array_equal(recount(ledger).used[:, 0, : len(cards)], ledger.used[:, 0, : len(cards)])
    for holding in tuple(ledger.holdings()):
        ledger.release(holding.uid)
    assert not ledger.used.any()


# ---- profiles and places -------------------------------------------------------------------------------------------


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
def test_hamis_rule_of_choice(memory: int, taken: list[Slices], expected: tuple[str, Slices] | None) -> None:
    """The smallest that is large enough; 1g and 3g from the end, others from the start (hami.md 2.2, MIG choice)."""
    found = mig.suitable(A100_PROFILES, memory_on=lambda _: memory, cores=0, taken=taken)
    assert (found and (found[0].name, found[1])) == expected


@given(st.lists(st.tuples(st.integers(0, 45000), st.integers(0, 1000)), max_size=20))
def test_places_never_overlap(asks: list[tuple[int, int]]) -> None:
    """However many are asked for, each lies on the card, on slices of its own, and is large enough."""
    taken: list[Slices] = []
    for memory, cores in asks:
        found = mig.suitable(A100_PROFILES, memory_on=lambda _, memory=memory: memory, cores=cores, taken=taken)  # type: ignore[misc]
        if found is None:
            continue
        profile, place = found
        assert profile.memory_mib >= memory
        assert profile.cores >= cores
        assert place in profile.placements
        slices = [number for each in (*taken, place) for number in range(each.start, each.start + each.size)]
        assert len(set(slices)) == len(slices)
        taken.append(place)


@pytest.mark.parametrize(
    ("wanted", "starts"),
    [
        (["1g"] * 8, [6, 5, 4, 3, 2, 1, 0, None]),
        (["2g"] * 4, [0, 2, 4, None]),
        (["3g", "4g", "1g"], [4, 0, None]),
        (["2g", "2g", "2g", "free 2", "2g"], [0, 2, 4, 2]),
    ],
)
def test_the_slots_of_an_a100(wanted: list[str], starts: list[int | None]) -> None:
    """As many as NVIDIA's geometry allows; what is given back is found again (systems.md 4.11)."""
    taken: list[Slices] = []
    found: list[int | None] = []
    for word in wanted:
        if word.startswith("free"):
            taken = [place for place in taken if place.start != int(word.split()[1])]
            continue
        profiles = [profile for profile in A100_PROFILES if profile.name.startswith(word)]
        choice = mig.suitable(profiles, memory_on=lambda _: 0, cores=0, taken=taken)
        found.append(choice[1].start if choice is not None else None)
        taken += [choice[1]] if choice is not None else []
    assert found == starts


# ---- HAMi's words --------------------------------------------------------------------------------------------------

REGISTER = (
    '[{"id":"GPU-n0-0","count":7,"devmem":40960,"devcore":100,"type":"NVIDIA A100-SXM4-40GB","mode":"mig",'
    '"health":true,"migProfiles":[{"name":"1g.5gb","memoryMB":4864,"core":14,"sliceCount":1,"placements":[{"start":0,"size":1},'
    '{"start":1,"size":1}]},{"name":"7g.40gb","memoryMB":40192,"core":100,"sliceCount":7,"placements":'
    '[{"start":0,"size":8}]}]}]'
)


def test_a_register_annotation_with_profiles() -> None:
    """HAMi's `migProfiles` are read and written as HAMi writes them (hami.md 1.1)."""
    inventory = hami.decode_register("n0", REGISTER)
    (card,) = inventory.cards
    assert card.is_divided
    assert [
        (profile.name, profile.memory_mib, profile.cores, profile.slice_count) for profile in card.mig_profiles
    ] == [
        ("1g.5gb", 4864, 140, 1),
        ("7g.40gb", 40192, 1000, 7),
    ]
    assert card.mig_profiles[0].placements == (Slices(0, 1), Slices(1, 1))
    assert hami.encode_register(inventory) == REGISTER


def test_instances_are_not_registered() -> None:
    """HAMi's annotation has one entry for each physical card (hami.md 1.1)."""
    registered = hami.decode_register(
        "n0", hami.encode_register(NodeInventory("n0", (divided(0), instance(0, "1g.5gb", 6), shared(1))))
    )
    assert [card.uuid for card in registered.cards] == ["GPU-n0-0", "GPU-n0-1"]


def _request() -> PodRequest:
    return PodRequest((container("init", Kind.INIT, count=0), container("main", count=2, memory=100)))


def test_what_hamis_tools_read_of_a_pod_on_instances() -> None:
    """The allocation string names the card, the MIG annotation the instance (hami.md 1.2)."""
    inventory = NodeInventory("n0", (divided(0), instance(0, "1g.5gb", 6), instance(0, "2g.10gb", 0)))
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
        ("[" + ENTRY % "" + "," + ENTRY % "" + "]", "containerIndex 0, deviceIndex 0 stands twice"),
        ("[" + ENTRY % ',"migUUID":"MIG-a"' + "]", "must be all there or none"),
        ("[" + ENTRY % ',"gpuInstanceID":0,"computeInstanceID":0' + "]", "must be all there or none"),
        ("[" + (ENTRY % "").replace(":0,", ":-1,", 1) + "]", "Expected `int` >= 0"),
        ("[{", "vgpu-mig-allocations"),
        ("[{}]", "containerIndex"),
    ],
)
def test_malformed_mig_allocations_are_refused(text: str, expected: str) -> None:
    """The last three fields are all there or none, a device stands once (hami.md 1.2)."""
    with pytest.raises(MalformedRecordError, match=expected):
        mig_record.decode(text)


def test_hamis_example_is_read() -> None:
    """Before its plugin has made the instance the ids are missing (hami.md 1.2)."""
    assert mig_record.decode("[" + ENTRY % "" + "]") == (
        MigAllocation(0, 0, "GPU-a", "2g.10gb", Slices(2, 2), None, None, None),
    )


def test_a_pod_that_hami_placed_on_an_instance_is_counted_there_and_on_the_card() -> None:
    """A node that moves over: the instance is in use, and so is its card (hami.md 1.2)."""
    made = ',"migUUID":"MIG-n0-0-6","gpuInstanceID":7,"computeInstanceID":0'
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "100"}

    class Spec:
        containers = (Container("main", Resources(limits)),)
        init_containers = ()

    for annotation, used in ((ENTRY % made, 1), (ENTRY % "", 0)):
        ledger = node(divided(0), instance(0, "1g.5gb", 6))
        annotations = {
            "hami.io/vgpu-devices-allocated": "GPU-n0-0,NVIDIA,4864,14:;",
            "hami.io/vgpu-mig-allocations": f"[{annotation.replace('GPU-a', 'GPU-n0-0')}]",
        }
        held = of_pod(Spec, annotations, node="n0", settings=AllocationSettings())
        assert held is not None
        ledger.record("hami", "n0", held[1])
        assert ledger.used[2, 0, :2].tolist() == [1, used]


def test_a_later_reason_stands_in_its_place() -> None:
    """CardMigTopologyInfeasible is the last test of a card (hami.md 2.2, 14)."""
    assert CardReason.CardComputeUnitsExhausted < CardReason.CardMigTopologyInfeasible
    ledger = node(divided(0))
    assert reasons(put(ledger, pod(container(memory=50000)))) == "1/1 CardInsufficientMemory"
    assert reasons(put(ledger, pod(container(memory=5000)))) == "1/1 CardMigTopologyInfeasible"


def test_an_instance_can_be_its_own_unit_only() -> None:
    """Where nobody told where an instance lies, HAMi's tools are not told about it; it works all the same."""
    bare = instance(0, "1g.5gb", 6, placed=False)
    assert bare.instance == MigInstance("GPU-n0-0", "1g.5gb")
    outcome = put(node(divided(0), bare), pod(container(memory=100)))
    assert isinstance(outcome, Placement)
    assert mig_record.entries(outcome.allocation, pod(container()), NodeInventory("n0", (bare,))) == ()
