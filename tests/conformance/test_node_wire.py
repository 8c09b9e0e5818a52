"""1.1: the annotations of a node."""

import json
from typing import Any

import pytest

from agent.health import CriticalEvent, Health, Probe
from agent.scaling import scaled
from agent.settings import AgentSettings
from allocation.constraints import words
from allocation.errors import MalformedRecordError
from allocation.inventory import Card, NodeInventory
from allocation.wire import hami

A = Card("GPU-a", 0, 40960, model="NVIDIA A100-SXM4-40GB")
B = Card("GPU-b", 1, 40960, model="NVIDIA A100-SXM4-40GB", numa=1)


def written(*cards: Card) -> list[dict[str, Any]]:
    """Return the register annotation of these cards, decoded from JSON."""
    entries: list[dict[str, Any]] = json.loads(hami.encode_register(NodeInventory("n1", cards)))
    return entries


def read(**fields: Any) -> Card:
    """Return the card of a register annotation with these fields."""
    return hami.decode_register("n1", json.dumps([{"id": "GPU-a", **fields}])).cards[0]


@pytest.mark.rule("1.1.1")
def test_the_register_annotation_has_one_object_per_card_without_zeros() -> None:
    """Index 0 and NUMA node 0 are omitted, other fields have HAMi's keys."""
    assert written(A, B) == [
        {"id": "GPU-a", "count": 10, "devmem": 40960, "devcore": 100}
        | {"type": "NVIDIA A100-SXM4-40GB", "mode": "hami-core", "health": True},
        {"id": "GPU-b", "index": 1, "count": 10, "devmem": 40960, "devcore": 100}
        | {"type": "NVIDIA A100-SXM4-40GB", "numa": 1, "mode": "hami-core", "health": True},
    ]


@pytest.mark.rule("1.1.2")
def test_omitted_fields_are_zero() -> None:
    """A card with only a UUID has index 0 and is unhealthy."""
    card = read()
    assert (card.index, card.numa, card.mode, card.healthy, card.memory_mib) == (0, 0, "hami-core", False, 0)


@pytest.mark.rule("1.1.3")
def test_unknown_fields_are_ignored() -> None:
    """Releases 2.5 to 2.9 wrote devicepairscore and customInfo."""
    assert read(devmem=1, health=True, devicepairscore={}, customInfo={"a": [1]}) == read(devmem=1, health=True)


@pytest.mark.rule("1.1.4")
@pytest.mark.parametrize(
    ("model", "type_"), [("NVIDIA L4", "NVIDIA L4"), ("Tesla V100-PCIE-32GB", "NVIDIA-Tesla V100-PCIE-32GB")]
)
def test_a_type_begins_with_nvidia(model: str, type_: str) -> None:
    """HAMi's scheduler ignores other cards."""
    assert written(Card("GPU-a", 0, 1, model=model))[0]["type"] == type_


@pytest.mark.rule("1.1.5")
def test_scaled_cards_are_written_scaled() -> None:
    """Memory is rounded down: 1.5 times 40,961 MiB are 61,441 MiB."""
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
    """Health is a Go boolean, and a missing mode means hami-core."""
    assert hami.decode_register("n1", text).cards == (card,)


@pytest.mark.rule("1.1.6")
@pytest.mark.parametrize("text", ["GPU-a,10,32768:", "GPU-a,10,32768,100,V100,0,yes:", "GPU-a,x,1,100,V100,0,true:"])
def test_an_unreadable_annotation_is_an_error_with_its_node(text: str) -> None:
    """It does not mean a node without cards."""
    with pytest.raises(MalformedRecordError, match="node n1"):
        hami.decode_register("n1", text)


@pytest.mark.rule("1.1.7")
def test_equal_inventories_give_equal_text() -> None:
    """HAMi iterates over a map, so it patches a node with several cards every 30 s."""
    assert written(B, A) == written(A, B)


@pytest.mark.rule("1.1.8")
def test_scores_are_read_by_pairs() -> None:
    """A missing pair scores 0."""
    pairs = '[{"uuid":"GPU-a","score":{"GPU-b":1800}},{"uuid":"GPU-b","score":{"GPU-a":1800}}]'
    register = hami.encode_register(NodeInventory("n1", (A, B)))
    assert hami.decode_register("n1", register, pairs).layout.scores == ((0, 1800), (1800, 0))
    missing = '[{"uuid":"GPU-a","score":{}},{"uuid":"GPU-b","score":{}}]'
    assert hami.decode_register("n1", register, missing).layout.scores == ((0, 0), (0, 0))


@pytest.mark.rule("1.1.9")
def test_numa_node_zero_is_omitted() -> None:
    """A missing NUMA node is read as 0."""
    assert "numa" not in written(A)[0]
    assert hami.decode_register("n1", hami.encode_register(NodeInventory("n1", (A,)))).cards[0].numa == 0


@pytest.mark.rule("1.1.10")
def test_a_card_recovers_from_a_critical_xid() -> None:
    """XIDs of applications are ignored; another XID makes the card unhealthy until it has been quiet long enough."""
    health = Health(quiet_seconds=60, ignored_xids=AgentSettings().ignored_xids)
    for number in (13, 31, 43, 45, 68, 109):
        assert not health.add_event(CriticalEvent("GPU-a", "xid", at=0, xid=number))
    assert health.add_event(CriticalEvent("GPU-a", "xid", at=0, xid=79))
    assert health.evaluate("GPU-a", Probe(), now=1) == "XID 79"
    assert health.evaluate("GPU-a", Probe(), now=60) == ""


@pytest.mark.rule("1.1.11")
def test_spaces_and_empty_items_in_the_cordon_annotation_are_ignored() -> None:
    """Its effect on placement is rule 2.2.2."""
    assert words(" GPU-a ,, GPU-b,") == ("GPU-a", "GPU-b")
