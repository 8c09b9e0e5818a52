"""The lines that show an explanation to people: queue, bindings, preemption, and connections between cards."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from allocation.bindings.binding import AppIdentity
from allocation.fairness.queue_spec import QueueKey
from cli.explain.explanation_tables import some
from scheduler.api.explanation_types import Explanation, NodeExplanation
from scheduler.api.preemption_types import PreemptionExplanation
from scheduler.api.queue_types import PodQueue, QueueAhead
from scheduler.api.topology_types import TopologyExplanation

_VICTIMS_SHOWN = 5
_HELD: Final[Mapping[str, str]] = {
    "preemption": "pods are evicted for it",
    "consolidation": "pods are moved for it or it has been moved itself",
    "patience": "it has waited for long",
}
_SETS_SHOWN: Final = 5
"""Nodes that reject the pod for different sets, in the formats for people."""


def of_queue(explanation: Explanation) -> list[str]:
    """Return the queue that is charged, and for a waiting pod its rank; no line while the cluster has no GpuQueue."""
    queue = explanation.gpu_queue
    if queue is None:
        return []
    tier = f", tier {queue.priority}" if queue.priority else ""
    about = f"queue: {QueueKey.of_annotation(queue.name).words}, weight {queue.weight}{tier}, {_share(queue)}"
    order = "; ".join(_order(queue))
    return [f"{about}, entitled to {queue.entitlement:.2f}", *([f"order: {order}"] if order else [])]


def _share(queue: PodQueue | QueueAhead) -> str:
    """Return the share of a queue, such as `share 0.12 of nvidia.com/gpumem`."""
    if not queue.dominant_resource:
        return "share 0.00"
    share = "an infinite share" if queue.share is None else f"share {queue.share:.2f}"
    return f"{share} of {queue.dominant_resource}"


def where_limits_are_shown(explanation: Explanation) -> str:
    """Return the commands that show the limits which a pod would exceed."""
    commands = {
        "GpuQueue ": "'kubectl gpu queues -o wide'",
        "GpuQuota ": f"'kubectl gpu quota -n {explanation.namespace}'",
        "ResourceQuota ": f"'kubectl gpu top --namespaces -n {explanation.namespace}'",
    }
    return f"see {' and '.join(command for kind, command in commands.items() if kind in explanation.quota)}"


def _order(queue: PodQueue) -> Iterator[str]:
    if queue.rank:
        yield f"{_ordinal(queue.rank)} of {queue.waiting} waiting pod{'' if queue.waiting == 1 else 's'}"
    if queue.ahead is not None:
        yield f"{QueueKey.of_annotation(queue.ahead.name).words} is before it {_why(queue.ahead, queue)}"
    if queue.waits_for:
        yield f"waits for GpuQueue {queue.waits_for}, which is of a higher tier and has less than it asks for"
    if queue.is_behind_first:
        yield "an older pod of its queue has to be placed first (StrictFIFO)"


def _why(ahead: QueueAhead, own: PodQueue) -> str:
    match ahead.by:
        case "tier":
            return f"with tier {ahead.priority}"
        case "priority":
            return "with a pod of higher priority"
        case "share":
            if ahead.weight == own.weight or ahead.share is None or own.share is None:
                return f"with {_share(ahead)}"
            by_weight = f"{ahead.share / ahead.weight:.2f} by weight, against {own.share / own.weight:.2f}"
            return f"with {_share(ahead)} at weight {ahead.weight}: {by_weight}"
        case "age":
            return "with the same share and an older pod"


def _ordinal(number: int) -> str:
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def of_gang(explanation: Explanation) -> list[str]:
    """Return how many pods of its gang would have nodes, and why the first of the others would not."""
    gang = explanation.gang
    if gang is None:
        return []
    said = [f"{gang.state}, needs {gang.size}, {gang.placed} placed, {gang.waiting} waiting"]
    if gang.fitting is not None:
        said.append(f"{gang.fitting} of {gang.placed + gang.waiting} members fit")
    if gang.pause_seconds:
        said.append(f"pauses for {gang.pause_seconds:.0f}s")
    lines = [f"gang: {gang.name}: {'; '.join(said)}"]
    if gang.pod:
        lines.append(f"gang member {gang.pod}: {gang.why}")
    return lines


def of_bindings(explanation: Explanation) -> list[str]:
    """Return how many cards are bound to the pod's application; no line for a pod that GPUBindings do not concern."""
    shown = explanation.bindings
    if shown is None:
        return []
    identity = AppIdentity(shown.app, shown.owner, shown.namespace)
    if not shown.cards:
        return [f"{identity}: no card bound in namespace {shown.namespace}"]
    count = len(shown.cards)
    return [f"{identity}: {count} card{'' if count == 1 else 's'} bound, policy {shown.policy}"]


