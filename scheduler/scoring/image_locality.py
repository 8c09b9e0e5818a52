"""Image locality: nodes that have large images of the pod already are better, more so if many nodes have them.

The rules are those of kube-scheduler's score plugin ImageLocality (pkg/scheduler/framework/plugins/imagelocality,
v1.34). An image that is in few nodes counts less, so that pods do not all go to these. Where nodes report different
sizes for one name, each node counts with its own.
"""

from functools import partial
from typing import Final

import numpy as np

from allocation.steps import Steps
from scheduler.filters.node_cache import NodeCache
from scheduler.objects import Node, Pod
from scheduler.scoring.candidates import Candidates, Scores
from scheduler.scoring.normalisation import BEST

_MIB: Final = 1024 * 1024
_LEAST: Final = 23 * _MIB
"""Images up to this size are not worth a preference."""
_MOST: Final = 1000 * _MIB
"""The size for each container from which on more makes no difference."""


def scores(pod: Pod, candidates: Candidates, node_cache: NodeCache) -> Steps[Scores]:
    """Return the score of each candidate."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    total = np.zeros(len(candidates), np.int64)
    for container in containers:
        name = normalised_name(container.image)
        count = node_cache.index.images[name]
        if count:
            sizes = yield from candidates.numbers(partial(_size, name), ("image", name))
            total += (sizes * (count / len(node_cache))).astype(np.int64)
    most = _MOST * len(containers)
    return BEST * (np.clip(total, _LEAST, most) - _LEAST) // (most - _LEAST)


def normalised_name(name: str) -> str:
    """Return the name of an image as nodes report it: with the tag `latest` if it has none."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


def _size(name: str, node: Node) -> int:
    return next((image.size_bytes for image in node.images if name in image.names), 0)
