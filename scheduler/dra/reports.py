"""Events about DeviceClasses that satisfy our resources, and about cards that other DRA drivers gave away as well."""

from collections.abc import Callable, Mapping

from allocation.names import SYSTEM_NAMESPACE
from cluster.dra import DeviceClass
from cluster.events import Recorder
from cluster.metadata import Reference
from cluster.resource import DEVICE_CLASSES, RESOURCE_CLAIMS
from scheduler.dra.device_classes import conflict_of
from scheduler.dra.foreign import DoubleBooking
from scheduler.objects import Pod


def class_reporter(recorder: Recorder, *, is_extender: bool) -> Callable[[DeviceClass], None]:
    """Return the callback for each class that satisfies a resource of ours."""
    effect = (
        "kube-scheduler allocates its devices to pods that the extender gives cards, so these pods are not bound"
        if is_extender
        else "pods that another scheduler places get cards that are counted as free until then"
    )

    def report(device_class: DeviceClass) -> None:
        meta = device_class.metadata
        # The class has no namespace; the event is where the scheduler's are looked for.
        regarding = Reference(
            DEVICE_CLASSES.kind, SYSTEM_NAMESPACE, meta.name, meta.uid, api_version=DEVICE_CLASSES.api_version
        )
        note = f"{conflict_of(meta.name, device_class.spec.extended_resource_name)}; {effect}"
        recorder.record(regarding, type="Warning", reason="DraAllocated", action="Scheduling", note=note)

    return report


def double_booking_reporter(
    recorder: Recorder, *, running: Callable[[], Mapping[str, Pod]]
) -> Callable[[DoubleBooking], None]:
    """Return the callback for each card that a claim got while pods have it; `running` returns the pods by UID."""

    def report(found: DoubleBooking) -> None:
        claim = Reference(
            RESOURCE_CLAIMS.kind, found.namespace, found.claim, "", api_version=RESOURCE_CLAIMS.api_version
        )
        pods = [running()[uid].reference for uid in found.pods if uid in running()]
        note = (
            f"card {found.card} of node {found.node} is allocated twice: by its DRA driver to a ResourceClaim, and by"
            " Tranche to pods; delete the pods of one of the two, and install the component manifests/dra-guard"
        )
        for regarding in (claim, *pods):
            recorder.record(regarding, type="Warning", reason="DoubleBooked", action="Counting", note=note)

    return report
