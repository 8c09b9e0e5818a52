import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.declared.fleet import FleetFile, parse
from agent.inventory import InventoryError
from allocation.delivery import NodeDelivery, Toolkit
from allocation.inventory import Card
from cluster.gpu_node_status import Status

ROOT = Path(__file__).parents[3]


def _parse(text: str) -> tuple[Card, ...]:
    return parse(text.encode(), file="fleet.yaml")["n1"].inventory.cards


def test_compact_form_declares_identical_cards() -> None:
    """A node with identical cards takes one line; the cards are named after the node."""
    cards = _parse("n1: {count: 2, memoryMiB: 81920, slots: 4, cores: 50, model: NVIDIA H100 80GB HBM3, mode: mps}")
    assert cards == tuple(
        Card(
            uuid=f"GPU-n1-{index}",
            index=index,
            memory_mib=81920,
            cores=500,
            slots=4,
            model="NVIDIA H100 80GB HBM3",
            numa=-1,
            mode="mps",
        )
        for index in range(2)
    )


def test_compact_form_marks_unhealthy_cards() -> None:
    """One card of a compact node can be declared unhealthy without writing out the others."""
    cards = _parse("n1: {count: 3, memoryMiB: 100, unhealthy: [1]}")
    assert [card.healthy for card in cards] == [True, False, True]


def test_a_listed_card_can_be_missing() -> None:
    """The node had it; a simulation shows what becomes of its pods."""
    text = "n1: [{index: 0, memoryMiB: 1}, {index: 1, memoryMiB: 1, missing: true}]"
    there, gone = parse(text.encode(), file="fleet.yaml")["n1"].status().devices
    assert (there.health, there.missing) == ("Healthy", msgspec.UNSET)
    assert (gone.health, gone.missing, gone.message) == ("Unhealthy", True, "declared missing in the fleet file")


def test_node_declares_a_delivery() -> None:
    """A simulated node reports the facts of another machine; a list of cards can have it as well."""
    for cards in ("count: 1, memoryMiB: 1", "cards: [{index: 0, memoryMiB: 1}]"):
        text = f"n1: {{{cards}, delivery: {{mode: cdi, toolkit: {{mode: legacy}}, hasNriSocket: false}}}}"
        report = parse(text.encode(), file="fleet.yaml")["n1"]
        assert report.delivery == NodeDelivery("cdi", Toolkit("legacy"), has_nri_socket=False)
        assert report.status().delivery == report.delivery


def test_uuid_prefix_replaces_the_node_name() -> None:
    """The index follows the prefix."""
    assert [card.uuid for card in _parse("n1: {count: 2, memoryMiB: 1, uuidPrefix: GPU-x}")] == ["GPU-x-0", "GPU-x-1"]


def test_list_form_declares_different_cards() -> None:
    """The list is sorted by index."""
    cards = _parse(
        "n1: [{index: 1, uuid: GPU-b, memoryMiB: 2, numa: 1, healthy: false}, {index: 0, memoryMiB: 1, mode: mps}]"
    )
    assert cards == (
        Card(uuid="GPU-n1-0", index=0, memory_mib=1, numa=-1, mode="mps"),
        Card(uuid="GPU-b", index=1, memory_mib=2, numa=1, healthy=False),
    )


def test_topology_and_health_can_be_declared() -> None:
    """A simulated fleet can have NVLink islands, and reports why a card is unhealthy."""
    declared = b"n1: {count: 2, memoryMiB: 5, island: nvlink-0, bandwidthGBps: 478, unhealthy: [1]}"
    devices = parse(declared, file="fleet.yaml")["n1"].devices
    assert [(device.island, device.bandwidth_gbps, device.message) for device in devices] == [
        ("nvlink-0", 478, ""),
        ("nvlink-0", 478, "declared unhealthy in the fleet file"),
    ]


def test_all_forms_give_cards_the_same_uuids() -> None:
    """A node that changes from one form to another keeps its cards, and pods keep their shares."""
    compact, cards = _parse("n1: {count: 1, memoryMiB: 5}"), "[{index: 0, memoryMiB: 5}]"
    assert compact == _parse(f"n1: {cards}") == _parse(f"n1: {{cards: {cards}}}")


