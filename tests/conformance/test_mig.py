"""1.1, 1.2, 2.2: cards in MIG mode."""

import json
from typing import Any

import pytest

from allocation.allocation import Allocation, CardShare
from allocation.errors import MalformedRecordError
from allocation.inventory import NodeInventory
from allocation.mig import MigProfile, Slices, suitable
from allocation.placement.placement import Placement
from allocation.request import PodRequest
from allocation.wire import hami, mig_record
from tests.allocation.support.builders import container, mixed, pod, put, reasons
from tests.allocation.support.mig_cards import A100_PROFILES, instance, mig_card, shared

ENTRY: dict[str, Any] = {
    "containerIndex": 0,
    "deviceIndex": 0,
    "gpuUUID": "GPU-a",
    "profile": "2g.10gb",
    "placement": {"start": 2, "size": 2},
}
IDENTITY = {"migUUID": "MIG-a", "gpuInstanceID": 1, "computeInstanceID": 0}


@pytest.mark.rule("1.1.12")
def test_profiles_are_written_and_read_in_hamis_form() -> None:
    """The register annotation has the profiles of a card in MIG mode."""
    inventory = NodeInventory("n1", (mig_card(0, node="n1", by="plugin"),))
    (card,) = json.loads(hami.encode_register(inventory))
    assert card["migProfiles"][1] == {
        "name": "2g.10gb",
        "memoryMB": 9856,
        "core": 28,
        "sliceCount": 2,
        "placements": [{"start": 0, "size": 2}, {"start": 2, "size": 2}, {"start": 4, "size": 2}],
    }
    (read,) = hami.decode_register("n1", hami.encode_register(inventory)).cards
    assert [profile.name for profile in read.mig_profiles] == [profile.name for profile in A100_PROFILES]


@pytest.mark.rule("1.2.9")
@pytest.mark.parametrize("entry", [ENTRY, {**ENTRY, **IDENTITY}])
def test_mig_allocations_are_read_and_written(entry: dict[str, Any]) -> None:
    """The entry is as HAMi's plugin leaves it, before and after it has created the instance."""
    text = json.dumps([entry], separators=(",", ":"))
    assert json.loads(mig_record.encode(mig_record.decode(text))) == [entry]


@pytest.mark.rule("1.2.9")
@pytest.mark.parametrize(
    "entries", [[{**ENTRY, "migUUID": "MIG-a"}], [ENTRY, ENTRY], [{**ENTRY, "containerIndex": -1}], {}]
)
def test_malformed_mig_allocations_are_errors(entries: object) -> None:
    """One of the last three fields without the others, a device twice, an invalid index, not a list."""
    with pytest.raises(MalformedRecordError):
        mig_record.decode(json.dumps(entries))


@pytest.mark.rule("1.2.9", "2.2.14")
def test_an_instance_is_charged_whole_and_written_for_hami() -> None:
    """HAMi's tools see the card in the allocation string and the instance in the MIG annotation."""
    ledger = mixed(mig_card(0), instance(0, "2g.10gb", 2))
    outcome = put(ledger, pod(container(memory=100)))
    assert isinstance(outcome, Placement)
    share = outcome.allocation.containers["main"][0]
    assert (share.uuid, share.memory_mib, share.parent) == ("MIG-n0-0-2", 9856, "GPU-n0-0")
    request: PodRequest = pod(container(memory=100))
    assert hami.allocation_string(outcome.allocation, request).startswith("GPU-n0-0,NVIDIA,9856,")
    inventory = ledger.inventory("n0")
    assert inventory is not None
    (entry,) = mig_record.entries(outcome.allocation, request, inventory)
    assert (entry.gpu_uuid, entry.profile, entry.placement, entry.mig_uuid) == (
        "GPU-n0-0",
        "2g.10gb",
        Slices(2, 2),
        "MIG-n0-0-2",
    )
    assert mig_record.entries(Allocation("n0", {"main": (CardShare("GPU-n0-0", 0, 1, 0),)}), request, inventory) == ()


@pytest.mark.rule("2.2.14")
def test_a_card_in_mig_mode_is_never_allocated_itself() -> None:
    """Not even if no instance is large enough and the shared card of the node is full."""
    ledger = mixed(mig_card(0), instance(0, "1g.5gb", 6), shared(1))
    put(ledger, pod(container(memory=40000)), use_uuids="GPU-n0-1")
    assert reasons(put(ledger, pod(container(memory=9000)))) == (
        "1/3 CardMigTopologyInfeasible, 2/3 CardInsufficientMemory"
    )


@pytest.mark.rule("2.2.19")
@pytest.mark.parametrize(
    ("memory", "taken", "expected"),
    [
        (4000, [], ("1g.5gb", Slices(6, 1))),
        (4000, [Slices(6, 1)], ("1g.5gb", Slices(5, 1))),
        (9000, [], ("2g.10gb", Slices(0, 2))),
        (9000, [Slices(0, 2)], ("2g.10gb", Slices(2, 2))),
        (15000, [], ("3g.20gb", Slices(4, 4))),
        (15000, [Slices(6, 1)], ("3g.20gb", Slices(0, 4))),
        (15000, [Slices(3, 1), Slices(4, 1)], None),
        (40000, [Slices(6, 1)], None),
    ],
)
def test_hamis_rule_selects_profile_and_slices(
    memory: int, taken: list[Slices], expected: tuple[str, Slices] | None
) -> None:
    """The card is an A100 with 40 GB."""
    choice: tuple[MigProfile, Slices] | None = suitable(A100_PROFILES, memory_on=lambda _: memory, cores=0, taken=taken)
    assert (choice and (choice[0].name, choice[1])) == expected
