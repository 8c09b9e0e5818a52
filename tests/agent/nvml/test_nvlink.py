from agent.nvml.nvlink import SWITCH, Endpoint, Link, bandwidth_gbps, islands, peers
from allocation.topology.layout import PeerLink


def _card(index: int, *remotes: str) -> Endpoint:
    return Endpoint(index, f"pci-{index}", tuple(Link(remote, 25000) for remote in remotes))


def test_islands_are_connected_components() -> None:
    """Cards that reach each other through others form one island, whichever end reports the link."""
    computed = islands([_card(0, "pci-1"), _card(1, "pci-0"), _card(2, "pci-3"), _card(3, "pci-4"), _card(4, "pci-3")])
    assert computed == {0: "nvlink-0", 1: "nvlink-0", 2: "nvlink-2", 3: "nvlink-2", 4: "nvlink-2"}


def test_card_without_links_has_no_island() -> None:
    """Cards that are connected only by PCIe never share an island."""
    assert islands([_card(0), _card(1), _card(2, "pci-9")]) == {0: "", 1: "", 2: "nvlink-2"}


def test_switch_joins_all_its_cards() -> None:
    """The cards of a switch form one island, whether the driver reports its type or only its address."""
    assert set(islands([_card(0, SWITCH), _card(1, SWITCH)]).values()) == {"nvlink-0"}
    assert set(islands([_card(0, "pci-c0"), _card(1, "pci-c0")]).values()) == {"nvlink-0"}


def test_link_to_an_unknown_end_joins_no_cards() -> None:
    """A link whose other end the driver does not report counts only as bandwidth."""
    assert islands([_card(0, ""), _card(1, "")]) == {0: "nvlink-0", 1: "nvlink-1"}


def test_islands_do_not_depend_on_the_order_of_cards() -> None:
    """The names of islands depend only on the hardware."""
    cards = [_card(0, "pci-2"), _card(1, "pci-3"), _card(2, "pci-0"), _card(3, "pci-1")]
    assert islands(cards) == islands(reversed(cards)) == {0: "nvlink-0", 1: "nvlink-1", 2: "nvlink-0", 3: "nvlink-1"}


def test_bandwidth_is_the_sum_over_one_direction() -> None:
    """18 links of an H100 at the driver's 26562 MB/s are 478 GB/s."""
    assert bandwidth_gbps((Link(SWITCH, 26562),) * 18) == 478


def test_links_of_a_pair_are_added_up() -> None:
    """Each card reports the bandwidth to each of its peers, rounded down once for all links of the pair."""
    first = Endpoint(0, "pci-0", (Link("pci-4", 25781), Link("pci-1", 25781), Link("pci-4", 25781)))
    second = Endpoint(1, "pci-1", (Link("pci-0", 25781),))
    third = Endpoint(4, "pci-4", (Link("pci-0", 25781),) * 2)
    assert peers([third, first, second]) == {
        0: (PeerLink(1, 25), PeerLink(4, 51)),
        1: (PeerLink(0, 25),),
        4: (PeerLink(0, 51),),
    }


def test_link_that_does_not_end_at_a_card_has_no_peer() -> None:
    """Switches, CPUs, and ends that the driver does not report are not other cards."""
    links = (Link(SWITCH, 25000), Link("", 25000), Link("pci-c0", 25000))
    assert peers([Endpoint(0, "pci-0", links), Endpoint(1, "pci-1", links)]) == {0: (), 1: ()}
