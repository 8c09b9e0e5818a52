"""What kube-scheduler decides about clusters: its own plugins, driven by `lab.scheduling`."""

from collections.abc import Iterable

import msgspec

from lab import scheduling
from tests.scheduler.kube_scheduler.selectors import Manifest


class PluginRejection(msgspec.Struct, frozen=True):
    """Why a plugin of kube-scheduler rejects a node, or a pod whatever the node."""

    plugin: str
    reasons: tuple[str, ...]
    resolvable: bool


class Scores(msgspec.Struct, frozen=True):
    """The scores of a node by plugin, 0 to 100, and their sum by kube-scheduler's default weights."""

    plugins: dict[str, int]
    total: int


class Expected(msgspec.Struct, frozen=True):
    """What kube-scheduler decides about one cluster (`lab/kubernetes/scheduling/evaluate.go`).

    Attributes:
        error: what it reports instead of a decision.
        pod: the rejection by all nodes at once.
        nodes: all rejections of each node.
        scores: the scores of the nodes that take the pod.
    """

    error: str = ""
    pod: PluginRejection | None = None
    nodes: dict[str, tuple[PluginRejection, ...]] = {}
    scores: dict[str, Scores] = {}


def expected(clusters: Iterable[Manifest]) -> list[Expected]:
    """Return what kube-scheduler decides about each cluster."""
    lines = scheduling.evaluate(b"\n".join(map(msgspec.json.encode, clusters))).splitlines()
    return [msgspec.json.decode(line, type=Expected) for line in lines]


def text(rejection: PluginRejection) -> str:
    """Return a rejection in one line."""
    return f"{rejection.plugin}: {', '.join(rejection.reasons)}"
