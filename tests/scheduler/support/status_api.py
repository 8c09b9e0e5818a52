"""An API server for the writer of statuses, and the recorder of the events about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cluster.errors import ClusterError
    from cluster.metadata import Reference
    from cluster.resource import Resource
    from tests.scheduler.support.builders import Clock


class StatusApi:
    """Raises the next of `errors`, or stores the status.

    Attributes:
        errors: what the next writes fail with.
        tries: when each write was tried, and the name of its object.
        bodies: what was written, by the name of the object.
        events: the reason, the object and the note of each event.
    """

    def __init__(self, clock: Clock, resource: Resource, errors: Iterable[ClusterError] = ()) -> None:
        self.errors = [*errors]
        self.tries: list[tuple[float, str]] = []
        self.bodies: list[tuple[str, dict[str, Any]]] = []
        self.events: list[tuple[str, Reference, str]] = []
        self._clock = clock
        self._resource = resource

    async def request(self, method: str, path: str, *, body: dict[str, Any], **_: object) -> bytes:
        """Store a status."""
        *_, namespaces, namespace, _, name, _ = path.split("/")
        namespace = namespace if namespaces == "namespaces" else ""
        assert (method, path) == ("PATCH", self._resource.path(namespace=namespace, name=name, subresource="status"))
        self.tries.append((self._clock.now, f"{namespace}/{name}" if namespace else name))
        if self.errors:
            raise self.errors.pop(0)
        self.bodies.append((self.tries[-1][1], body))
        return b"{}"

    def record(self, regarding: Reference, *, reason: str, note: str, action: str, **_: str) -> None:
        """Store an event; the API server refuses one without an action."""
        assert action
        self.events.append((reason, regarding, note))

    @property
    def reasons(self) -> list[tuple[str, str]]:
        """The reasons of the events, each with the name of its object."""
        return [(reason, regarding.name) for reason, regarding, _ in self.events]
