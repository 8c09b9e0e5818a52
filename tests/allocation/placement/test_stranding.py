"""What a pod costs those that come after it, in cards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from allocation.allocation import Charge
from allocation.constraints import read_constraints
from allocation.inventory import Card, NodeInventory
from allocation.ledger.ledger import Ledger
from allocation.placement.host import Host, Mix, host_of, set_host, shape_of
from allocation.placement.ranking_cache import RankingCache
from allocation.placement.stranding import Stranding
from allocation.request import ContainerRequest, Kind, PodRequest
from allocation.settings import AllocationSettings
from allocation.steps import finish

if TYPE_CHECKING:
    from allocation.placement.host import Hosts
    from allocation.steps import Steps

GIB = 1 << 30
MIX = Mix(cpu=8_000.0, memory=64.0 * GIB)
"""Eight cores and 64 GiB for each card."""


class Fixed:
    """Nodes with these free millicores and bytes."""

    def __init__(self, mix: Mix | None, ledger: Ledger | None = None, **free: tuple[int, int]) -> None:
        self.mix = mix
        self._ledger = ledger
        self.read = 0
        self._free = free

    @property
    def is_prepared(self) -> bool:
        """Whether nothing has changed."""
        return True

    def host(self, row: int) -> Host:
        """Return what is left of a node."""
        assert self._ledger is not None
        assert self.mix is not None
        cpu, memory = self._free[self._ledger.node(row)]
        return host_of(self._ledger, row, self.mix, cpu=cpu, memory=memory)

    def prepare(self) -> Steps[None]:
        """Everything is known."""
        yield from ()

    def hosts(self, ledger: Ledger) -> Hosts:
        """Return what is left of each node."""
        assert self.mix is not None
        self.read += 1
        hosts = np.zeros(shape_of(ledger))
        for row in ledger.order().tolist():
            cpu, memory = self._free[ledger.node(row)]
            set_host(hosts, row, host_of(ledger, row, self.mix, cpu=cpu, memory=memory))
        return hosts


def fleet(*models: str, cards: int = 2, used: tuple[int, ...] = ()) -> Ledger:
    """Return nodes n0, n1 … with cards of 1000 MiB of these models, of which some have millicards and MiB in use."""
    ledger = Ledger()
    for number, model in enumerate(models):
        node = f"n{number}"
        ledger.set_node(NodeInventory(node, tuple(Card(f"{node}-{i}", i, 1000, model=model) for i in range(cards))))
    for number, amount in enumerate(used):
        ledger.record(f"u{number}", f"n{number}", (Charge(f"n{number}-0", amount, amount, 1),))
    return ledger


def container(*, cores: int = 0, memory: int | None = None, percent: int = 0, count: int = 1) -> ContainerRequest:
    """Return a request for cards, in millicards and MiB or percent of each."""
    return ContainerRequest("main", Kind.REGULAR, "spec.containers[0]", count, memory, percent, cores)


def cost(
    ledger: Ledger,
    nodes: Fixed,
    *containers: ContainerRequest,
    cpu: int = 0,
    memory: int = 0,
    fills_cards: bool = True,
) -> list[float]:
    """Return what a pod costs on each node, in cards rounded to thousandths."""
    stranding = Stranding(nodes, cpu=cpu, memory=memory, points=1.0, fills_cards=fills_cards)
    return [round(cost, 3) for cost in stranding.of_rows(ledger, ledger.order(), containers).tolist()]


def test_cpu_is_worth_the_cards_that_lack_it() -> None:
    """Eight cores strand a card where both are free and the node has 16; none where it has 32, or has no free card."""
    ledger = fleet("A", "A", "A")
    ledger.record("full", "n2", tuple(Charge(f"n2-{index}", 1000, 1000, 1) for index in range(2)))
    nodes = Fixed(MIX, n0=(16_000, 999 * GIB), n1=(32_000, 999 * GIB), n2=(16_000, 999 * GIB))
    assert cost(ledger, nodes, cpu=8_000) == [1.0, 0.0, 0.0]


def test_memory_is_worth_the_cards_that_lack_it() -> None:
    """Of both, the scarcer one counts."""
    nodes = Fixed(MIX, n0=(999_000, 128 * GIB), n1=(16_000, 128 * GIB))
    assert cost(fleet("A", "A"), nodes, memory=64 * GIB) == [1.0, 1.0]
    assert cost(fleet("A", "A"), nodes, cpu=12_000, memory=64 * GIB) == [1.0, 1.5]


def test_cards_that_are_stranded_are_used_first() -> None:
    """A pod that requests a card and hardly any CPU makes use of one."""
    nodes = Fixed(MIX, n0=(8_000, 999 * GIB), n1=(16_000, 999 * GIB))
    assert cost(fleet("A", "A"), nodes, container(cores=1000, percent=100), cpu=0) == [-1.0, 0.0]


def test_a_part_of_a_card_counts_by_the_scarcer_of_its_memory_and_compute() -> None:
    """A card has no use for compute without memory, nor the reverse."""
    nodes = Fixed(MIX, n0=(0, 999 * GIB))
    assert cost(fleet("A"), nodes, container(memory=500, count=2)) == [-1.0]
    assert cost(fleet("A"), nodes, container(memory=500, cores=700, count=2)) == [-1.4]
    assert cost(fleet("A", used=(300,)), nodes, container(memory=100, cores=300, count=2)) == [-0.6]


def test_a_small_pod_goes_where_a_card_has_just_enough_room() -> None:
    """It costs the rest of that card: of the fullest one with room, or of the emptiest if it gets that."""
    ledger = fleet("A", "A", "A", "A", used=(800, 500, 0, 1000))
    ledger.record("full", "n0", (Charge("n0-1", 1000, 1000, 1),))
    nodes = Fixed(MIX, **{f"n{number}": (999_000, 999 * GIB) for number in range(4)})
    fifth = container(cores=200, memory=200)
    assert cost(ledger, nodes, fifth) == [0.0, 0.3, 0.8, 0.8]
    assert cost(ledger, nodes, fifth, fills_cards=False) == [0.0, 0.8, 0.8, 0.8]


def test_the_rest_of_a_card_is_of_the_scarcer_of_its_memory_and_compute() -> None:
    """Here compute: of a card with 70 % free, whose memory is free, and of an idle one."""
    ledger, nodes = fleet("A", "A"), Fixed(MIX, n0=(999_000, 999 * GIB), n1=(999_000, 999 * GIB))
    ledger.record("computes", "n0", (Charge("n0-0", 0, 300, 1),))
    assert cost(ledger, nodes, container(cores=600, memory=100)) == [0.1, 0.4]
    assert cost(ledger, nodes, container(cores=100, memory=600)) == [0.1, 0.4]


def test_a_card_that_takes_no_pod_has_no_rest() -> None:
    """Neither one that is unhealthy nor one that is cordoned, and none where nothing has room."""
    ledger = fleet("A", "A", used=(500,))
    ledger.record("full", "n1", tuple(Charge(f"n1-{index}", 1000, 1000, 1) for index in range(2)))
    broken = [Card("n0-0", 0, 1000, model="A", healthy=False), Card("n0-1", 1, 1000, model="A")]
    ledger.set_node(NodeInventory("n0", tuple(broken)))
    nodes = Fixed(MIX, n0=(999_000, 999 * GIB), n1=(999_000, 999 * GIB))
    assert cost(ledger, nodes, container(cores=200, percent=20)) == [0.8, 0.0]


def test_whole_cards_and_several_have_no_rest() -> None:
    """They are not chosen by how full they are."""
    ledger, nodes = fleet("A"), Fixed(MIX, n0=(999_000, 999 * GIB))
    half = container(cores=500, percent=50)
    for containers in ((container(cores=1000, percent=100),), (container(memory=1000),), (half, half)):
        assert cost(ledger, nodes, *containers) == [0.0]
    assert cost(ledger, nodes, container(cores=500, percent=50, count=2)) == [0.0]


def test_cards_on_which_others_depend_are_dear() -> None:
    """Each requested card costs the price of the node's model."""
    nodes = Fixed(Mix(8_000.0, 64.0 * GIB, {"A": 0.5}), n0=(999_000, 999 * GIB), n1=(999_000, 999 * GIB))
    assert cost(fleet("A", "B"), nodes, container(cores=1000, percent=100, count=2)) == [1.0, 0.0]


