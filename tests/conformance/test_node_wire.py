"""1.1: what a node says of its cards."""

import json
from typing import Any

import pytest

from agent.health import CriticalEvent, Health, Probe
from agent.scaling import scaled
from agent.settings import AgentSettings
from allocation import hami
from allocation.constraints import words
from allocation.errors import MalformedRecordError
from allocation.inventory import Card, NodeInventory

A = Card("GPU-a", 0, 40960, model="NVIDIA A100-SXM4-40GB")
B = Card("GPU-b", 1, 40960, model="NVIDIA A100-SXM4-40GB", numa=1)


def written(*cards: Card) -> list[dict[str, Any]]:
    """Answer the register annotation of these cards, as a reader of JSON sees it."""
    answer: list[dict[str, Any]] = json.loads(hami.encode_register(NodeInventory("n1", cards)))
    return answer


def read(**fields: Any) -> Card:
    """Answer the card that a register annotation with these fields means."""
    return hami.decode_register("n1", json.dumps([{"id": "GPU-a", **fields}])).cards[0]


@pytest.mark.rule("1.1.1")
def test_one_object_per_card_without_zeros() -> None:
    """Index 0 and NUMA node 0 are not written, the rest has HAMi's keys."""
    assert written(A, B) == [
        {"id": "GPU-a", "count": 10, "devmem": 40960, "devcore": 100}
        | {"type": "NVIDIA A100-SXM4-40GB", "mode": "hami-core", "health": True},
        {"id": "GPU-b", "index": 1, "count": 10, "devmem": 40960, "devcore": 100}
        | {"type": "NVIDIA A100-SXM4-40GB", "numa": 1, "mode": "hami-core", "health": True},
    ]


@pytest.mark.rule("1.1.2")
def test_omitted_fields_have_their_zero() -> None:
    """A card of which nothing is said but its UUID is the first, and cannot be used."""
    card = read()
    assert (card.index, card.numa, card.mode, card.healthy, card.memory_mib) == (0, 0, "hami-core", False, 0)


@pytest.mark.rule("1.1.3")
def test_unknown_fields_do_not_matter() -> None:
    """Releases 2.5 to 2.9 wrote devicepairscore and customInfo."""
    assert read(devmem=1, health=True, devicepairscore={}, customInfo={"a": [1]}) == read(devmem=1, health=True)


@pytest.mark.rule("1.1.4")
@pytest.mark.parametrize(
    ("model", "type_"), [("NVIDIA L4", "NVIDIA L4"), ("Tesla V100-PCIE-32GB", "NVIDIA-Tesla V100-PCIE-32GB")]
)
def test_a_type_begins_with_nvidia(model: str, type_: str) -> None:
    """HAMi's scheduler counts only cards that do."""
    assert written(Card("GPU-a", 0, 1, model=model))[0]["type"] == type_


@pytest.mark.rule("1.1.5")
def test_scaled_cards_are_written_scaled() -> None:
    """Rounded down: 1.5 times 40,961 MiB are 61,441."""
    card = scaled(Card("GPU-a", 0, 40961), memory=1.5, cores=2.0)
    assert (written(card)[0]["devmem"], written(card)[0]["devcore"]) == (61441, 200)


@pytest.mark.rule("1.1.6")
@pytest.mark.parametrize(
    ("text", "card"),
    [
        ("GPU-a,10,32768,100,NVIDIA-V100,1,true:", Card("GPU-a", 0, 32768, model="NVIDIA-V100", numa=1)),
        ("GPU-a,2,32768,50,NVIDIA-V100,0,0,7,mig:", Card("GPU-a", 7, 32768, 500, 2, "NVIDIA-V100", 0, "mig", False)),  # noqa: FBT003 -- positions of the annotation
    ],
)
def test_older_annotations_are_read(text: str, card: Card) -> None:
    """Health is a Go boolean, a missing mode is hami-core."""
    assert hami.decode_register("n1", text).cards == (card,)


@pytest.mark.rule("1.1.6")
@pytest.mark.parametrize("text", ["GPU-a,10,32768:", "GPU-a,10,32768,100,V100,0,yes:", "GPU-a,x,1,100,V100,0,true:"])
def test_what_is_neither_form_is_an_error_of_its_node(text: str) -> None:
    """It is not taken for a node without cards."""
    with pytest.raises(MalformedRecordError, match="node n1"):
        hami.decode_register("n1", text)


@pytest.mark.rule("1.1.7")
def test_equal_inventories_give_equal_text() -> None:
    """HAMi ranges over a map, so a node with several cards is patched every 30 s."""
    assert written(B, A) == written(A, B)


@pytest.mark.rule("1.1.8")
def test_scores_are_read_by_pairs() -> None:
    """Missing pairs score 0."""
    scores = '[{"uuid":"GPU-a","score":{"GPU-b":1800}},{"uuid":"GPU-b","score":{"GPU-a":1800}}]'
    inventory = hami.decode_register("n1", hami.encode_register(NodeInventory("n1", (A, B))), scores)
    assert (inventory.pair_score(0, 1), inventory.pair_score(1, 0), inventory.pair_score(0, 0)) == (1800, 1800, 0)


@pytest.mark.rule("1.1.9")
def test_no_numa_node_is_written_as_none() -> None:
    """0 is omitted, and read as 0 again."""
    assert "numa" not in written(A)[0]
    assert hami.decode_register("n1", hami.encode_register(NodeInventory("n1", (A,)))).cards[0].numa == 0


@pytest.mark.rule("1.1.10")
def test_a_card_heals_from_what_hami_never_forgets() -> None:
    """An application's XIDs do not matter; another one does for as long as the card is not quiet."""
    health = Health(quiet_seconds=60, ignored_xids=AgentSettings().ignored_xids)
    for number in (13, 31, 43, 45, 68, 109):
        assert not health.take(CriticalEvent("GPU-a", "xid", at=0, xid=number))
    assert health.take(CriticalEvent("GPU-a", "xid", at=0, xid=79))
    assert health.judge("GPU-a", Probe(), now=1) == "XID 79"
    assert health.judge("GPU-a", Probe(), now=60) == ""


@pytest.mark.rule("1.1.11")
def test_the_list_of_cordoned_cards_is_tolerant() -> None:
    """What it does to placements is rule 2.2.2."""
    assert words(" GPU-a ,, GPU-b,") == ("GPU-a", "GPU-b")
