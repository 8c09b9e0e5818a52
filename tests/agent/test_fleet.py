from pathlib import Path

import pytest

from agent.fleet import FleetFile, parse
from agent.inventory import InventoryError
from allocation.inventory import Card


def _parse(text: str) -> tuple[Card, ...]:
    return parse(text.encode(), file="fleet.yaml")["n1"].inventory.cards


def test_compact_form_gives_equal_cards() -> None:
    """A node of equal cards is one line; the cards are called after the node."""
    cards = _parse("n1: {count: 2, memoryMiB: 81920, slots: 4, cores: 50, model: NVIDIA H100 80GB HBM3, mode: mps}")
    assert cards == tuple(
        Card(
            uuid=f"GPU-n1-{index}",
            index=index,
            memory_mib=81920,
            cores=500,
            slots=4,
            model="NVIDIA H100 80GB HBM3",
            mode="mps",
        )
        for index in range(2)
    )


def test_compact_form_marks_unhealthy_cards() -> None:
    """One card of a compact node can be declared unhealthy without writing out the others."""
    cards = _parse("n1: {count: 3, memoryMiB: 100, unhealthy: [1]}")
    assert [card.healthy for card in cards] == [True, False, True]


def test_uuid_prefix_replaces_the_nodes() -> None:
    """A prefix of one's own is followed by the index."""
    assert [card.uuid for card in _parse("n1: {count: 2, memoryMiB: 1, uuidPrefix: GPU-x}")] == ["GPU-x-0", "GPU-x-1"]


def test_list_form_gives_each_card_its_own() -> None:
    """Cards that differ are listed; the answer is in the order of their indexes."""
    cards = _parse(
        "n1: [{index: 1, uuid: GPU-b, memoryMiB: 2, numa: 1, healthy: false}, {index: 0, memoryMiB: 1, mode: mig}]"
    )
    assert cards == (
        Card(uuid="GPU-n1-0", index=0, memory_mib=1, mode="mig"),
        Card(uuid="GPU-b", index=1, memory_mib=2, numa=1, healthy=False),
    )


def test_topology_and_reason_can_be_declared() -> None:
    """A simulated fleet can have NVLink islands, and says why a card of it is unhealthy."""
    declared = b"n1: {count: 2, memoryMiB: 5, island: nvlink-0, bandwidthGBps: 478, unhealthy: [1]}"
    devices = parse(declared, file="fleet.yaml")["n1"].devices
    assert [(device.island, device.bandwidth_gbps, device.message) for device in devices] == [
        ("nvlink-0", 478, ""),
        ("nvlink-0", 478, "declared unhealthy in the fleet file"),
    ]


def test_both_forms_name_cards_alike() -> None:
    """Who changes a node from one form to the other keeps its cards, and pods keep their shares."""
    assert _parse("n1: {count: 1, memoryMiB: 5}") == _parse("n1: [{index: 0, memoryMiB: 5}]")