def test_nodes_may_share_defaults_by_anchor() -> None:
    """YAML's merge keys work, and a node's own value overrides a merged one."""
    fleet = parse(b"n1: &h100 {count: 1, memoryMiB: 5}\nn2: {<<: *h100, memoryMiB: 6}\n", file="fleet.yaml")
    assert [fleet[node].inventory.cards[0].memory_mib for node in ("n1", "n2")] == [5, 6]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n1: {count: 8, memoryMib: 5}", "fleet.yaml: n1.memoryMib holds '5': the key is unknown; the valid keys are"),
        ("n1: {count: 8}", "n1.memoryMiB holds '': it must be a whole number from 1 to 2147483647; add the key"),
        ("n1: {count: true, memoryMiB: 5}", "n1.count holds 'True': it must be a whole number from 1 to 1024"),
        ("n1: {count: 1, memoryMiB: 10Gi}", "n1.memoryMiB holds '10Gi': it must be a whole number"),
        (
            "n1: {count: 1, memoryMiB: 1, cores: 10001}",
            "n1.cores holds '10001': it must be a whole number from 1 to 10000",
        ),
        ("n1: {count: 1, memoryMiB: 1, slots: 0}", "n1.slots holds '0'"),
        ("n1: {count: 1, memoryMiB: 1, mode: time}", "n1.mode holds 'time': it must be one of hami-core, mig, mps"),
        ("n1: {count: 1, memoryMiB: 1, uuidPrefix: 'a,b'}", "n1.uuidPrefix holds 'a,b': it must be a string without"),
        ("n1: {count: 2, memoryMiB: 1, unhealthy: [2]}", "n1.unhealthy holds '2': the node has the cards 0 to 1"),
        ("n1: {count: 2, memoryMiB: 1, unhealthy: 1}", "n1.unhealthy holds '1': it must be a list of card indexes"),
        ("n1: [{index: 0, memoryMiB: 1}, {index: 0, memoryMiB: 1}]", "n1[1].index holds '0': another card"),
        ("n1: [{index: 0, memoryMiB: 1, healthy: 1}]", "n1[0].healthy holds '1': it must be true or false"),
        ("n1: [{memoryMiB: 1}]", "n1[0].index holds '': it must be a whole number from 0 to 2147483647; add the key"),
        ("n1: [5]", "n1[0] holds '5': it must be a mapping; write for example {index: 0"),
        ("n1: {cards: 5}", "n1.cards holds '5': it must be a list of at most 1024 cards"),
        ("n1: {cards: [{index: 0}]}", "n1.cards[0].memoryMiB holds '': it must be a whole number"),
        ("n1: {cards: [], count: 1}", "n1.count holds '1': the key is unknown; the valid keys are cards, delivery"),
        ("n1: {count: 1, memoryMiB: 1, delivery: {mode: hook}}", "Invalid enum value 'hook'"),
        ("n1: {count: 1, memoryMiB: 1, delivery: {}}", "missing required field `mode`"),
        (
            "n1: {count: 1, memoryMiB: 1, delivery: {mode: cdi, nri: 1}}",
            "n1.delivery.nri holds '1': the key is unknown",
        ),
        ("n1: {count: 1, memoryMiB: 1, delivery: {mode: cdi, toolkit: {a: 1}}}", "n1.delivery.toolkit.a holds '1'"),
        ("n1: 5", "n1 holds '5': it must be a mapping with count and memoryMiB or with cards, or a list"),
        ("N_1: {count: 1, memoryMiB: 1}", "N_1 holds 'N_1': a node's name must be a DNS subdomain"),
        ("1: {count: 1, memoryMiB: 1}", "1 holds '1': a node's name must be a DNS subdomain"),
        ("", "fleet.yaml holds 'None': it must map each node's name to its cards"),
        ("- n1", "it must map each node's name to its cards"),
        ("n1: [", "fleet file fleet.yaml is not valid YAML"),
        ("n1: {? [a] : 1}", "fleet file fleet.yaml is not valid YAML"),
        ("n1: {count: 1, count: 2, memoryMiB: 1}", "duplicate key 'count'; remove one"),
        ("n1: {count: 1, memoryMiB: 1}\nn1: {count: 2, memoryMiB: 1}", "duplicate key 'n1'; remove one"),
        (
            "{n1: {count: 1, memoryMiB: 1, uuidPrefix: x}, n2: {count: 1, memoryMiB: 1, uuidPrefix: x}}",
            "n2, card 0, uuid holds 'x-0': node n1 has a card with this UUID already",
        ),
        ("n1: [{index: 0, uuid: a, memoryMiB: 1}, {index: 1, uuid: a, memoryMiB: 1}]", "n1, card 1, uuid holds 'a'"),
    ],
)
def test_invalid_fleet_is_rejected_with_place_and_value(text: str, message: str) -> None:
    """The message names the file, the node, the key, its value and the allowed values."""
    with pytest.raises(InventoryError) as refusal:
        parse(text.encode(), file="fleet.yaml")
    assert message in str(refusal.value)