def test_what_is_left_is_told() -> None:
    """The cards without CPU or memory once the pod is there."""
    ledger = fleet("A")
    stranding = Stranding(Fixed(MIX, ledger, n0=(16_000, 999 * GIB)), cpu=12_000, memory=0, points=300.0)
    left = stranding.left(ledger, "n0", (container(cores=1000, percent=100),))
    assert str(left) == "leaves 0.5 free cards there without CPU or memory"
    assert stranding.left(ledger, "gone", ()) == (0.0, 0.0, 0.0)


def test_what_is_left_of_a_shared_card_and_missing_for_others_is_told() -> None:
    """Both count for the node, so both explain it."""
    ledger, mix = fleet("A", used=(500,)), Mix(8_000.0, 64.0 * GIB, {"A": 0.5})
    stranding = Stranding(Fixed(mix, ledger, n0=(16_000, 999 * GIB)), cpu=8_000, memory=0, points=300.0)
    assert str(stranding.left(ledger, "n0", (container(cores=200, memory=200),))) == (
        "leaves 0.3 free cards there without CPU or memory, leaves 0.30 of the card that it shares, takes 0.10 cards "
        "from pods that accept no other model"
    )


def test_nothing_costs_anything_before_a_node_is_known() -> None:
    """There is no mix without nodes."""
    ledger, stranding = fleet("A"), Stranding(Fixed(None, n0=(0, 0)), cpu=8_000, memory=0, points=300.0)
    assert stranding.of_rows(ledger, ledger.order(), ()).tolist() == [0.0]
    assert (stranding.of_row(ledger, 0, ()), stranding.left(ledger, "n0", ()).stranded) == (0.0, 0.0)