def test_nodes_may_share_defaults_by_anchor() -> None:
    """YAML's merge keys work, and an own value wins over a merged one."""
    fleet = parse(b"n1: &h100 {count: 1, memoryMiB: 5}\nn2: {<<: *h100, memoryMiB: 6}\n", file="fleet.yaml")
    assert [fleet[node].inventory.cards[0].memory_mib for node in ("n1", "n2")] == [5, 6]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("n1: {count: 8, memoryMib: 5}", "fleet.yaml: n1.memoryMib holds '5': there is no such key; the keys are"),
        ("n1: {count: 8}", "n1.memoryMiB holds '': it must be a whole number from 1 to 2147483647; add the key"),
        ("n1: {count: true, memoryMiB: 5}", "n1.count holds 'True': it must be a whole number from 1 to 1024"),
        ("n1: {count: 1, memoryMiB: 10Gi}", "n1.memoryMiB holds '10Gi': it must be a whole number"),
        (
            "n1: {count: 1, memoryMiB: 1, cores: 10001}",
            "n1.cores holds '10001': it must be a whole number from 1 to 10000",
        ),
        ("n1: {count: 1, memoryMiB: 1, slots: 0}", "n1.slots holds '0'"),
        ("n1: {count: 1, memoryMiB: 1, mode: time}", "n1.mode holds 'time': it must be one of hami-core, mig, mps"),
        ("n1: {count: 1, memoryMiB: 1, uuidPrefix: 'a,b'}", "n1.uuidPrefix holds 'a,b': it must be a text without"),
        ("n1: {count: 2, memoryMiB: 1, unhealthy: [2]}", "n1.unhealthy holds '2': the node has the cards 0 to 1"),
        ("n1: {count: 2, memoryMiB: 1, unhealthy: 1}", "n1.unhealthy holds '1': it must be a list of card indexes"),
        ("n1: [{index: 0, memoryMiB: 1}, {index: 0, memoryMiB: 1}]", "n1[1].index holds '0': another card"),
        ("n1: [{index: 0, memoryMiB: 1, healthy: 1}]", "n1[0].healthy holds '1': it must be true or false"),
        ("n1: [{memoryMiB: 1}]", "n1[0].index holds '': it must be a whole number from 0 to 2147483647; add the key"),
        ("n1: [5]", "n1[0] holds '5': a card is a mapping"),
        ("n1: 5", "n1 holds '5': a node has a mapping with count and memoryMiB, or a list"),
        ("N_1: {count: 1, memoryMiB: 1}", "N_1 holds 'N_1': a node's name is a DNS subdomain"),
        ("1: {count: 1, memoryMiB: 1}", "1 holds '1': a node's name is a DNS subdomain"),
        ("", "fleet.yaml holds 'None': it must map each node's name to its cards"),
        ("- n1", "it must map each node's name to its cards"),
        ("n1: [", "fleet file fleet.yaml is not YAML"),
        ("n1: {? [a] : 1}", "fleet file fleet.yaml is not YAML"),
        ("n1: {count: 1, count: 2, memoryMiB: 1}", "key 'count' stands twice; remove one"),
        ("n1: {count: 1, memoryMiB: 1}\nn1: {count: 2, memoryMiB: 1}", "key 'n1' stands twice; remove one"),
        (
            "{n1: {count: 1, memoryMiB: 1, uuidPrefix: x}, n2: {count: 1, memoryMiB: 1, uuidPrefix: x}}",
            "n2, card 0, uuid holds 'x-0': node n1 has a card with this UUID already",
        ),
        ("n1: [{index: 0, uuid: a, memoryMiB: 1}, {index: 1, uuid: a, memoryMiB: 1}]", "n1, card 1, uuid holds 'a'"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(text: str, said: str) -> None:
    """A mistake names the file, the node, the key, what it holds and what it may hold; nothing is guessed."""
    with pytest.raises(InventoryError) as refusal:
        parse(text.encode(), file="fleet.yaml")
    assert said in str(refusal.value)


def test_every_node_is_served_unless_one_is_named(tmp_path: Path) -> None:
    """Without a node name the agent simulates the whole fleet; with one it serves that node alone."""
    path = tmp_path / "fleet.yaml"
    path.write_text("{n1: {count: 1, memoryMiB: 1}, n2: {count: 2, memoryMiB: 1}}")
    assert set(FleetFile(path).read()) == {"n1", "n2"}
    assert set(FleetFile(path, node="n2").read()) == {"n2"}


def test_a_node_that_the_file_lacks_is_refused(tmp_path: Path) -> None:
    """An agent that was given a node never takes another one's cards."""
    path = tmp_path / "fleet.yaml"
    path.write_text("n1: {count: 1, memoryMiB: 1}")
    with pytest.raises(InventoryError, match="has no node n9; add it"):
        FleetFile(path, node="n9").read()


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """The message names the file and the flag."""
    with pytest.raises(InventoryError, match=r"absent\.yaml: No such file.*--fleet-file"):
        FleetFile(tmp_path / "absent.yaml").read()


def test_a_change_is_seen_and_a_mistake_does_not_replace_the_truth(tmp_path: Path) -> None:
    """The file is read anew each time: a mistake is told each time, and its repair is seen."""
    path = tmp_path / "fleet.yaml"
    source = FleetFile(path)
    path.write_text("n1: {count: 1, memoryMiB: 1}")
    first = source.read()
    assert source.read() is first
    path.write_text("n1: {count: 1, memoryMiB: 1, unhealthy: [0]}")
    assert not source.read()["n1"].inventory.cards[0].healthy
    path.write_text("n1: [")
    for _ in range(2):
        with pytest.raises(InventoryError):
            source.read()
    path.write_text("n1: {count: 1, memoryMiB: 1}")
    assert source.read() == first
