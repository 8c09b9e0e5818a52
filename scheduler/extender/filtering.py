"""`/filter` and `/prioritize`: evaluates the nodes of kube-scheduler, or of an autoscaler, and changes no state."""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from itertools import compress
from types import MappingProxyType

import msgspec
import numpy as np
from numpy.typing import NDArray

from allocation.errors import AllocationError
from allocation.ledger import ledger_view
from allocation.ledger.ledger import Ledger
from allocation.ledger.ledger_view import LedgerView
from allocation.models import rated
from allocation.names import HAMI_REGISTER, HAMI_SCORES
from allocation.placement import rejection
from allocation.placement.block_max import INFEASIBLE
from allocation.placement.rejection import Rejection
from allocation.placement.stranding import Stranding
from allocation.steps import Steps
from scheduler import objects
from scheduler.cycle import evaluation, messages
from scheduler.cycle.lifts import NO_LIFT, Lift
from scheduler.expansion import template
from scheduler.extender.wire import Args, FilterResult, HostPriority, NodeMeta, Pod, nodes_result
from scheduler.gpu_requirements import GpuRequirements, WaitingPodError
from scheduler.state import inventories
from scheduler.state.cluster_state import ClusterState

BEST = 10
"""MaxExtenderPriority."""


def filter_(
    state: ClusterState, args: Args, *, held: AllocationError | None = None, lift: Lift = NO_LIFT
) -> Steps[FilterResult]:
    """Return the nodes that take the pod, in the given order, and the reasons of the others.

    No node takes a pod that is `held`, which gives the reason. The reservations `lift` are free for it.
    """
    requirements = held or read(state, args.pod)
    if not isinstance(requirements, GpuRequirements):
        why = str(requirements)
        if isinstance(requirements, WaitingPodError):
            message = messages.waiting(requirements.reason, why)
        else:
            message = messages.held(why)
        return _result(args, [], unresolvable=dict.fromkeys(node_names(args), message))
    nodes, scores, rejections = yield from _evaluate(state, args, requirements, lift)
    failed: dict[str, str] = {}
    unresolvable: dict[str, str] = {}
    # Most nodes share a few rejection objects: each object is put into words once.
    words: dict[int, str] = {}
    for name, each in rejections.items():
        text = words.get(id(each)) or words.setdefault(id(each), each.public_text)
        (failed if each.resolvable else unresolvable)[name] = text
    fitting = list(compress(nodes, (scores != INFEASIBLE).tolist()))
    return _result(args, fitting, failed=failed, unresolvable=unresolvable)


def reject(args: Args, why: str) -> FilterResult:
    """Return that no node takes the pod for a reason that may pass."""
    return _result(args, [], failed=dict.fromkeys(node_names(args), why))


def among(args: Args, nodes: Container[str]) -> Args:
    """Return the same question about those of its nodes that are in `nodes`."""
    names = None if args.names is None else [name for name in args.names if name in nodes]
    return Args(args.pod, names, [node for node in args.nodes if node.metadata.name in nodes])


def prioritize(
    state: ClusterState, args: Args, *, pod: objects.Pod | None = None, lift: Lift = NO_LIFT
) -> Steps[list[HostPriority]]:
    """Return a score for each node: 10 for those that the loop prefers to all others, and less for worse ones.

    kube-scheduler's `pod` as the API server has it; without, what it costs other pods is disregarded.
    """
    requirements = read(state, args.pod)
    if not isinstance(requirements, GpuRequirements):
        return [HostPriority(name, 0) for name in node_names(args)]
    stranding = state.workload.of(pod, requirements.constraints) if pod is not None else None
    nodes, scores, _ = yield from _evaluate(state, args, requirements, lift, stranding)
    return list(map(HostPriority, nodes, _points(scores)))


def _points(scores: NDArray[np.float64]) -> list[int]:
    """Map scores to 0 to 10; only the best node, and its equals, have 10."""
    points = np.zeros(len(scores), np.int64)
    fits = scores != INFEASIBLE
    if fits.any():
        feasible = scores[fits]
        best, worst = feasible.max(), feasible.min()
        points[fits] = np.minimum(BEST - 1, BEST * (feasible - worst) / ((best - worst) or 1.0))
        points[scores == best] = BEST
    numbers: list[int] = points.tolist()
    return numbers


