"""Where an agent learns of cards from: one interface, whatever the source."""

import re
from collections.abc import Mapping
from typing import Final, Protocol

from agent.report import NodeReport
from allocation.mig import Wish

# The characters left out separate devices in environment variables and in HAMi's allocation string.
UUID: Final = re.compile(r"[^,:;\s]{1,253}")


class InventoryError(Exception):
    """The source cannot be read, or says what cannot be; the message names the place and the remedy."""


class PartitionError(Exception):
    """A MIG instance could not be made or destroyed now; the message says why."""


class InventorySource(Protocol):
    """Something that knows the cards of the nodes that this agent serves, and divides those in MIG mode.

    All of it may block, so it is called in a thread, never twice at a time.
    """

    def read(self) -> Mapping[str, NodeReport]:
        """Answer each node's report as it is now.

        Raises:
            InventoryError: it cannot be said; what was said last stays true.
        """

    def create(self, node: str, wish: Wish) -> None:
        """Have the instance that the scheduler wishes for.

        Raises:
            PartitionError: it is not there, or not yet.
        """

    def destroy(self, node: str, wish: Wish) -> None:
        """Have no instance there that was made for this wish.

        Raises:
            PartitionError: it is not gone yet.
        """