def test_another_mix_changes_the_ranking_of_nodes_that_did_not_change() -> None:
    """All are evaluated again, once."""
    ledger = fleet("A", "B")
    nodes = Fixed(MIX, ledger, n0=(999_000, 999 * GIB), n1=(999_000, 999 * GIB))
    cards = PodRequest((container(cores=1000, percent=100),))
    ranking = RankingCache(ledger).ranking(
        cards,
        read_constraints({}, AllocationSettings()),
        stranding=Stranding(nodes, cpu=0, memory=0, points=300.0),
    )

    def chosen() -> str:
        found = finish(ranking.place(cards))
        assert found is not None
        return found.allocation.node

    assert chosen() == "n0"
    nodes.mix = Mix(8_000.0, 64.0 * GIB, {"A": 0.5})
    assert [chosen(), chosen()] == ["n1", "n1"]
    assert nodes.read == 2


@given(st.data())
def test_one_node_costs_what_it_costs_among_all(data: st.DataObject) -> None:
    """To the last bit, so that rankings that are computed once and then updated stay those of a whole evaluation."""
    models = data.draw(st.lists(st.sampled_from("ABC"), min_size=1, max_size=4))
    ledger = fleet(*models, used=tuple(data.draw(st.integers(0, 1000)) for _ in models))
    free = {node: (data.draw(st.integers(0, 64_000)), data.draw(st.integers(0, 512 * GIB))) for node in ledger.nodes}
    prices = data.draw(st.dictionaries(st.sampled_from("ABC"), st.floats(0.01, 5.0)))
    mix = Mix(data.draw(st.floats(100.0, 64_000.0)), data.draw(st.floats(1.0, 512.0)) * GIB, prices)
    amounts = {"cpu": data.draw(st.integers(0, 64_000)), "memory": data.draw(st.integers(0, 512 * GIB))}
    fills_cards = data.draw(st.booleans())
    stranding = Stranding(Fixed(mix, ledger, **free), **amounts, points=300.0, fills_cards=fills_cards)
    request = container(
        cores=data.draw(st.integers(0, 1000)),
        memory=data.draw(st.none() | st.integers(1, 1000)),
        percent=data.draw(st.integers(1, 100)),
        count=data.draw(st.integers(1, 2)),
    )
    rows = ledger.order()
    of_rows = stranding.of_rows(ledger, rows, (request,)).tolist()
    assert of_rows == [stranding.of_row(ledger, row, (request,)) for row in rows.tolist()]
