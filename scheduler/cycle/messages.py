"""The texts of events and conditions about scheduling results, in HAMi's words where HAMi has some."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain, islice

import msgspec

from allocation.mig import InstanceRequest
from allocation.placement.mig_plan import NewInstance
from allocation.placement.rejection import UNREGISTERED, Rejection
from allocation.placement.stranding import Left
from allocation.reasons import NodeRejection, PodReason
from allocation.steps import Steps

_NAMED = 10
"""How many nodes, and how many reasons, one message names; a large cluster has more than a reader wants."""
_STEP = 1_000
"""Nodes that are grouped between two interruptions."""
_RUNNERS_UP = 3
"""How many of the fitting nodes one message names with their scores."""


class NodeGroup(msgspec.Struct, frozen=True):
    """The nodes that do not take a pod for one reason.

    Attributes:
        reason: the reason in words.
        code: its code where the nodes as a whole do not take the pod; empty where their cards are the reason.
        nodes: their names, sorted.
    """

    reason: str
    code: str
    nodes: list[str]


def find_fit(
    scores: Mapping[str, float],
    *,
    fitting: int,
    rejected: int,
    is_exact: bool = True,
    left: Callable[[], Left] | None = None,
) -> str:
    """Return the note of `FilteringSucceed`: the chosen node, and the best of the `fitting` nodes with their scores.

    The first of `scores` is the chosen node. If another one of those that are shown has a higher score, what is `left`
    of the chosen one says why. Unless `is_exact`, at most `fitting` nodes fit and at least `rejected` do not.
    """
    best = tuple(islice(scores.items(), _RUNNERS_UP if is_exact else 1))
    listed = ",".join(f"{name}:{value:.2f}" for name, value in best) + (",…" if fitting > len(best) else "")
    if not is_exact:
        numbers = f"at least {counted(rejected)} not fit, at most {counted(fitting)} fit"
    else:
        numbers = f"{counted(rejected)} not fit, {counted(fitting)} fit"
    note = f"find fit node({best[0][0]}), {numbers}({listed})"
    if left is None or all(value <= best[0][1] for _, value in best):
        return note
    return f"{note}; {left()}"


def counted(nodes: int) -> str:
    """Return a number of nodes in words."""
    return f"{nodes} node{'' if nodes == 1 else 's'}"


def no_fit(
    rejections: Mapping[str, Rejection],
    node_rejections: Mapping[str, NodeRejection],
    *,
    others: Collection[str] = (),
    rejection_of_others: Rejection = UNREGISTERED,
    hints: Sequence[str] = (),
) -> Steps[str]:
    """Return the reasons why no node takes the pod, with the nodes of each, the most frequent first; `hints` follow.

    The nodes `others` were not evaluated, for one reason. The text is visible to all readers of the pod, so it
    names no other pod.
    """
    if not rejections and not node_rejections and not others:
        return f"no available node, {PodReason.NoNode}: the cluster has none"
    groups = yield from _grouped(
        chain(rejections.items(), node_rejections.items()),
        is_public=True,
        others=others,
        rejection_of_others=rejection_of_others,
    )
    reasons = "; ".join(f"{counted(len(each.nodes))} {each.reason}({_some(each.nodes)})" for each in groups[:_NAMED])
    if len(groups) > _NAMED:
        reasons += f"; and {len(groups) - _NAMED} more reasons"
    rejected = len(rejections) + len(node_rejections) + len(others)
    note = f"no available node, {counted(rejected)} do{'es' if rejected == 1 else ''} not meet: {reasons}"
    yield
    quota = quota_of(rejections)
    return "; ".join((note, *([quota] if quota else []), *hints))


def quota_of(rejections: Mapping[str, Rejection]) -> str:
    """Return the limits that a pod would exceed, or an empty string if no node rejects it for a quota."""
    return next((rejection.quota for rejection in rejections.values() if rejection.quota), "")


def by_reason(
    rejections: Mapping[str, Rejection], node_rejections: Mapping[str, NodeRejection]
) -> Steps[list[NodeGroup]]:
    """Group the nodes that do not take a pod by their reason, the most frequent reason first."""
    return (yield from _grouped(chain(rejections.items(), node_rejections.items()), is_public=False))


def held(why: str) -> str:
    """Return the reason of a pod that is not scheduled, whatever the nodes are."""
    return f"{PodReason.PodHeld}: {why}"


def waiting(reason: PodReason, why: str) -> str:
    """Return the reason of a pod that waits for another object, whatever the nodes are."""
    return f"{reason}: {why}"


def _grouped(
    rejections: Iterable[tuple[str, Rejection | NodeRejection]],
    *,
    is_public: bool,
    others: Collection[str] = (),
    rejection_of_others: Rejection = UNREGISTERED,
) -> Steps[list[NodeGroup]]:
    # Most of thousands of nodes share a few rejection objects: each object is put into words once.
    by_object: dict[int, tuple[Rejection | NodeRejection, list[str]]] = {}
    if others:
        by_object[id(rejection_of_others)] = (rejection_of_others, [*others])
    for number, (name, each) in enumerate(rejections, 1):
        if number % _STEP == 0:
            yield
        nodes_of = by_object.get(id(each))
        if nodes_of is None:
            nodes_of = by_object[id(each)] = (each, [])
        nodes_of[1].append(name)
    by_reason: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for each, names in by_object.values():
        node = each.node if isinstance(each, Rejection) else each
        text = each.public_coded_text if is_public else each.coded_text
        by_reason[text, node.code.value if node is not None else ""] += names
    yield
    groups = []
    for (text, code), names in by_reason.items():
        groups.append(NodeGroup(text, code, sorted(names)))
        if len(names) >= _STEP:
            yield
    return sorted(groups, key=lambda group: (-len(group.nodes), group.reason))


def asked(requests: Sequence[tuple[str, InstanceRequest | NewInstance]]) -> str:
    """Return the reason of a pod that waits for the MIG instances `requests`, given with their nodes."""
    what = ", ".join(f"{each.profile} on card {each.card}" for _, each in requests)
    return f"{PodReason.MigInstanceAsked}: no free MIG instance fits; asked node({requests[0][0]}) to make {what}"


def _some(names: Sequence[str]) -> str:
    return ",".join(names[:_NAMED]) + (",…" if len(names) > _NAMED else "")
