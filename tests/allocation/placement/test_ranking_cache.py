"""Incremental placement makes the decision of placement from scratch, after any history."""

import random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from allocation import names
from allocation.constraints import CardKind, Constraints, read_constraints
from allocation.fabric import NO_FABRIC, CuFile, Fabric, FabricDemand, Hca, HcaPort
from allocation.inventory import Card, NodeInventory
from allocation.isolation import Isolation
from allocation.ledger.changes import Changes
from allocation.ledger.ledger import Ledger
from allocation.ledger.ledger_view import LedgerView
from allocation.placement.node_ranking import NodeRanking
from allocation.placement.placement import Placement, place
from allocation.placement.query import PlacementQuery
from allocation.placement.ranking_cache import RankingCache
from allocation.quota import UNLIMITED, Headroom
from allocation.request import Kind
from allocation.settings import AllocationSettings
from allocation.sharing import SharingRules
from allocation.steps import Steps, finish
from allocation.topology.demand import TopologyDemand
from allocation.topology.layout import CardLinks, of_links
from tests.allocation.support.builders import container, pod, whole
from tests.allocation.support.mig_cards import instance, mig_card

ISOLATIONS = (Isolation.NONE, Isolation.NONE, Isolation.MPS, Isolation.HAMI_CORE)
KINDS = ("set", "drop", "cordon", "refuse", "rule", "release", "place")
REQUESTS = (
    pod(container(memory=300)),
    pod(container(memory=300, cores=200)),
    pod(container(percent=50)),
    pod(container(memory=1, cores=1000)),
    pod(whole()),
    pod(whole(2)),
    pod(container()),
    pod(container(count=2, memory=200)),
    pod(container("a", memory=500), container("b", memory=500)),
    pod(container(memory=200, tflops=104)),
    pod(container("a", memory=100, tflops=65), container("b", memory=100, cores=300)),
    pod(container("i", Kind.INIT, memory=900), container("s", Kind.SIDECAR, memory=100), container("m", percent=30)),
)
ANNOTATIONS = (
    {},
    {names.NODE_POLICY: "spread"},
    {names.CARD_POLICY: "binpack"},
    {names.CARD_POLICY: "mutex,numa"},
    {names.CARD_POLICY: "topology-aware"},
    {names.NUMA_BIND: "true"},
    {names.USE_TYPES: "A100"},
    {names.AVOID_UUIDS: "GPU-n1-0,GPU-n2-1"},
    {names.USE_UUIDS: "GPU-n0-0,GPU-n3-0"},
    {names.MODE: "mig"},
)
CARD_KINDS: tuple[tuple[CardKind, str], ...] = (
    *(("any", ""), ("any", ""), ("card", "")),
    *(("instance", ""), ("instance", "1g.5gb"), ("instance", "2g.10gb")),
)
FABRICS = (
    NO_FABRIC,
    Fabric((Hca("mlx5_0", ports=(HcaPort(1),)),)),
    Fabric((Hca("mlx5_0", ports=(HcaPort(1),)), Hca("mlx5_1", ports=(HcaPort(1), HcaPort(2)))), CuFile(enabled=True)),
)
TOPOLOGY_DEMANDS = (
    *(None, None, None, None),
    TopologyDemand(),
    TopologyDemand(mode="Ignore"),
    TopologyDemand(mode="Required"),
    TopologyDemand("spread", "Required", min_bandwidth_gbps=60),
    TopologyDemand("preferIds", prefer_ids=(1, 3)),
    TopologyDemand("contiguous", "Required", max_tier=1, accepts_unknown=False),
)
FABRIC_DEMANDS = (
    *(None, None, None),
    FabricDemand(min_ports=2, asks_network=True),
    FabricDemand(preferred_hcas=("mlx5_1",), cu_file="Preferred", asks_network=True),
)
HEADROOMS = (UNLIMITED, UNLIMITED, Headroom(memory_mib=400), Headroom(cards=1, cores=1000), Headroom(tflops=110_000))


def constraints(chance: random.Random) -> Constraints:
    """Return random constraints, some of which only a GpuClaim sets."""
    kind, profile = chance.choice(CARD_KINDS)
    read = read_constraints(chance.choice(ANNOTATIONS), AllocationSettings())
    return msgspec.structs.replace(
        read,
        card_kind=kind,
        profile=profile,
        topology=chance.choice(TOPOLOGY_DEMANDS) or read.topology,
        fabric=chance.choice(FABRIC_DEMANDS),
    )


class FakeEligible:
    """Eligible nodes that a test chooses."""

    def __init__(self, ledger: Ledger, refused: set[str]) -> None:
        self._ledger = ledger
        self._refused = refused

    def prepare(self) -> Steps[None]:
        """Prepare nothing."""
        yield from ()

    def rows(self) -> object:
        """Return the flag of every row."""
        flags = self._ledger.fullness >= 0
        for node in self._refused:
            row = self._ledger.row(node)
            if row is not None:
                flags[row] = False
        return flags

    def row(self, row: int) -> bool:
        """Return the flag of one row."""
        return self._ledger.node(row) not in self._refused


def inventory(node: str, chance: random.Random) -> NodeInventory:
    """Return a node with random cards, some of them in MIG mode."""
    cards: list[Card] = []
    for index in range(chance.randint(1, 4)):
        if chance.random() < 0.15:
            cards.append(mig_card(index, node=node))
            starts = chance.sample(range(7), chance.randint(0, 3))
            cards.extend(instance(index, "1g.5gb", start, node=node) for start in starts)
            continue
        cards.append(
            Card(
                f"GPU-{node}-{index}",
                index,
                chance.choice((1000, 1000, 2000)),
                cores=chance.choice((1000, 1000, 2000, 0)),
                slots=chance.choice((2, 4)),
                model=chance.choice(("NVIDIA A100", "NVIDIA H100")),
                numa=chance.randint(0, 1),
                healthy=chance.random() > 0.1,
                tflops=chance.choice((0, 65, 312)),
            )
        )
    links = tuple(
        CardLinks(
            *(each.index, each.numa, chance.choice(("", "a", "b")), chance.choice((0, 50, 100))),
        )
        for each in cards
        if each.is_undivided
    )
    return NodeInventory(node, tuple(cards), of_links(links), chance.choice(FABRICS))


