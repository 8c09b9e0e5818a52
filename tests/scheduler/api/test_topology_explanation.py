"""Explanations say which set of cards a pod has or would have, how it is connected, and why it has no better one."""

from collections.abc import Sequence

import jsonschema
import msgspec
import pytest

from allocation.claim import ClaimNetwork
from scheduler.api import openapi
from scheduler.api.namespaced import redaction
from scheduler.api.topology_types import CardSet, MissingCard
from tests.allocation.support import machines
from tests.scheduler.support.builders import node
from tests.scheduler.support.claims import claiming, running
from tests.scheduler.support.connecting import cluster, demanding, set_of, status, wanted
from tests.scheduler.support.explaining import explained


def test_the_best_set_was_chosen() -> None:
    """The text has the cards, their island and their bandwidth, and that nothing on the node is better."""
    made = cluster(machines.example_node(), 5)
    shown = set_of(explained(made, demanding(made, 4, min_bandwidth_gbps=600)))
    assert shown.chosen == CardSet((0, 1, 2, 3), 600, 0, 1, 4)
    assert (shown.better, shown.missing) == (None, ())
    assert shown.text == "cards 0-3: one island, slowest pair 600 GB/s; no set of 4 cards of the node is better"


def test_a_better_set_was_not_free() -> None:
    """The text names the better set, its bandwidth, and who holds which of its cards."""
    made = cluster(machines.example_node(), 1, 2)
    shown = set_of(explained(made, demanding(made, 4)))
    assert shown.better == CardSet((0, 1, 2, 3), 600, 0, 1, 4)
    assert shown.missing == (MissingCard(1, ("team/holds-1",)), MissingCard(2, ("team/holds-2",)))
    assert shown.text == (
        "cards 4-7: one island, slowest pair 64 GB/s; cards 0-3 would be better (one island, slowest pair 600 GB/s),"
        " but card 1 is held by team/holds-1 and card 2 is held by team/holds-2"
    )


def test_a_required_set_is_not_free() -> None:
    """Enough cards are free, but no set of them is as required: the text says which set the pod waits for."""
    made = cluster(machines.example_node(), 0)
    explanation = explained(made, demanding(made, 4, mode="Required", min_bandwidth_gbps=600))
    shown = set_of(explanation)
    assert explanation.resolvable
    assert (shown.chosen, shown.missing) == (None, (MissingCard(0, ("team/holds-0",)),))
    assert shown.text == (
        "the pod requires 4 cards in one island, linked at 600 GB/s or more; cards 0-3 would do (one island, slowest"
        " pair 600 GB/s), but card 0 is held by team/holds-0"
    )


@pytest.mark.parametrize("taken", [(), (0,), range(8)])
def test_a_required_set_does_not_exist(taken: Sequence[int]) -> None:
    """The machine has no such set, whether its cards are free or not."""
    made = cluster(machines.example_node(), *taken)
    explanation = explained(made, demanding(made, 5, mode="Required"))
    shown = set_of(explanation)
    assert not explanation.resolvable
    assert (shown.chosen, shown.better, shown.missing) == (None, None, ())
    assert shown.text == (
        "the pod requires 5 cards in one island; the node has no such set among its usable cards, even if no pod held"
        " any of them; its best: cards 0-4 (2 islands, slowest pair not linked, unknown distance)"
    )


@pytest.mark.parametrize(
    ("tier", "condition"),
    [(0, "linked (tier 0)"), (1, "linked or on the same NUMA node (tier 1)"), (2, "at a known distance (tier 2)")],
)
def test_a_required_tier_is_in_words(tier: int, condition: str) -> None:
    """The text says what the number means for two cards; it replaces the island."""
    made = cluster(machines.pcie_only())
    shown = set_of(explained(made, demanding(made, 5, mode="Required", max_tier=tier, min_bandwidth_gbps=1)))
    assert shown.text.startswith(
        f"the pod requires 5 cards, linked at 1 GB/s or more, every two of them {condition}; the node has no such set"
    )


