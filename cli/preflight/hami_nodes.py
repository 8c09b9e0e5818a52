"""Findings about nodes that HAMi's device plugin registered, with the scheduler's own messages."""

from collections.abc import Iterator

from allocation.errors import AllocationError
from allocation.names import HAMI_LOCK, HAMI_REGISTER, HAMI_SCORES
from cli.preflight.device_plugins import START_AGENT, drain
from cli.preflight.findings import Finding
from cli.preflight.observed_node import ObservedNode
from scheduler.state import inventories
from scheduler.state.plugin_nodes import GRACE_SECONDS, PluginNodes


def evaluate(observed: ObservedNode) -> Iterator[Finding]:
    """Return the findings about a node with a register annotation and without our agent."""
    annotations = observed.node.metadata.annotations
    try:
        inventories.read(observed.name, annotations[HAMI_REGISTER], annotations.get(HAMI_SCORES, ""))
    except AllocationError as error:
        yield observed.finding("blocks", f"it takes no pods: {error}", "see its device plugin's log")
    if reason := _closed_reason(observed):
        yield observed.finding("blocks", reason, drain(observed) if observed.advertised == 0 else START_AGENT)
    if observed.advertised:
        yield observed.finding(
            "changes",
            "HAMi's device plugin serves it: pods start there one at a time, through HAMi's handshake",
            "install with the component manifests/hami-nodes (Helm: --set hamiNodes.enabled=true); move the node over"
            " later (docs/hami.md)",
        )
    if lock := annotations.get(HAMI_LOCK):
        yield observed.finding("notes", f"it is locked: {lock}", "the scheduler releases an unused lock")


def _closed_reason(observed: ObservedNode) -> str:
    """Return the reason why the scheduler closes the node once the grace period is over, or an empty string."""
    now = [0.0]
    plugin_nodes = PluginNodes(clock=lambda: now[0], resource=observed.resource)
    if observed.advertised is None and observed.resource in observed.node.status.allocatable:
        return f"its allocatable {observed.resource} cannot be read"
    plugin_nodes.set_node(observed.node)
    now[0] += 2 * GRACE_SECONDS
    rejection = plugin_nodes.rejections().get(observed.name)
    return rejection.text if rejection is not None else ""
