"""kai-gpu-fractioning on a node with delivery `nvfractions`: whether it gives containers there their cards now.

Its operator says so by a condition of each Node that its GpuFractioningConfig selects: True while its plugin of the
container runtime and its daemon of MPS are ready there, False while one is not, and Unknown once the operator itself
ends, which alone renews the condition (its README and CHANGELOG). KAI-Scheduler asks for True as well.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from allocation.delivery import DeliveryProblem, NodeDelivery

READY: Final = "gpu-fractioning.nvidia.com/Ready"
_LONGEST_REASON: Final = 128
"""Characters of a condition's reason in a message; the component's own have at most 30."""


class NodeCondition(msgspec.Struct, frozen=True, gc=False):
    """A condition of a Node, of which some are those of other software."""

    type: str = ""
    status: str = ""
    reason: str = ""


def problem(delivery: NodeDelivery, conditions: Iterable[NodeCondition]) -> DeliveryProblem | None:
    """Return why the component gives no container its cards on a node that depends on it, or None."""
    if delivery.mode != "nvfractions":
        return None
    found = next((each for each in conditions if each.type == READY), None)
    if found is None:
        return DeliveryProblem(
            f"kai-gpu-fractioning does not say that it runs there: it has no condition {READY}, without which"
            " containers would have no cards",
            "install kai-gpu-fractioning, with the node in spec.nodeSelector of its GpuFractioningConfig, or set"
            " agent.delivery to auto",
        )
    if found.status == "True":
        return None
    reason = f" ({found.reason[:_LONGEST_REASON]})" if found.reason else ""
    return DeliveryProblem(
        f"kai-gpu-fractioning is not ready there, so containers would have no cards: condition {READY} is"
        f" {found.status[:_LONGEST_REASON]}{reason}",
        "kubectl describe the node and its GpuFractioningConfig, whose conditions name the daemon that is not ready",
    )