def _result(
    args: Args,
    fitting: list[str],
    *,
    failed: Mapping[str, str] = MappingProxyType({}),
    unresolvable: Mapping[str, str] = MappingProxyType({}),
) -> FilterResult:
    """Return the nodes as they were given, by name or whole."""
    result = FilterResult(failed_nodes={**failed}, failed_and_unresolvable_nodes={**unresolvable})
    if args.names is not None:
        result.nodenames = fitting
    else:
        names = frozenset(fitting)
        result.nodes = nodes_result([node for node in args.nodes if node.metadata.name in names])
    return result


def node_names(args: Args) -> Sequence[str]:
    """Return the names of the nodes that are asked about."""
    return args.names if args.names is not None else [node.metadata.name for node in args.nodes]


def read(state: ClusterState, pod: Pod, *, without: Collection[str] = ()) -> GpuRequirements | AllocationError:
    """Return what a pod requires if the pods `without` held no cards, or why that cannot be read."""
    try:
        return state.requirements.of(pod, without=without)
    except AllocationError as error:
        return error


def _evaluate(
    state: ClusterState, args: Args, requirements: GpuRequirements, lift: Lift, stranding: Stranding | None = None
) -> Steps[tuple[Sequence[str], NDArray[np.float64], dict[str, Rejection]]]:
    """Return all nodes, the score of each, and the rejections by those that do not take the pod."""
    headroom = state.requirements.headroom(args.pod)
    view = yield from ledger_view.view(state.ledger, without=lift)
    parts = [*_parts(state, args, requirements, view, lift)]
    evaluated = []
    for part in parts:
        found = yield from evaluation.scores_of(
            requirements,
            part.nodes,
            view=part.view,
            rejected_nodes=part.rejected_nodes,
            headroom=headroom,
            stranding=stranding,
        )
        evaluated.append(found)
    if len(parts) == 1:
        return parts[0].nodes, *evaluated[0]
    nodes = [name for part in parts for name in part.nodes]
    rejections = {name: each for _, by_name in evaluated for name, each in by_name.items()}
    return nodes, np.concatenate([scores for scores, _ in evaluated]), rejections


class _Part(msgspec.Struct, frozen=True):
    """Nodes with their cards; those in `rejected_nodes` do not take the pod."""

    nodes: Sequence[str]
    view: LedgerView
    rejected_nodes: Mapping[str, Rejection]


def _parts(
    state: ClusterState, args: Args, requirements: GpuRequirements, view: LedgerView, lift: Lift
) -> Iterator[_Part]:
    """Iterate over the existing nodes in `view`, and then, if there are any, the node templates of an autoscaler."""
    names = node_names(args)
    templates = {node.metadata.name: node.metadata for node in args.nodes if node.metadata.name not in state.node_cache}
    existing = [name for name in names if name not in templates] if templates else names
    yield _Part(existing, view, state.rejected_nodes.of(requirements, without=lift))
    if templates:
        ledger, unreadable = _empty_nodes(templates.values(), state.settings.models)
        yield _Part(list(templates), LedgerView(ledger), unreadable)


def _empty_nodes(nodes: Iterable[NodeMeta], models: Mapping[str, int]) -> tuple[Ledger, dict[str, Rejection]]:
    """Return a ledger of nodes that do not exist yet, from their register annotations, and the unreadable ones.

    An autoscaler copies such a node from an existing one with the UUIDs of its cards, but new cards have new UUIDs.
    """
    ledger, unreadable = Ledger(), dict[str, Rejection]()
    for node in nodes:
        annotations = node.annotations or {}
        text = annotations.get(HAMI_REGISTER)
        if text is None:
            continue
        try:
            inventory = rated(inventories.read(node.name, text, annotations.get(HAMI_SCORES, "")), models)
            ledger.set_node(template.new_cards(inventory, node.name))
        except AllocationError as error:
            unreadable[node.name] = rejection.of_node(inventories.refused(error))
    return ledger, unreadable
