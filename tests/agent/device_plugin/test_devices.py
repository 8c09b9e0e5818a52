"""The devices that the kubelet counts, and which of them a container gets."""

import pytest

from agent.device_plugin.devices import cards_of, choose, devices_of
from agent.refusal import Refusal
from allocation.inventory import Card
from allocation.mig import MigInstance

AVAILABLE = ["GPU-a::0", "GPU-a::1", "GPU-b::0", "GPU-b::1", "GPU-c::1"]


def test_a_card_has_as_many_devices_as_containers_may_share_it() -> None:
    """An unhealthy card stays, unhealthy; a card in MIG mode has none, its instances one each."""
    instance = MigInstance(parent="GPU-m", profile="1g.10gb")
    cards = (
        Card("GPU-a", 0, 1000, slots=2),
        Card("GPU-b", 1, 1000, slots=1, healthy=False),
        Card("GPU-m", 2, 1000, mode="mig"),
        Card("MIG-1", 2, 100, slots=1, instance=instance, mode="mig"),
    )
    assert [(each.ID, each.health) for each in devices_of(cards)] == [
        ("GPU-a::0", "Healthy"),
        ("GPU-a::1", "Healthy"),
        ("GPU-b::0", "Unhealthy"),
        ("MIG-1::0", "Healthy"),
    ]


def test_a_device_names_its_card() -> None:
    """That is what readers of the kubelet's list see; the order does not depend on the kubelet's."""
    assert cards_of(["GPU-b::12", "GPU-a::0"]) == ("GPU-a", "GPU-b")


def test_the_devices_are_those_of_the_cards_of_the_allocation() -> None:
    """One of each card, among those that the kubelet has left."""
    assert cards_of(choose(("GPU-a", "GPU-c"), AVAILABLE, required=(), count=2)) == ("GPU-a", "GPU-c")
    assert choose(("GPU-a", "GPU-b"), AVAILABLE, required=("GPU-b::1",), count=2) == ("GPU-b::1", "GPU-a::0")


@pytest.mark.parametrize(
    ("cards", "required", "count", "message"),
    [
        (("GPU-a",), (), 2, "requests 2 devices, and its allocation has 1 cards"),
        (("GPU-a", "GPU-d"), (), 2, "no device left of its card GPU-d"),
        (("GPU-a", "GPU-b"), ("GPU-c::1",), 2, "insists on devices of GPU-c"),
        (("GPU-a", "GPU-b"), ("GPU-a::0", "GPU-a::1"), 2, "insists on devices of GPU-a, GPU-a"),
    ],
)
def test_a_choice_of_other_cards_is_refused(
    cards: tuple[str, ...], required: tuple[str, ...], count: int, message: str
) -> None:
    """An incomplete answer would let the kubelet choose the rest."""
    with pytest.raises(Refusal, match=message):
        choose(cards, AVAILABLE, required=required, count=count)
