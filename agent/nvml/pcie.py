"""How near the cards of a node are to each other on PCIe: what of the way to the CPUs each pair shares.

NVML reports a level for each pair. A card's groups say the same for all pairs: at each level, the cards that share it
have the same group, which is the lowest of their indexes.
"""

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from typing import Final

import msgspec
import pynvml

from agent import daemon_call
from agent.nvml.nvml import NotThereError, NvmlError, call

_LEVELS: Final = (
    pynvml.NVML_TOPOLOGY_NODE,
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE,
    pynvml.NVML_TOPOLOGY_MULTIPLE,
    pynvml.NVML_TOPOLOGY_SINGLE,
)
"""The most that a pair may be apart to share its NUMA node, its host bridge, its PCIe switches, its PCIe switch."""

_UNSUPPORTED: Final = -1
"""The level of a pair for which this machine has none, so that it is not asked for again."""

Pair = frozenset[str]
"""Two cards by their addresses."""


class Place(msgspec.Struct, frozen=True):
    """A card by its index, and by its PCI address or what else identifies its place."""

    index: int
    address: str


def groups(places: Collection[Place], levels: Mapping[Pair, int]) -> dict[int, tuple[int, ...]]:
    """Return the groups of each card by index, from the NUMA node to the PCIe switch.

    A card whose level with every other one is unknown has no groups. Otherwise an unknown level joins no cards; further
    cards may join both.
    """
    ordered = sorted(places, key=lambda place: place.index)
    known = {
        pair: level for pair in _pairs(ordered) if (level := levels.get(_key(*pair), _UNSUPPORTED)) != _UNSUPPORTED
    }
    by_level = [_lowest(ordered, [pair for pair, level in known.items() if level <= most]) for most in _LEVELS]
    placed = {place.index for pair in known for place in pair}
    return {
        place.index: tuple(lowest[place.index] for lowest in by_level) if place.index in placed else ()
        for place in ordered
    }


def _lowest(ordered: Collection[Place], shared: Collection[tuple[Place, Place]]) -> dict[int, int]:
    """Return for each card the lowest index of those with which the pairs in `shared` join it."""
    lowest = {place.index: place.index for place in ordered}
    for one, other in shared:
        first, second = sorted((lowest[one.index], lowest[other.index]))
        lowest = {index: first if group == second else group for index, group in lowest.items()}
    return lowest


def _pairs(ordered: Collection[Place]) -> list[tuple[Place, Place]]:
    return [(one, other) for one in ordered for other in ordered if one.index < other.index]


def _key(one: Place, other: Place) -> Pair:
    return frozenset((one.address, other.address))


class PcieLevels:
    """The levels of pairs, each of which is read once: they are n²/2, and hardware keeps its place."""

    def __init__(self, *, seconds: float) -> None:
        """Wait at most `seconds` for NVML."""
        self._seconds = seconds
        self._reading: Future[tuple[dict[Pair, int], str]] | None = None
        self.levels: dict[Pair, int] = {}

    @property
    def is_busy(self) -> bool:
        """Whether a call is in progress."""
        return self._reading is not None and not self._reading.done()

    def read(self, places: Collection[Place]) -> str:
        """Read the levels that are missing among these readable cards; return what could not be read, and why."""
        seconds = 0.0  # for a call that did not return in time before
        if self._reading is None:
            missing = [
                pair for pair in _pairs(sorted(places, key=lambda place: place.index)) if _key(*pair) not in self.levels
            ]
            if not missing:
                return ""
            self._reading = daemon_call.start(_reader(missing), name="NVML PCIe levels")
            seconds = self._seconds
        try:
            levels, problem = self._reading.result(seconds)
        except TimeoutError:
            return f"NVML has not responded within {self._seconds:g} s"
        self._reading = None
        self.levels.update(levels)
        return problem


def _reader(pairs: Collection[tuple[Place, Place]]) -> Callable[[], tuple[dict[Pair, int], str]]:
    def read() -> tuple[dict[Pair, int], str]:
        levels: dict[Pair, int] = {}
        problems: dict[str, None] = {}
        for one, other in pairs:
            try:
                handles = (call("nvmlDeviceGetHandleByIndex", place.index) for place in (one, other))
                levels[_key(one, other)] = int(call("nvmlDeviceGetTopologyCommonAncestor", *handles))
            except NotThereError:
                levels[_key(one, other)] = _UNSUPPORTED
            except NvmlError as error:
                problems[str(error)] = None
        return levels, "; ".join(problems)

    return read