def test_an_unhealthy_card_is_in_no_set() -> None:
    """With an unhealthy card in the fast island, no pod that ends gives the pod its set."""
    made = cluster(machines.example_node(), unhealthy=[3])
    shown = set_of(explained(made, demanding(made, 4, mode="Required", min_bandwidth_gbps=600)))
    assert shown.better is None
    shown = set_of(explained(made, demanding(made, 4, min_bandwidth_gbps=600)))
    assert shown.text == (
        "cards 4-7: one island, slowest pair 64 GB/s, less than the preferred 600 GB/s; no set of 4 cards of the node"
        " is better"
    )


def test_preferred_cards_are_partly_taken() -> None:
    """The text counts the preferred cards of both sets."""
    made = cluster(machines.example_node(), 2)
    shown = set_of(explained(made, demanding(made, 2, prefer=[2, 5])))
    assert shown.text == (
        "cards 4,5: one island, 64 GB/s, 1 of 2 preferred cards; cards 2,5 would be better (no links between them,"
        " unknown distance, 2 of 2 preferred cards, not consecutive), but card 2 is held by team/holds-2"
    )


def test_a_set_below_the_preferred_bandwidth_is_placed_anyway() -> None:
    """The text says by how much the set falls short."""
    made = cluster(machines.dgx_h100())
    shown = set_of(explained(made, demanding(made, 2, min_bandwidth_gbps=900)))
    assert shown.text == (
        "cards 0,1: one island, 478 GB/s, less than the preferred 900 GB/s; no set of 2 cards of the node is better"
    )


def test_cards_without_links_are_told_by_their_numa_nodes() -> None:
    """Where no card has links, NUMA nodes are what differs."""
    made = cluster(machines.pcie_only(), 0, 4, 5)
    shown = set_of(explained(made, demanding(made, 4)))
    assert shown.text.startswith("cards 1-3,6: no links between them, different NUMA nodes, not consecutive; cards ")
    assert "would be better (no links between them, same NUMA node), but card 0 is held by team/holds-0" in shown.text


def test_a_single_card_is_told_by_its_island() -> None:
    """A card of the smallest island is best for a pod that needs one card."""
    made = cluster(machines.islands_2_2())
    shown = set_of(explained(made, demanding(made, 1)))
    assert shown.text == "card 0: one of 2 linked cards, 150 GB/s; no card of the node is better"


def test_only_what_is_demanded_is_explained() -> None:
    """A node that lacks cards, not connections, has no explanation of sets, nor has a pod without a demand."""
    made = cluster(machines.example_node(), *range(7))
    assert explained(made, demanding(made, 2, mode="Required")).nodes[0].topology == ()
    assert explained(made, demanding(made, 2)).nodes[0].topology == ()


def test_nodes_without_cards_are_not_explained_unless_chosen() -> None:
    """A large fleet's explanation has the set of the chosen node; another node's on request."""
    made = cluster(machines.example_node())
    made.set_node(node("n2"))
    made.agent_reports.set(status("n2", machines.pcie_only()))
    wants = demanding(made, 2)
    first, second = explained(made, wants, cards_of=()).nodes
    assert (first.cards, len(first.topology), second.topology) == ((), 1, ())
    first, second = explained(made, wants, cards_of=("n2",)).nodes
    assert (len(first.topology), len(second.topology)) == (1, 1)
    assert second.topology[0].chosen == CardSet((0, 1), 0, 1, 2, 2)


def test_a_running_pod_is_explained_by_its_allocation() -> None:
    """Its own cards count as free for it, those that others hold now are named; without its claim nothing is known."""
    wants = wanted(4)
    for taken, expected in (
        ((1,), "but card 1 is held by team/holds-1"),
        ((), "and are all free now"),
    ):
        made = cluster(machines.example_node(), *taken)
        made.set_claim(wants)
        runs = running("a", wants, node="n1", cards=(4, 5, 6, 7))
        made.set_pod(runs)
        (shown,) = explained(made, runs).topology
        assert shown.text == (
            "cards 4-7: one island, slowest pair 64 GB/s; cards 0-3 would be better (one island, slowest pair 600"
            f" GB/s), {expected}"
        )
        made.drop_claim(wants)
        assert explained(made, runs).topology == ()


