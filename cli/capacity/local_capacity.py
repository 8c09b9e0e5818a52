"""Counts with the scheduler's own functions, in this process. They compute with numpy."""

import time
from collections.abc import Sequence
from functools import partial
from typing import Final

from allocation.steps import finish
from cli.capacity.answer import Capacity
from cli.errors import CommandError
from cli.explain import added_nodes
from cli.explain.addition import Addition
from cli.installation.rules import Rules
from cli.kube.session import Session
from cluster.manifest import UnreadableManifestError
from scheduler.api import capacity, capacity_shapes, capacity_view
from scheduler.api.capacity_shapes import Shape
from scheduler.api.capacity_types import CapacityView
from scheduler.api.manifest_pod import UnknownSchedulerError, other_scheduler_message
from scheduler.api.request_body import Manifests
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.state.cluster_state import ClusterState
from webhook import dry_run

_MOST_COPIES: Final = 100_000
_MOST_SECONDS: Final = 30.0
"""For all shapes together; nothing waits for this process."""


def count(
    session: Session,
    state: ClusterState,
    chosen: Rules,
    pods: Sequence[tuple[str, Manifests]],
    addition: Addition | None,
) -> Capacity:
    """Return how many more of `pods`, by name, fit, or of the standard shapes; and how many with the `addition`.

    The nodes of the addition stay in the state.

    Raises:
        CommandError: a pod cannot be read, or the node of the addition cannot be copied.
    """
    cycle = SchedulingCycle(state, weights=chosen.weights)
    shapes = tuple(Shape(name, manifests) for name, manifests in pods)
    if not shapes:
        shapes = finish(capacity_shapes.standard(state, session.namespace, own_only=False))
    view = partial(_view, cycle, chosen, shapes, namespace=session.namespace)
    now = view()
    if addition is None:
        return Capacity(now)
    added_nodes.add(session, state, addition, groups=chosen.node_groups)
    return Capacity(now, addition, view())


def _view(cycle: SchedulingCycle, chosen: Rules, shapes: Sequence[Shape], *, namespace: str) -> CapacityView:
    admit = partial(dry_run.dry_run, allocation=chosen.allocation, settings=chosen.webhook)
    is_over = capacity.deadline(time.monotonic, _MOST_SECONDS)
    try:
        return finish(capacity_view.view(cycle, shapes, admit, namespace=namespace, most=_MOST_COPIES, is_over=is_over))
    except UnreadableManifestError as error:
        raise CommandError(str(error)) from None
    except UnknownSchedulerError as error:
        raise CommandError(other_scheduler_message(str(error), namespace)) from None
