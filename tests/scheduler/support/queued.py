"""Pods that a queue pays for."""

from allocation.names import CHARGED_TO
from scheduler.objects import Pod
from tests.scheduler.support.builders import allocated


def charged(name: str, *, memory: int, queue: str, card: int = 0) -> Pod:
    """Return a pod that runs on a card of n1 and is charged to a queue, as annotation `charged-to` has it."""
    made = allocated(name, node="n1", memory=memory, card=card)
    made.metadata.annotations[CHARGED_TO] = queue
    return made
