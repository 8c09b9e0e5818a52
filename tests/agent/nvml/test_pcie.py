"""The distances of cards on PCIe."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.nvml.pcie import Pair, Place, groups
from agent.nvml.source import NvmlSource
from agent.settings import AgentSettings
from lab import wait
from tests.agent.conftest import Clock
from tests.nvml.stub import GPU_IS_LOST, NOT_SUPPORTED, UNKNOWN, Hardware, StubCard, cards
from tests.support.patience import PATIENCE_S

CALL = "nvmlDeviceGetTopologyCommonAncestor"
SINGLE, MULTIPLE, HOSTBRIDGE, NODE, SYSTEM = 10, 20, 30, 40, 50

Path4 = tuple[int, int, int, int]


def _places(count: int) -> list[Place]:
    return [Place(index, f"pci-{index}") for index in range(count)]


def _levels(paths: dict[int, Path4]) -> dict[Pair, int]:
    """Return the levels of cards by their NUMA node, host bridge, switches and switch."""

    def level(one: Path4, other: Path4) -> int:
        shared = next((depth for depth in range(4) if one[depth] != other[depth]), 4)
        return SYSTEM - 10 * shared

    return {
        frozenset((f"pci-{one}", f"pci-{other}")): level(paths[one], paths[other])
        for one, other in combinations(paths, 2)
    }


def test_groups_go_from_the_numa_node_to_the_switch() -> None:
    """Each level joins fewer cards, and a group is the lowest index among its cards."""
    levels = {
        frozenset(("pci-0", "pci-1")): SINGLE,
        frozenset(("pci-0", "pci-2")): MULTIPLE,
        frozenset(("pci-1", "pci-2")): MULTIPLE,
        **{frozenset((f"pci-{index}", "pci-3")): HOSTBRIDGE for index in range(3)},
        **{frozenset((f"pci-{index}", "pci-4")): NODE for index in range(4)},
        **{frozenset((f"pci-{index}", "pci-5")): SYSTEM for index in range(5)},
    }
    assert groups(_places(6), levels) == {
        0: (0, 0, 0, 0),
        1: (0, 0, 0, 0),
        2: (0, 0, 0, 2),
        3: (0, 0, 3, 3),
        4: (0, 4, 4, 4),
        5: (5, 5, 5, 5),
    }


PATHS = st.lists(st.tuples(*[st.integers(0, 1)] * 4), min_size=2, max_size=8).map(lambda paths: dict(enumerate(paths)))


@given(PATHS)
def test_groups_are_those_of_the_tree(paths: dict[int, Path4]) -> None:
    """Two cards have the same group at exactly those levels that their ways to the CPUs share."""
    assert groups(_places(len(paths)), _levels(paths)) == {
        index: tuple(
            min(other for other in paths if paths[other][: depth + 1] == path[: depth + 1]) for depth in range(4)
        )
        for index, path in paths.items()
    }


@given(PATHS, st.data())
def test_unknown_levels_join_no_cards(paths: dict[int, Path4], data: st.DataObject) -> None:
    """Whatever could not be read, cards with the same group share that level."""
    levels = _levels(paths)
    for pair in data.draw(st.sets(st.sampled_from(sorted(levels, key=sorted)))):
        del levels[pair]
    found = {index: each for index, each in groups(_places(len(paths)), levels).items() if each}
    for one, other in combinations(found, 2):
        for depth in range(4):
            if found[one][depth] == found[other][depth]:
                assert paths[one][: depth + 1] == paths[other][: depth + 1]


def test_card_of_which_nothing_is_known_has_no_groups() -> None:
    """The other cards keep theirs; a card alone has none."""
    levels = {frozenset(("pci-0", "pci-2")): NODE}
    assert groups(_places(3), levels) == {0: (0, 0, 0, 0), 1: (), 2: (0, 2, 2, 2)}
    assert groups(_places(1), {}) == {0: ()}


@pytest.fixture
def clock() -> Clock:
    """The source's clock."""
    return Clock()


