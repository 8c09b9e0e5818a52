"""The DeviceClasses that satisfy one of our resources as an extended resource.

NVIDIA's DRA driver has such a class for `nvidia.com/gpu` by default. kube-scheduler then allocates a device of the
class to a pod that requests the resource, although the extender gives the pod a card as well.
"""

from collections.abc import Callable, Collection, Iterable, Iterator

from cluster.dra import DeviceClass


class DeviceClasses:
    """The classes by name, with the resource of each.

    Attributes:
        has_any: whether there has been such a class. It stays true: a pod for which a device was allocated while the
            class had the resource may be bound later.
    """

    def __init__(
        self,
        resources: Iterable[str],
        *,
        on_found: Callable[[DeviceClass], object],
        on_ended: Callable[[], object],
    ) -> None:
        """Notice classes for `resources`; `on_found` is called with each that appears, `on_ended` when one ends."""
        self._ours = frozenset(resources)
        self._on_found = on_found
        self._on_ended = on_ended
        self._resources: dict[str, str] = {}
        self.has_any = False

    def set(self, device_class: DeviceClass, _old: DeviceClass | None = None) -> None:
        """Set the state of a class."""
        name, resource = device_class.metadata.name, device_class.spec.extended_resource_name
        before = self._resources.pop(name, "")
        if resource in self._ours:
            self._resources[name] = resource
            self.has_any = True
            if resource != before:
                self._on_found(device_class)
        if before not in ("", resource):
            self._on_ended()

    def drop(self, device_class: DeviceClass) -> None:
        """Forget a class."""
        if self._resources.pop(device_class.metadata.name, None) is not None:
            self._on_ended()

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Iterate over the names of the classes, with the resource of each."""
        return iter(sorted(self._resources.items()))

    def conflict(self, resources: Collection[str]) -> str:
        """Return which classes satisfy any of `resources`, and the remedy; empty if none does."""
        found = [(name, resource) for name, resource in self if resource in resources]
        return "; ".join(conflict_of(name, resource) for name, resource in found)


def conflict_of(name: str, resource: str) -> str:
    """Return what is wrong with a class that satisfies a resource of ours, and the remedy."""
    return f"DeviceClass {name} satisfies {resource}, too: remove its extendedResourceName"