def test_a_running_pod_does_not_wait_for_its_own_cards() -> None:
    """Of a better set that has one of its cards, only the others are missing."""
    wants = wanted(2)
    made = cluster(machines.example_node(), 1, 2, 3)
    made.set_claim(wants)
    runs = running("a", wants, node="n1", cards=(0, 4))
    made.set_pod(runs)
    (shown,) = explained(made, runs).topology
    assert shown.missing == (MissingCard(1, ("team/holds-1",)),)


def test_a_free_set_comes_before_equal_ones() -> None:
    """Of the pairs that would be better for a running pod, one that is free now is named."""
    wants = wanted(2)
    made = cluster(machines.example_node(), 1)
    made.set_claim(wants)
    runs = running("a", wants, node="n1", cards=(4, 5))
    made.set_pod(runs)
    (shown,) = explained(made, runs).topology
    assert shown.text.endswith("cards 2,3 would be better (one island, 600 GB/s), and are all free now")


def test_pods_are_not_named_to_users_of_one_namespace() -> None:
    """They see the sets and which cards are not free, in the fields and in the text, but not who holds them."""
    made = cluster(machines.example_node(), 1)
    for demand in ({}, {"mode": "Required", "min_bandwidth_gbps": 600}):
        explanation = explained(made, demanding(made, 4, **demand))
        assert (explanation.outcome == "waits") == bool(demand)
        assert b"holds-1" in msgspec.json.encode(explanation)
        shown = redaction.of_explanation(explanation)
        assert b"holds-1" not in msgspec.json.encode(shown)
        shown = set_of(shown)
        assert shown.missing == (MissingCard(1),)
        assert shown.text.endswith("but card 1 is not free")


def test_explanations_of_sets_are_as_published() -> None:
    """What the API sends conforms to its OpenAPI document."""
    made = cluster(machines.example_node(), 1)
    components = openapi.document()["components"]
    schema = {"$ref": "#/components/schemas/Explanation", "components": components}
    for demand in ({}, {"mode": "Required", "min_bandwidth_gbps": 600}):
        content = msgspec.json.decode(msgspec.json.encode(explained(made, demanding(made, 4, **demand))))
        assert content["nodes"][0]["topology"][0]["better"]["bandwidthGBps"] == 600
        jsonschema.Draft202012Validator(schema).validate(content)


def test_the_policy_names_the_sets() -> None:
    """Nodes come by the bandwidth of their sets unless the mode is Ignore; cards by the policy of the claim."""
    made = cluster(machines.example_node())
    policy = explained(made, demanding(made, 2)).policy
    assert policy is not None
    rest = "the fewest cards left without CPU or memory, then binpack: "
    assert policy.nodes.startswith(f"the bandwidth of the best free set of cards, then {rest}")
    assert policy.cards.startswith("the best free set by policy contiguous in mode Preferred; of equal sets, the one")
    single = explained(made, demanding(made, 1)).policy
    assert single is not None
    assert single.nodes.startswith(rest)  # a card alone has no pair whose bandwidth could rank nodes
    ignoring = explained(made, demanding(made, 2, policy="spread", mode="Ignore")).policy
    assert ignoring is not None
    assert ignoring.nodes.startswith(rest)
    assert ignoring.cards.startswith("the best free set by policy spread in mode Ignore; ")


def test_a_node_without_the_fabric_says_what_it_lacks() -> None:
    """The reason is that of the node, with its code; its sets of cards are not looked at."""
    made = cluster(machines.example_node())
    plain = wanted(2)
    spec = msgspec.structs.replace(plain.spec, network=ClaimNetwork(rdma_required=True, min_ports=2))
    wants = msgspec.structs.replace(plain, spec=spec)
    made.set_claim(wants)
    (shown,) = explained(made, claiming("a", wants)).nodes
    assert (shown.code, shown.reason) == ("FabricMismatch", "FabricMismatch: claim needs 2 RDMA ports, node has 0")
    assert (shown.topology, shown.resolvable) == ((), False)
