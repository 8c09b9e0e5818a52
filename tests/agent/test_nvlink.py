from agent.nvlink import SWITCH, Endpoint, Link, bandwidth_gbps, islands


def _card(index: int, *remotes: str) -> Endpoint:
    return Endpoint(index, f"pci-{index}", tuple(Link(remote, 25000) for remote in remotes))


def test_islands_are_connected_components() -> None:
    """Cards that reach each other over others are one island, whichever end tells of the link."""
    found = islands([_card(0, "pci-1"), _card(1, "pci-0"), _card(2, "pci-3"), _card(3, "pci-4"), _card(4, "pci-3")])
    assert found == {0: "nvlink-0", 1: "nvlink-0", 2: "nvlink-2", 3: "nvlink-2", 4: "nvlink-2"}


def test_a_card_without_links_is_on_no_island() -> None:
    """An empty island never equals another: cards on PCIe alone are not neighbours."""
    assert islands([_card(0), _card(1), _card(2, "pci-9")]) == {0: "", 1: "", 2: "nvlink-2"}


def test_switches_join_all_their_cards() -> None:
    """Whether a driver calls the other end a switch or only gives its address, its cards are one island."""
    assert set(islands([_card(0, SWITCH), _card(1, SWITCH)]).values()) == {"nvlink-0"}
    assert set(islands([_card(0, "pci-c0"), _card(1, "pci-c0")]).values()) == {"nvlink-0"}


def test_a_link_into_the_unknown_joins_nothing() -> None:
    """A link whose other end no driver tells counts as bandwidth, not as a neighbour."""
    assert islands([_card(0, ""), _card(1, "")]) == {0: "nvlink-0", 1: "nvlink-1"}


def test_the_order_of_cards_does_not_matter() -> None:
    """Names of islands depend on the hardware, not on the order in which it was read."""
    cards = [_card(0, "pci-2"), _card(1, "pci-3"), _card(2, "pci-0"), _card(3, "pci-1")]
    assert islands(cards) == islands(reversed(cards)) == {0: "nvlink-0", 1: "nvlink-1", 2: "nvlink-0", 3: "nvlink-1"}


def test_bandwidth_is_the_sum_of_one_direction() -> None:
    """18 links of an H100 at the driver's 26562 MB/s are 478 GB/s."""
    assert bandwidth_gbps((Link(SWITCH, 26562),) * 18) == 478
