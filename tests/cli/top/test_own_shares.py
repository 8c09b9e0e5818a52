"""`kubectl gpu top` with rights in one namespace: what its pods use of each card, from the scheduler's answer."""

from cli.top import own_shares
from cli.top.usage import Amount, CardUsage
from scheduler.api.namespaced.shares_types import NamespaceShares, PodShare, SharedCard, SharedNode


def card(*shares: PodShare) -> CardUsage:
    """Return what is shown of a card of 40 GiB with these shares."""
    shared = SharedCard(0, "GPU-a", "A100", "hami-core", True, False, 40960, 1000, 10, shares)  # noqa: FBT003
    fleet = own_shares.fleet(NamespaceShares("team", (SharedNode("n1", "", "", (shared,)),)))
    return fleet.nodes[0].cards[0]


def test_each_container_counts() -> None:
    """Without a claim each has a share of its own."""
    shown = card(PodShare("p", "main", 3000, 300), PodShare("p", "side", 1000, 100))
    assert (shown.memory_mib, shown.cores, shown.slots) == (Amount(4000, 40960), Amount(400, 1000), Amount(2, 10))


def test_the_containers_of_a_claim_count_once() -> None:
    """For each pod: a claim is a template, and every pod that names it has cards of its own."""
    shares = [PodShare(pod, container, 3000, 300, "c") for pod in ("p", "q") for container in ("main", "side")]
    shown = card(*shares)
    assert (shown.memory_mib.used, shown.cores.used, shown.slots.used) == (6000, 600, 2)
    assert str(shown.shares[0]) == "team/p/main(c)"


def test_a_card_that_a_pod_has_alone_is_in_full_use() -> None:
    """As in the view of the whole cluster."""
    shown = card(*(PodShare("p", container, 40000, 900, "c", whole=True) for container in ("main", "side")))
    assert (shown.memory_mib.used, shown.cores.used, shown.slots.used) == (40960, 1000, 10)
    assert shown.is_whole
