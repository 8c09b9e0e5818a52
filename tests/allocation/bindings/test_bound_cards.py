"""What a container gets of a bound card: the binding and the share mode decide, whatever the pod requests."""

import pytest

from allocation import names
from allocation.allocation import Allocation, CardShare
from allocation.bindings import binding
from allocation.bindings.binding import ShareMode
from allocation.bindings.bound_cards import BoundCard, consume_policy
from allocation.names import SHARE_MODE_PREFIX
from allocation.request import ContainerRequest
from tests.allocation.support.binding import bound, bound_card
from tests.allocation.support.builders import container, whole

CARD_MIB = 24576
REQUESTS = (container(memory=3000, cores=300), container(percent=50), container(percent=100, cores=1000), container())


def card_with(annotation: str | None, *, memory: int | None) -> BoundCard:
    """Return a bound card whose node has this annotation about it."""
    modes = binding.share_modes({} if annotation is None else {f"{SHARE_MODE_PREFIX}GPU-0": annotation})
    return bound_card("GPU-0", modes.get("GPU-0", "time-slicing"), memory=memory)


@pytest.mark.parametrize("memory", [None, 23552])
@pytest.mark.parametrize("request_", REQUESTS)
def test_an_exclusive_card_is_charged_whole(request_: ContainerRequest, memory: int | None) -> None:
    """Annotation 0: all of its memory, whatever binding and pod say, and no other pod gets a share."""
    asked = card_with("0", memory=memory).request(request_)
    assert asked.memory_on(CARD_MIB) == CARD_MIB
    assert asked.whole


@pytest.mark.parametrize("request_", REQUESTS)
def test_memory_slicing_charges_what_is_bound_else_what_is_requested(request_: ContainerRequest) -> None:
    """Annotation 1."""
    asked = card_with("1", memory=8192).request(request_)
    assert asked.memory_on(CARD_MIB) == 8192
    assert not asked.whole
    assert card_with("1", memory=None).request(request_) == request_


@pytest.mark.parametrize("memory", [None, 23552])
@pytest.mark.parametrize("annotation", ["2", None, "", "9", "exclusive"])
@pytest.mark.parametrize("request_", REQUESTS)
def test_time_slicing_charges_no_memory(request_: ContainerRequest, annotation: str | None, memory: int | None) -> None:
    """Annotation 2, none at all, or one that is not known."""
    asked = card_with(annotation, memory=memory).request(request_)
    assert asked.memory_on(CARD_MIB) == 0
    assert not asked.whole


MODES: tuple[ShareMode, ...] = ("memory-slicing", "time-slicing")


@pytest.mark.parametrize("mode", MODES)
def test_a_share_keeps_the_cores_that_were_requested_but_not_those_of_a_whole_card(mode: ShareMode) -> None:
    """A request for a whole card has all cores by default, and these would keep every other share out."""
    card = bound_card("GPU-0", mode, memory=100)
    assert card.request(container(memory=3000, cores=300)).cores == 300
    assert card.request(container(memory=3000, cores=1000)).cores == 1000
    assert card.request(container(percent=100, cores=1000)).cores == 0


@pytest.mark.parametrize("mode", ["exclusive", *MODES])
def test_the_whole_card_of_a_claim_stays_whole(mode: ShareMode) -> None:
    """An Exclusive GpuClaim keeps the card to itself; the memory of the binding limits the container."""
    assert bound_card("GPU-0", mode).request(whole()) == whole()
    asked = bound_card("GPU-0", mode, memory=8192).request(whole())
    assert asked.whole
    assert asked.memory_on(CARD_MIB) == 8192
    assert asked.memory_percent == 0, "a percentage would be tested against the card, and the amount charged"


# ---- the consume policy ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "annotation", "policy"),
    [
        (None, None, "all"),
        ("", None, "all"),
        ("all", None, "all"),
        ("single", None, "single"),
        ("anything", None, "single"),
        (None, "single", "single"),
        (None, "all", "all"),
        (None, "", "all"),
        ("", "single", "single"),
        ("all", "single", "all"),
        ("single", "all", "single"),
    ],
)
def test_a_pod_gets_all_cards_unless_it_says_something_else(
    label: str | None, annotation: str | None, policy: str
) -> None:
    """The label decides before the annotation; empty is as good as absent, and any other word is single."""
    labels = {} if label is None else {names.CONSUME_POLICY: label}
    annotations = {} if annotation is None else {names.CONSUME_POLICY: annotation}
    assert consume_policy(labels, annotations) == policy


def test_the_chosen_cards_are_those_of_the_allocation() -> None:
    """An instance counts as its card."""
    cards = bound("single", *(bound_card(f"GPU-{index}") for index in range(4)))
    shares = (CardShare("GPU-1", 1, 0, 0), CardShare("MIG-3-0", 3, 4864, 142, "GPU-3"))
    chosen = cards.among(Allocation("n0", {"main": shares}))
    assert [card.uuid for card in chosen.cards] == ["GPU-1", "GPU-3"]
