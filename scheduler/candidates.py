"""Which of the nodes that kube-scheduler, or an autoscaler, offers take a pod's cards. Nothing changes by asking."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from allocation.errors import AllocationError
from allocation.inventory import NodeInventory
from allocation.ledger import Ledger
from allocation.names import HAMI_REGISTER
from allocation.rejection import Rejection
from scheduler import inventories, judgement
from scheduler.extender_api import Args, FilterResult, HostPriority, NodeMeta, nodes_result
from scheduler.judgement import Judgement
from scheduler.state import State

BEST = 10
"""MaxExtenderPriority."""


def filter_(state: State, args: Args) -> FilterResult:
    """Answer the nodes that take the pod, in the order in which they were given, and why the others do not."""
    judged = _judge(state, args)
    good, result = judged.scores, FilterResult(failed_nodes={}, failed_and_unresolvable_nodes={})
    words: dict[int, str] = {}
    for name, each in judged.rejections.items():
        # Nodes that say the same have one and the same object, which is put in words once.
        why = words.get(id(each)) or words.setdefault(id(each), str(each))
        (result.failed_nodes if each.resolvable else result.failed_and_unresolvable_nodes)[name] = why
    if args.names is not None:
        result.nodenames = [name for name in args.names if name in good]
    else:
        result.nodes = nodes_result([node for node in args.nodes if node.metadata.name in good])
    return result


def prioritize(state: State, args: Args) -> list[HostPriority]:
    """Answer a score for each node: 10 for those that the loop would prefer to all others, less the worse they are."""
    points = _points(_judge(state, args).scores)
    return [HostPriority(name, points.get(name, 0)) for name in _names(args)]


def _points(scores: Mapping[str, float]) -> dict[str, int]:
    """Spread scores, which come best first, over 0 to 10; only the best, and its equals, have 10."""
    if not scores:
        return {}
    values = np.array([*scores.values()])
    best, worst = values[0], values[-1]
    points = np.minimum(BEST - 1, BEST * np.abs(values - worst) / (abs(best - worst) or 1.0)).astype(int)
    points[values == best] = BEST
    return dict(zip(scores, points.tolist(), strict=True))


def _names(args: Args) -> Sequence[str]:
    return args.names if args.names is not None else [node.metadata.name for node in args.nodes]


def _judge(state: State, args: Args) -> Judgement:
    pod, names = args.pod, _names(args)
    try:
        wish = judgement.read(pod.spec, pod.metadata.annotations or {}, state.settings)
    except AllocationError as error:
        refused = Rejection(node_reason=f"held: {error}", resolvable=False)
        return Judgement({}, dict.fromkeys(names, refused))
    room = state.quotas.room(pod.metadata.namespace)
    templates = {node.metadata.name: node.metadata for node in args.nodes if node.metadata.name not in state.fleet}
    here = [name for name in names if name not in templates] if templates else names
    live = judgement.judge(wish, here, ledger=state.ledger, shut=state.shut(wish.request), room=room)
    if not templates:
        return live
    ledger, unreadable = _unused(templates.values())
    new = judgement.judge(wish, list(templates), ledger=ledger, shut=unreadable, room=room)
    sign = -1 if wish.constraints.node_policy == "binpack" else 1
    scores = sorted((live.scores | new.scores).items(), key=lambda pair: sign * pair[1])
    return Judgement(dict(scores), live.rejections | new.rejections)


def _unused(nodes: Iterable[NodeMeta]) -> tuple[Ledger, dict[str, Rejection]]:
    """Answer the cards of nodes that do not exist yet, by their register annotations, and what cannot be read.

    An autoscaler copies such a node from one that exists, its cards' UUIDs included, but new cards will have others.
    """
    ledger, unreadable = Ledger(), dict[str, Rejection]()
    for node in nodes:
        text = (node.annotations or {}).get(HAMI_REGISTER)
        if text is None:
            continue
        try:
            read = inventories.read(node.name, text)
        except AllocationError as error:
            unreadable[node.name] = Rejection(node_reason=str(error), resolvable=False)
            continue
        cards = enumerate(read.cards)
        renamed = tuple(msgspec.structs.replace(card, uuid=f"new/{node.name}/{place}") for place, card in cards)
        ledger.set_node(NodeInventory(node.name, renamed))
    return ledger, unreadable
