"""What people read about a decision: the texts of events and conditions, HAMi's words where HAMi has some."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import islice

from allocation.mig import Wish
from allocation.mig_plan import NewInstance
from allocation.rejection import Rejection

_NAMED = 10
"""Nodes, and reasons, named in one message; a large cluster has more than a reader wants."""
_RIVALS = 3
"""Nodes that fit, named with their scores."""


def find_fit(scores: Mapping[str, float], *, fitting: int, rejected: int, is_exact: bool = True) -> str:
    """Answer the note of `FilteringSucceed`: the chosen node, and the best of the `fitting` ones with their scores.

    The first of `scores` is the chosen one.
    Where the number is not exact it is the most that may fit, and `rejected` the least that do not.
    """
    best = tuple(islice(scores.items(), _RIVALS if is_exact else 1))
    named = ",".join(f"{name}:{value:.2f}" for name, value in best) + (",…" if fitting > len(best) else "")
    if not is_exact:
        return f"find fit node({best[0][0]}), at least {rejected} nodes not fit, at most {fitting} nodes fit({named})"
    return f"find fit node({best[0][0]}), {rejected} nodes not fit, {fitting} nodes fit({named})"


def no_fit(rejections: Mapping[str, Rejection], refusals: Mapping[str, str]) -> str:
    """Answer why no node takes the pod, nodes with the same reason together, the most frequent first."""
    if not rejections and not refusals:
        return "no available node, the cluster has none"
    groups = by_reason(rejections, refusals)
    reasons = "; ".join(f"{len(names)} nodes {reason}({_some(names)})" for reason, names in groups[:_NAMED])
    if len(groups) > _NAMED:
        reasons += f"; and {len(groups) - _NAMED} more reasons"
    return f"no available node, {len(rejections) + len(refusals)} nodes do not meet: {reasons}"


def by_reason(rejections: Mapping[str, Rejection], refusals: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    """Group the nodes that do not take a pod by why, the most frequent reason first, nodes by name."""
    nodes: defaultdict[str, list[str]] = defaultdict(list)
    for name, rejection in rejections.items():
        nodes[str(rejection)].append(name)
    for name, reason in refusals.items():
        nodes[reason].append(name)
    return sorted(
        ((reason, sorted(names)) for reason, names in nodes.items()), key=lambda group: (-len(group[1]), group[0])
    )


def asked(wishes: Sequence[tuple[str, Wish | NewInstance]]) -> str:
    """Answer why a pod waits for whom MIG instances are being made; `wishes` have their nodes with them."""
    what = ", ".join(f"{wish.profile} on card {wish.card}" for _, wish in wishes)
    return f"no free MIG instance fits; asked node({wishes[0][0]}) to make {what}"


def _some(names: Sequence[str]) -> str:
    return ",".join(names[:_NAMED]) + (",…" if len(names) > _NAMED else "")
