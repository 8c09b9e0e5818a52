"""The interface of inventory sources."""

import re
from collections.abc import Mapping
from typing import Final, Protocol

from agent.device_use import Measured
from agent.report import NodeReport
from allocation.mig import InstanceRequest

# Excludes the characters that separate devices in environment variables and in HAMi's allocation string.
UUID: Final = re.compile(r"[^,:;\s]{1,253}")


class InventoryError(Exception):
    """The source cannot be read or contains an invalid value; the message names the place and the remedy."""


class MigInstanceError(Exception):
    """A MIG instance cannot be created or destroyed now; the message gives the reason."""


class UnmeasuredError(Exception):
    """What the containers use cannot be measured; the message gives the reason."""


class InventorySource(Protocol):
    """A source of the cards of the nodes that this agent serves; it also creates and destroys MIG instances.

    Every method may block, so the agent calls them in threads: `measure` in one, the others one at a time in another.
    """

    def read(self) -> Mapping[str, NodeReport]:
        """Return the present report of each node.

        Raises:
            InventoryError: the source cannot be read; the previous reports remain valid.
        """

    def create(self, node: str, request: InstanceRequest) -> None:
        """Create the MIG instance that the scheduler requests, unless it exists.

        Raises:
            MigInstanceError: the instance does not exist, or not yet.
        """

    def destroy(self, node: str, request: InstanceRequest) -> None:
        """Destroy the MIG instance that was created for `request`, if it exists.

        Raises:
            MigInstanceError: the instance still exists.
        """

    def measure(self) -> Measured:
        """Return what the processes use of each card.

        Raises:
            UnmeasuredError: nothing can be measured now, or ever.
        """