class World:
    """A ledger with a ranking cache, and random changes to both."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 -- a test
        self.ledger = Ledger(self.rules(), rows=2, cards=2)
        self.cache = RankingCache(self.ledger)
        self.refused: set[str] = set()
        self.pods: list[str] = []

    def rules(self) -> SharingRules:
        """Return random rules; there are few pods on a node."""
        return SharingRules(self.chance.choice((None, None, 2)), self.chance.random() < 0.5)

    def step(self) -> None:
        """Make one random change."""
        chance, ledger = self.chance, self.ledger
        node = f"n{chance.randint(0, 5)}"
        match chance.choices(KINDS, (3, 1, 1, 2, 1, 4, 12))[0]:
            case "set":
                ledger.set_node(inventory(node, chance))
            case "drop":
                ledger.drop_node(node)
            case "cordon":
                ledger.set_cordon(node, frozenset(chance.sample([f"GPU-{node}-{i}" for i in range(4)], 1)))
            case "rule":
                ledger.set_rules(self.rules())
            case "refuse":
                self.refused ^= {node}
                row = ledger.row(node)
                if row is not None:
                    ledger.changes.add(row)
            case "release":
                if self.pods:
                    ledger.release(self.pods.pop(chance.randrange(len(self.pods))))
            case _:
                self.place()

    def place(self) -> None:
        """Place a pod with and without the cache, compare, and reserve."""
        headroom, isolation = self.chance.choice(HEADROOMS), self.chance.choice(ISOLATIONS)
        request = msgspec.structs.replace(self.chance.choice(REQUESTS), isolation=isolation)
        query = PlacementQuery(request, constraints(self.chance), headroom)
        nodes = [node for node in self.ledger.nodes if node not in self.refused]
        plain = finish(place(LedgerView(self.ledger), query, nodes))
        eligible = FakeEligible(self.ledger, self.refused)
        ranking = self.cache.ranking(request, query.constraints, eligible=eligible, key="some")
        chosen = finish(ranking.place(request, headroom=headroom))
        if not isinstance(plain, Placement):
            assert chosen is None
            return
        assert chosen is not None
        assert (chosen.allocation, chosen.charges) == (plain.allocation, plain.charges)
        assert chosen.scores[chosen.allocation.node] == plain.scores[plain.allocation.node]
        self.place_where(ranking, query, nodes)
        uid = f"pod-{len(self.pods)}-{self.chance.random()}"
        self.ledger.assume(uid, plain.allocation.node, plain.charges)
        self.pods.append(uid)

    def place_where(self, ranking: NodeRanking, query: PlacementQuery, nodes: list[str]) -> None:
        """Compare the choice among the nodes that a test accepts; it is tried on the best ones, and changes nothing."""
        accepted, tried = set(self.chance.sample(nodes, self.chance.randint(0, len(nodes)))), list[str]()

        def accepts(node: str) -> bool:
            tried.append(node)
            return node in accepted

        among = [node for node in nodes if node in accepted]
        plain = finish(place(LedgerView(self.ledger), query, among))
        for most in (1, len(nodes)):
            tried.clear()
            found = ranking.place_where(accepts, query.request, headroom=query.headroom, most=most)
            assert len(tried) <= most
            if found is None:
                assert not isinstance(plain, Placement) or most == 1
                continue
            assert isinstance(plain, Placement)
            assert (found.allocation, found.charges) == (plain.allocation, plain.charges)
            assert found.scores == {found.allocation.node: plain.scores[plain.allocation.node]}


@given(st.integers(0, 2**32), st.integers(1, 60))
def test_incremental_placement_equals_placement_from_scratch(seed: int, steps: int) -> None:
    """Node, cards, charges and score are equal, to the last bit, at each step of any history."""
    world = World(seed)
    for _ in range(steps):
        world.step()


def test_a_repeated_request_evaluates_changed_nodes_only() -> None:
    """The columns of unchanged nodes are not read again."""
    ledger = Ledger()
    for number in range(3):
        ledger.set_node(NodeInventory(f"n{number}", (Card(f"GPU-{number}", 0, 1000),)))
    cache, request = RankingCache(ledger), pod(container(memory=300))
    none = read_constraints({}, AllocationSettings())
    first = finish(cache.ranking(request, none).place(request))
    assert first is not None
    ledger.used[:, ledger.row("n1")] = ledger.total[:, ledger.row("n1")]  # without the ledger's knowledge
    ledger.assume("a", first.allocation.node, first.charges)
    assert cache.ranking(request, none).count() == 3
    ledger.changes.add(ledger.row("n1") or 0)
    ledger._used_lists.clear()
    assert cache.ranking(request, none).count() == 2


def test_an_old_mark_is_beyond_the_log() -> None:
    """The log is bounded: a reader whose mark is too old has to read everything."""
    changes = Changes()
    early = changes.mark
    changes.add(1)
    changes.add(2, taken=True)
    assert changes.since(early) == {1, ~2}
    assert changes.since(changes.mark) == set()
    for row in range(10_000):
        changes.add(row)
    assert changes.since(early) is None
    late = changes.mark
    changes.reset()
    assert changes.since(late) is None
