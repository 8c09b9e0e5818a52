"""What is left of a node: free cards, and for how many of them its CPU and memory suffice; as numbers and as columns.

The formulas are evaluated for all nodes at once and for one node; a test compares both to the last bit.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from allocation.ledger.ledger import Ledger
from allocation.placement import card_rest
from allocation.request import WHOLE_CARD

Hosts = NDArray[np.float64]
"""The fields of Host by row of the ledger, shape (field, row); those from `PARTS` on are the parts of its cards."""
_Most = Callable[[Any, Any], Any]
"""`max`, or the same for arrays."""


class Mix(msgspec.Struct, frozen=True):
    """What pods request beside cards.

    Attributes:
        cpu: millicores per card.
        memory: bytes per card.
        prices: by model, the share of all requested cards for which only this model would do, divided by the model's
            share of all cards and by the free part of them, at most 1; models without such requests are left out.
    """

    cpu: float
    memory: float
    prices: Mapping[str, float] = {}


class Host(NamedTuple):
    """What is left of a node, before a pod comes: computed once for all pods, as long as nothing changes there.

    Attributes:
        memory_mib: device memory of all cards.
        cores: millicards of all cards.
        mean_mib: device memory of the mean card.
        used_mib: device memory in use.
        used_cores: millicards in use.
        cpu: free millicores.
        memory: free bytes.
        by_cpu: the cards for which the free CPU suffices.
        by_memory: the cards for which the free memory suffices.
        free: free cards.
        stranded: those of them that are stranded.
        price: of each card.
        parts: the free part of each card (`allocation.placement.card_rest`).
    """

    memory_mib: int
    cores: int
    mean_mib: int
    used_mib: int
    used_cores: int
    cpu: int
    memory: int
    by_cpu: float
    by_memory: float
    free: float
    stranded: float
    price: float
    parts: tuple[int, ...]


CPU: Final = Host._fields.index("cpu")
_MEMORY, _BY_CPU, _BY_MEMORY, _FREE, _STRANDED, _PRICE = map(
    Host._fields.index, ("memory", "by_cpu", "by_memory", "free", "stranded", "price")
)
PARTS: Final = Host._fields.index("parts")


def host_of(ledger: Ledger, row: int, mix: Mix, *, cpu: int, memory: int) -> Host:
    """Return what is left of the node of a row, which has these free millicores and bytes."""
    facts, (used_mib, used_cores, _) = ledger.facts(row), ledger.used_sums(row)
    memory_mib, cores, *_ = facts.capacity
    by_cpu, by_memory = cpu / mix.cpu, memory / mix.memory
    free = free_of(memory_mib, cores, used_mib, used_cores, max)
    stranded = stranded_of(free, by_cpu, by_memory, max)
    price = mix.prices.get(ledger.kind_names[facts.kinds[0]][0], 0.0) if facts.kinds and mix.prices else 0.0
    left = (cpu, memory, by_cpu, by_memory, free, stranded, price, card_rest.parts_of(ledger, row))
    return Host(memory_mib, cores, facts.mean_mib, used_mib, used_cores, *left)


def shape_of(ledger: Ledger) -> tuple[int, int]:
    """Return the shape of the columns for the rows of a ledger, which are to be filled by `set_host`."""
    rows, cards = ledger.present.shape
    return PARTS + cards, rows


def set_host(hosts: Hosts, row: int, host: Host) -> None:
    """Write what is left of the node of a row."""
    unused = [card_rest.NO_CARD] * (len(hosts) - PARTS - len(host.parts))
    hosts[:, row] = (*host[:PARTS], *host.parts, *unused)


def set_mix(hosts: Hosts, ledger: Ledger, mix: Mix) -> None:
    """Compute again, for all rows, what depends on the mix of requests."""
    by_cpu, by_memory = np.divide(hosts[CPU], mix.cpu), np.divide(hosts[_MEMORY], mix.memory)
    hosts[_BY_CPU], hosts[_BY_MEMORY] = by_cpu, by_memory
    hosts[_STRANDED] = stranded_of(hosts[_FREE], by_cpu, by_memory, np.maximum)
    prices = np.array([mix.prices.get(model, 0.0) for model, _ in ledger.kind_names])
    hosts[_PRICE] = prices[ledger.kinds[:, 0]]


def free_of(memory_mib: Any, cores: Any, used_mib: Any, used_cores: Any, most: _Most) -> Any:
    """Return the free cards of a node, by the scarcer of device memory and compute."""
    share = most(used_mib / most(memory_mib, 1), used_cores / most(cores, 1))
    return most(cores / WHOLE_CARD * (1.0 - share), 0.0)


def stranded_of(free: Any, by_cpu: Any, by_memory: Any, most: _Most) -> Any:
    """Return for how many of the free cards of a node its CPU or memory does not suffice."""
    return most(most(free - by_cpu, free - by_memory), 0.0)