def of_preemption(explanation: Explanation) -> list[str]:
    """Return the lines; none for a pod that does not wait for others to go."""
    preemption = explanation.preemption
    if preemption is None:
        return []
    reclaim = [f"reclaim: {preemption.reclaim}"] if preemption.reclaim else []
    return [f"preemption: {_said(preemption)}", *reclaim]


def of_consolidation(explanation: Explanation) -> list[str]:
    """Return the line; none for a pod for which no pods could be moved."""
    consolidation = explanation.consolidation
    if consolidation is None or not consolidation.count:
        return []
    said = f"it would fit on node {consolidation.node} if {_pods(consolidation.count)} moved from there to other nodes"
    return [f"consolidation: {said}; see 'kubectl gpu consolidate {explanation.pod} -n {explanation.namespace}'"]


def _said(preemption: PreemptionExplanation) -> str:
    if preemption.why:
        return f"no candidates, because {preemption.why}"
    if preemption.held:
        why = _HELD[preemption.held]
        have = "has" if preemption.leaving == 1 else "have"
        if preemption.gang_pods:
            held = f"cards are held for {_pods(preemption.gang_pods)} of its gang, its own on node {preemption.node}"
            return f"{held}, because {why}; {_pods(preemption.leaving)} {have} to end first"
        held = f"cards of node {preemption.node} are held for it"
        return f"{held}, because {why}; {_pods(preemption.leaving)} there {have} to end first"
    if not preemption.count:
        return f"none, because enough pods of node {preemption.node} are being deleted"
    named = [f"{each.namespace}/{each.name} (priority {each.priority})" for each in preemption.victims[:_VICTIMS_SHOWN]]
    others = preemption.count - len(named)
    if others:
        named.append(f"{others} more" if named else "of other namespaces")
    count = _pods(preemption.count)
    if preemption.reclaimed:
        count += f" ({preemption.reclaimed} of queues above their entitlement)"
    return f"would evict {count} for it, then on node {preemption.node}: {', '.join(named)}"


def _pods(count: int) -> str:
    return f"{count} pod{'' if count == 1 else 's'}"


def of_topology(explanation: Explanation) -> list[str]:
    """Return a line for each set that the pod has or would have."""
    return _lines(explanation.topology, "topology")


def of_topology_on(node: NodeExplanation) -> list[str]:
    """Return a line for each set that the pod would have on a node, or for the one that it waits for there."""
    return _lines(node.topology, f"topology on {node.name}")


def of_topology_rejections(explanation: Explanation, *, wide: bool = False) -> list[str]:
    """Return a line for each set that the pod waits for, with the nodes that say the same of it."""
    nodes_of: dict[str, list[str]] = {}
    for node in explanation.nodes:
        if not node.fits:
            for each in node.topology:
                nodes_of.setdefault(each.text, []).append(node.name)
    lines = [f"topology on {some(tuple(nodes), wide=wide)}: {text}" for text, nodes in nodes_of.items()]
    if wide or len(lines) <= _SETS_SHOWN:
        return lines
    return [*lines[:_SETS_SHOWN], f"… and {len(lines) - _SETS_SHOWN} more; -o wide shows all of them"]


def _lines(sets: Sequence[TopologyExplanation], label: str) -> list[str]:
    """Return a line for each set; the container is named where there are several."""
    if len(sets) == 1:
        return [f"{label}: {sets[0].text}"]
    return [f"{label}, container {each.container}: {each.text}" for each in sets]