NODE_KEYS = ("links", "numa", "island", "pcieGroups", "fabric", "delivery", "cards")
INNER_KEYS = ("hcas", "name", "ports", "number", "state", "cuFile", "enabled", "mode", "index", "memoryMiB")
SCALARS = st.none() | st.booleans() | st.integers(-2, 3) | st.floats(allow_nan=False) | st.sampled_from(("", "mlx5_0"))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(INNER_KEYS), inner, max_size=4),
)


@given(st.dictionaries(st.sampled_from(NODE_KEYS), VALUES, max_size=2))
def test_every_declaration_is_read_or_rejected(more: dict[str, Any]) -> None:
    """Whatever a file holds, the agent reports it or says what is wrong; it never fails otherwise."""
    text = json.dumps({"n1": {"count": 2, "memoryMiB": 1} | more})
    try:
        report = parse(text.encode(), file="fleet.yaml")["n1"]
    except InventoryError:
        return
    read = msgspec.json.decode(msgspec.json.encode(report.status()), type=Status)
    assert read == report.status()


def test_examples_of_the_documentation_are_valid() -> None:
    """Every example of docs/agent.md, as it is written there."""
    section = (ROOT / "docs" / "agent.md").read_text().split("\n## Fleet file\n")[1].split("\n## ")[0]
    examples = re.findall(r"(?:^    .*\n)+", section, flags=re.MULTILINE)
    nodes = [node for example in examples for node in parse(example.encode(), file="agent.md")]
    assert nodes == ["gpu-1", "gpu-2", "gpu-3", "islands", "dgx-1"]


def test_fleet_file_serves_every_node_unless_one_is_named(tmp_path: Path) -> None:
    """Without a node name the agent simulates the whole fleet; with one it serves only that node."""
    path = tmp_path / "fleet.yaml"
    path.write_text("{n1: {count: 1, memoryMiB: 1}, n2: {count: 2, memoryMiB: 1}}")
    assert set(FleetFile(path).read()) == {"n1", "n2"}
    assert set(FleetFile(path, node="n2").read()) == {"n2"}


def test_node_missing_from_the_file_is_rejected(tmp_path: Path) -> None:
    """An agent of one node never reports the cards of another."""
    path = tmp_path / "fleet.yaml"
    path.write_text("n1: {count: 1, memoryMiB: 1}")
    with pytest.raises(InventoryError, match="does not list node n9; add it"):
        FleetFile(path, node="n9").read()


def test_missing_fleet_file_is_rejected(tmp_path: Path) -> None:
    """The message names the file and the flag."""
    with pytest.raises(InventoryError, match=r"absent\.yaml: No such file.*--fleet-file"):
        FleetFile(tmp_path / "absent.yaml").read()


def test_fleet_file_is_read_again_after_a_change_or_an_error(tmp_path: Path) -> None:
    """Every reading of an invalid file fails, and the first one after its repair succeeds."""
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