@pytest.fixture
def source(hardware: Hardware, clock: Clock, tmp_path: Path) -> Iterator[Callable[[], NvmlSource]]:
    """Return a function that opens a source of the stub's hardware."""
    del hardware  # the stub has to be loaded before
    with ExitStack() as stack:
        settings = AgentSettings(sysfs=str(tmp_path / "sys"), probe_seconds=0.3, quiet_seconds=0.001)
        yield lambda: stack.enter_context(NvmlSource(node="n1", settings=settings, wake=lambda: None, clock=clock))


def _on_one_switch(count: int) -> list[StubCard]:
    placed = cards(count)
    for card in placed:
        card.lines = ["topology 0 0 0 0"]
    return placed


def _groups(source: NvmlSource) -> list[tuple[int, ...]]:
    return [device.pcie_groups for device in source.read()["n1"].devices]


def test_level_of_a_pair_is_read_once(hardware: Hardware, source: Callable[[], NvmlSource]) -> None:
    """Later readings ask only for the pairs of a card that joins."""
    placed = _on_one_switch(3)
    placed[2].lines = [f"error nvmlDeviceGetMemoryInfo {UNKNOWN}"]
    hardware.has(*placed)
    opened = source()
    assert _groups(opened) == [(0,) * 4] * 2
    placed[0].lines = ["topology 0 0 0 1"]
    placed[1].lines = ["topology 1 1 1 1"]
    placed[2].lines = ["topology 0 0 0 0"]
    hardware.write()
    assert _groups(opened) == [(0,) * 4, (0,) * 4, (0, 0, 0, 2)]


def test_lost_card_keeps_its_groups(hardware: Hardware, source: Callable[[], NvmlSource]) -> None:
    """The groups of all cards are as before it was lost."""
    placed = _on_one_switch(3)
    hardware.has(*placed)
    opened = source()
    before = _groups(opened)
    placed[0].lines.append(f"error * {GPU_IS_LOST}")
    hardware.write()
    assert _groups(opened) == before == [(0,) * 4] * 3


def test_level_that_cannot_be_read_is_read_later(
    hardware: Hardware, source: Callable[[], NvmlSource], caplog: pytest.LogCaptureFixture
) -> None:
    """The failure is logged once, and does not affect the other pairs."""
    placed = _on_one_switch(4)
    placed[0].lines.append(f"error {CALL} {UNKNOWN}")
    hardware.has(*placed)
    opened = source()
    for _ in range(2):
        assert _groups(opened) == [(), *[(1,) * 4] * 3]
    assert caplog.text.count(f"{CALL}: Unknown Error") == 1
    placed[0].lines.pop()
    hardware.write()
    assert _groups(opened) == [(0,) * 4] * 4


def test_machine_without_levels_is_not_asked_again(
    hardware: Hardware, source: Callable[[], NvmlSource], caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is logged: there is nothing to repair."""
    placed = _on_one_switch(2)
    placed[0].lines.append(f"error {CALL} {NOT_SUPPORTED}")
    hardware.has(*placed)
    opened = source()
    assert _groups(opened) == [(), ()]
    placed[0].lines.pop()
    hardware.write()
    assert _groups(opened) == [(), ()]
    assert "PCIe topology" not in caplog.text


def test_call_that_hangs_affects_no_card(
    hardware: Hardware, source: Callable[[], NvmlSource], clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """The cards are healthy and have no groups until the call returns; NVML is not opened again before."""
    *placed, late = _on_one_switch(4)
    placed[0].lines.append(f"hang {CALL}")
    placed[2].lines.append(f"error nvmlDeviceGetMemoryInfo {UNKNOWN}")  # a missing card, for which it would be opened
    hardware.has(*placed)
    opened = source()
    for _ in range(3):
        report = opened.read()["n1"]
        assert [(device.pcie_groups, device.message) for device in report.devices] == [((), "")] * 2
        hardware.has(*placed, late)
        clock.now += 1
    assert [record.getMessage() for record in caplog.records if "PCIe" in record.getMessage()] == [
        "PCIe topology of node n1: NVML has not responded within 0.3 s"
    ]
    placed[0].lines.pop()
    hardware.write()

    def listed() -> bool:
        clock.now += 1
        return _groups(opened) == [(0,) * 4] * 3

    wait.until(listed, what="the card that joined", timeout_s=PATIENCE_S)
