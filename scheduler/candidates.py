"""Which of the nodes that kube-scheduler, or an autoscaler, offers take a pod's cards. Nothing changes by asking."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

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
    fits, rejections = _fitting(state, args)
    result = FilterResult(failed_nodes={}, failed_and_unresolvable_nodes={})
    words: dict[int, str] = {}
    for name, each in rejections.items():
        # Nodes that say the same have one and the same object, which is put in words once.
        why = words.get(id(each)) or words.setdefault(id(each), str(each))
        (result.failed_nodes if each.resolvable else result.failed_and_unresolvable_nodes)[name] = why
    if args.names is not None:
        result.nodenames = fits
    else:
        good = frozenset(fits)
        result.nodes = nodes_result([node for node in args.nodes if node.metadata.name in good])
    return result


def prioritize(state: State, args: Args) -> list[HostPriority]:
    """Answer a score for each node: 10 for those that the loop would prefer to all others, less the worse they are."""
    nodes, worths = _worths(state, args)
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


def _fitting(state: State, args: Args) -> tuple[Sequence[str], dict[str, Rejection]]:
    try:
        wish = _wish(state, args)
    except AllocationError as error:
        refused = Rejection(node_reason=f"held: {error}", resolvable=False)
        return (), dict.fromkeys(_names(args), refused)
    room = state.quotas.room(args.pod.metadata.namespace)
    parts = [
        judgement.fitting(wish, part.nodes, ledger=part.ledger, shut=part.shut, room=room)
        for part in _parts(state, args, wish)
    ]
    if len(parts) == 1:
        return parts[0]
    return [name for fits, _ in parts for name in fits], {name: why for _, each in parts for name, why in each.items()}


def _worths(state: State, args: Args) -> tuple[Sequence[str], NDArray[np.float64]]:
    """Answer all nodes, and how good each of them is for the pod."""
    try:
        wish = _wish(state, args)
    except AllocationError:
        return _names(args), np.full(len(_names(args)), UNFIT)
    room = state.quotas.room(args.pod.metadata.namespace)
    parts = [*_parts(state, args, wish)]
    worths = [judgement.worths(wish, part.nodes, ledger=part.ledger, shut=part.shut, room=room) for part in parts]
    return list(chain.from_iterable(part.nodes for part in parts)), np.concatenate(worths)


def _wish(state: State, args: Args) -> Wish:
    return judgement.read(args.pod.spec, args.pod.metadata.annotations or {}, state.settings)


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
