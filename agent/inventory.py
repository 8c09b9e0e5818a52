"""Where an agent learns of cards from: one interface, whatever the source."""

import re
from collections.abc import Mapping
from typing import Final, Protocol

from agent.report import NodeReport

# The characters left out separate devices in environment variables and in HAMi's allocation string.
UUID: Final = re.compile(r"[^,:;\s]{1,253}")


class InventoryError(Exception):
    """The source cannot be read, or says what cannot be; the message names the place and the remedy."""


class InventorySource(Protocol):
    """Something that knows the cards of the nodes that this agent serves."""

    def read(self) -> Mapping[str, NodeReport]:
        """Answer each node's report as it is now; may block, so it is called in a thread, never twice at a time.

        Raises:
            InventoryError: it cannot be said; what was said last stays true.
        """
