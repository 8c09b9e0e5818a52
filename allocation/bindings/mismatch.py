"""Why a binding gives its card to no pod, or not to a certain one: what `allocation.bindings.grants` leaves out."""

from collections.abc import Iterator, Mapping

from allocation import quantity
from allocation.bindings.binding import BindingSpec
from allocation.bindings.identity import AppIdentity
from allocation.errors import AllocationError
from allocation.label_selector import accepts, label_selector


def reasons(
    spec: BindingSpec, identity: AppIdentity, labels: Mapping[str, str], *, require_namespace: bool = False
) -> tuple[str, ...]:
    """Return why a binding gives no card to a pod of an application; empty if it does.

    Each reason completes a sentence that begins with the binding.
    """
    return tuple(_reasons(spec, identity, labels, require_namespace=require_namespace))


def _reasons(
    spec: BindingSpec, identity: AppIdentity, labels: Mapping[str, str], *, require_namespace: bool
) -> Iterator[str]:
    if spec.app_name != identity.app:
        yield f"is for app {spec.app_name}"
    if spec.owner not in ("", identity.owner):
        yield f"is for owner {spec.owner}"
    if spec.namespace not in ("", identity.namespace):
        yield f"is for namespace {spec.namespace}"
    if require_namespace and not spec.namespace:
        yield "names no namespace, which allocation.bindings.require_namespace demands"
    if spec.pod_selector is None:
        yield "has no podSelector, so it selects no pod"
    elif not accepts(label_selector(spec.pod_selector), labels):
        yield "does not select the pod's labels"
    if not spec.uuid:
        yield "names no card"
    if spec.memory is not None:
        try:
            quantity.binding_mib(spec.memory)
        except AllocationError as error:
            yield f"has a memory that cannot be read: {error}"
