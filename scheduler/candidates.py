"""Which of the nodes that kube-scheduler, or an autoscaler, offers take a pod's cards. Nothing changes by asking."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress

import msgspec
import numpy as np
from numpy.typing import NDArray

from allocation.errors import AllocationError
from allocation.inventory import NodeInventory
from allocation.ledger import Ledger
from allocation.names import HAMI_REGISTER
from allocation.rejection import Rejection
from allocation.standing import UNFIT
from scheduler import inventories, judgement
from scheduler.extender_api import Args, FilterResult, HostPriority, NodeMeta, nodes_result
from scheduler.judgement import Wish
from scheduler.state import State

BEST = 10
"""MaxExtenderPriority."""


def filter_(state: State, args: Args) -> FilterResult:
    """Answer the nodes that take the pod, in the order in which they were given, and why the others do not."""
    nodes, worths, rejections = _judge(state, args)
    result = FilterResult(failed_nodes={}, failed_and_unresolvable_nodes={})
    words: dict[int, str] = {}
    for name, each in rejections.items():
        # Nodes that say the same have one and the same object, which is put in words once.
        why = words.get(id(each)) or words.setdefault(id(each), str(each))
        (result.failed_nodes if each.resolvable else result.failed_and_unresolvable_nodes)[name] = why
    fits = list(compress(nodes, (worths != UNFIT).tolist()))
    if args.names is not None:
        result.nodenames = fits
    else:
        good = frozenset(fits)
        result.nodes = nodes_result([node for node in args.nodes if node.metadata.name in good])
    return result


def prioritize(state: State, args: Args) -> list[HostPriority]:
    """Answer a score for each node: 10 for those that the loop would prefer to all others, less the worse they are."""
    nodes, worths, _ = _judge(state, args)
    return list(map(HostPriority, nodes, _points(worths)))


def _points(worths: NDArray[np.float64]) -> list[int]:
    """Spread worths over 0 to 10; only the best, and its equals, have 10."""
    points = np.zeros(len(worths), np.int64)
    fits = worths != UNFIT
    if fits.any():
        good = worths[fits]
        best, worst = good.max(), good.min()
        points[fits] = np.minimum(BEST - 1, BEST * (good - worst) / ((best - worst) or 1.0))
        points[worths == best] = BEST
    answer: list[int] = points.tolist()
    return answer


def _names(args: Args) -> Sequence[str]:
    return args.names if args.names is not None else [node.metadata.name for node in args.nodes]


def _judge(state: State, args: Args) -> tuple[Sequence[str], NDArray[np.float64], dict[str, Rejection]]:
    """Answer all nodes, how good each of them is for the pod, and why those are not that do not take it."""
    names, pod = _names(args), args.pod
    try:
        wish = judgement.read(pod.spec, pod.metadata.annotations or {}, state.settings)
    except AllocationError as error:
        refused = Rejection(node_reason=f"held: {error}", resolvable=False)
        return names, np.full(len(names), UNFIT), dict.fromkeys(names, refused)
    room = state.quotas.room(pod.metadata.namespace)
    parts = [*_parts(state, args, wish)]
    judged = [judgement.worths(wish, part.nodes, ledger=part.ledger, shut=part.shut, room=room) for part in parts]
    if len(parts) == 1:
        return parts[0].nodes, *judged[0]
    nodes = [name for part in parts for name in part.nodes]
    rejections = {name: why for _, each in judged for name, why in each.items()}
    return nodes, np.concatenate([worths for worths, _ in judged]), rejections


class _Part(msgspec.Struct, frozen=True):
    """Nodes that are judged by one ledger; those in `shut` do not take the pod."""

    nodes: Sequence[str]
    ledger: Ledger
    shut: Mapping[str, Rejection]


def _parts(state: State, args: Args, wish: Wish) -> Iterator[_Part]:
    """Answer the nodes that exist, and then, if there are any, those that an autoscaler thinks of."""
    names = _names(args)
    templates = {node.metadata.name: node.metadata for node in args.nodes if node.metadata.name not in state.fleet}
    here = [name for name in names if name not in templates] if templates else names
    yield _Part(here, state.ledger, state.shut(wish.request))
    if templates:
        ledger, unreadable = _unused(templates.values())
        yield _Part(list(templates), ledger, unreadable)


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
