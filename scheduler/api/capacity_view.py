"""The whole response to a question about capacity: the counts, the largest slice, and what is stranded."""

from collections.abc import Callable, Sequence

from allocation.steps import Steps
from cluster.manifest import NotAdmittedError
from scheduler.api import capacity, capacity_slice, capacity_stranded, manifest_pod
from scheduler.api.capacity_shapes import Shape
from scheduler.api.capacity_types import CapacityView, LargestSlice, ShapeCapacity
from scheduler.api.manifest_pod import Admit, SubmittedPod
from scheduler.cycle.cycle import SchedulingCycle


def view(
    cycle: SchedulingCycle,
    shapes: Sequence[Shape],
    admit: Admit,
    *,
    namespace: str,
    most: int,
    is_over: Callable[[], bool],
    with_stranded: bool = True,
) -> Steps[CapacityView]:
    """Return how many more pods of each shape fit, each counted alone; see `capacity.count`.

    `namespace` is that of manifests that name none. Run it within `ClusterState.alone`.

    Raises:
        UnreadableManifestError: a manifest is not a Pod with claims that it may use.
        UnknownSchedulerError: another scheduler would place the pod.
    """
    submitted = [_submitted(cycle, shape, admit, namespace) for shape in shapes]
    stranded = (yield from capacity_stranded.stranded(cycle.state)) if with_stranded else None
    first = submitted[0] if submitted else ""
    largest: LargestSlice | None = None
    if isinstance(first, SubmittedPod):
        largest = yield from capacity_slice.largest(cycle, first.pod)
    counts: list[ShapeCapacity] = []
    for shape, each in zip(shapes, submitted, strict=True):
        if isinstance(each, str):
            counts.append(ShapeCapacity(shape.name, 0, why=each))
        else:
            counts.append((yield from capacity.count(cycle, shape.name, each, most=most, is_over=is_over)))
    return CapacityView(tuple(counts), largest, stranded)


def _submitted(cycle: SchedulingCycle, shape: Shape, admit: Admit, namespace: str) -> SubmittedPod | str:
    """Return the pod of a shape as admission leaves it, or why admission refuses it."""
    try:
        return manifest_pod.read_pod(cycle.state, shape.manifests, admit, namespace=namespace)
    except NotAdmittedError as error:
        return f"refused at creation: {error}"
